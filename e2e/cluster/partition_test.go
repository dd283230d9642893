//go:build e2e

package cluster

import (
	"maps"
	"slices"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/lab"
)

// partitionFor is how long each lasts; a writer that it cuts off from the coordinator pauses for most of that.
const (
	partitionFor = 12 * time.Second
	cutOffFor    = 6 * time.Second
)

// partition is one kind: what is cut between the nodes of the coordinator and of its two followers, and whose writer can't reach the coordinator then.
type partition struct {
	name     string
	cut      func(c *lab.Cluster, lead, one, other int) error
	apart    [2]int // indexes of two of the three that can't reach each other; equal: one that reaches nobody
	together [2]int // and of two that still do
	off      int    // whose writer is cut off; -1 for none
	loses    bool   // there is another coordinator meanwhile, and everybody waits for that writer's session: its unsynced work may be lost, and it is told
}

const (
	lead = iota
	one
	other
)

var partitions = []partition{
	{"coordinator unplugged", func(c *lab.Cluster, lead, _, _ int) error { return c.Unplug(lead) }, [2]int{one, lead}, [2]int{one, other}, lead, true},
	{"follower unplugged", func(c *lab.Cluster, _, one, _ int) error { return c.Unplug(one) }, [2]int{other, one}, [2]int{other, lead}, one, false},
	{"followers from each other", func(c *lab.Cluster, _, one, other int) error { return c.CutPair(one, other) }, [2]int{one, other}, [2]int{one, lead}, -1, false},
	{"follower from the coordinator", func(c *lab.Cluster, lead, one, _ int) error { return c.CutPair(lead, one) }, [2]int{one, lead}, [2]int{one, other}, one, false},
	{"follower is not heard by the coordinator", func(c *lab.Cluster, lead, one, _ int) error { return c.CutOneWay(one, lead) }, [2]int{one, lead}, [2]int{one, other}, one, false},
	{"follower does not hear the coordinator", func(c *lab.Cluster, lead, one, _ int) error { return c.CutOneWay(lead, one) }, [2]int{one, lead}, [2]int{one, other}, one, false},
}

// lasted waits until writers that go on during a fault have done so for as long as it is to last, and returns the time then.
func lasted(t *testing.T, ns string, begin time.Time, pods []string) time.Time {
	t.Helper()
	eventually(t, settle, "it has lasted for "+partitionFor.String(), func() error { return wroteSince(ns, begin.Add(partitionFor), pods...) })
	return time.Now()
}

// wantReach asserts that two nodes can speak to each other, or not.
func wantReach(t *testing.T, from, to string, want bool) {
	t.Helper()
	got, err := setup.lab.Reaches(t.Context(), number(from), number(to))
	if err != nil || got != want {
		t.Errorf("%s reaches %s: %v, %v; want %v", from, to, got, err, want)
	}
}

// TestPartition cuts nodes off from each other silently, in every way that three nodes can be: writers that reach the coordinator go on within 5 s, and so
// does the one that was cut off once it is not any more.
func TestPartition(t *testing.T) {
	ours(t)
	ns := namespace(t, "partition")
	volume, pods := writers(t, ns)
	heal := func() error {
		for i := range setup.nodes {
			if err := setup.lab.Plug(i + 1); err != nil {
				return err
			}
		}
		return setup.lab.Heal()
	}
	t.Cleanup(func() { _ = heal() })
	for _, p := range partitions {
		t.Run(p.name, func(t *testing.T) {
			nodes := [3]string{lead: coordinator(t, volume)}
			followers := slices.DeleteFunc(slices.Clone(setup.nodes), func(n string) bool { return n == nodes[lead] })
			nodes[one], nodes[other] = followers[0], followers[1]
			begin := time.Now()
			if err := p.cut(setup.lab, number(nodes[lead]), number(nodes[one]), number(nodes[other])); err != nil {
				t.Fatal(err)
			}
			var going []string // writers that are to go on
			for i, n := range nodes {
				if i != p.off {
					going = append(going, pods[n])
				}
			}
			end := lasted(t, ns, begin, going)
			wantReach(t, nodes[p.apart[0]], nodes[p.apart[1]], false)
			wantReach(t, nodes[p.together[0]], nodes[p.together[1]], true)
			if err := heal(); err != nil {
				t.Fatal(err)
			}
			healed := time.Now()
			inSync(t, volume)
			eventually(t, settle, "all write again", func() error { return wroteSince(ns, healed, slices.Collect(maps.Values(pods))...) })
			for i, n := range nodes {
				all := mustResults(t, ns, pods[n])
				if i != p.off {
					wantSmooth(t, pods[n], all, begin, end, resumeWithin)
					continue
				}
				if g, _ := gap(all, begin, end); g < cutOffFor {
					t.Errorf("the writer on %s paused for %s only: was it cut off?", n, g)
				}
				wantResumed(t, pods[n], all, begin, healed, resumeWithin, p.loses)
			}
		})
	}
	end := map[string][]result{}
	for n, p := range pods {
		end[n] = mustResults(t, ns, p)
	}
	names := readers(t, ns)
	for n := range pods {
		wantRecords(t, ns, names[0], "/data/"+n, end[n])
	}
	stop(t, ns, pods)
	sameDigest(t, ns, names...)
}
