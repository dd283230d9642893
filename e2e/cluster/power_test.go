//go:build e2e

package cluster

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube/api"
)

// resumeWithin is how soon writers go on after any one fault (issue of the data path: election and sessions).
const resumeWithin = 5 * time.Second

// ours skips a scenario on a cluster whose power and links are not ours to cut.
func ours(t *testing.T) {
	t.Helper()
	if setup.lab == nil {
		t.Skip("E2E_KUBECONFIG: the nodes of this cluster can't be cut off")
	}
}

// number of a node in the lab.
func number(node string) int { return slices.Index(setup.nodes, node) + 1 }

// cut cuts a node's power. It comes back when start is called, at the latest when the test ends.
func cut(t *testing.T, node string) (start func()) {
	t.Helper()
	if err := setup.lab.Kill(number(node)); err != nil {
		t.Fatal(err)
	}
	start = sync.OnceFunc(func() {
		if err := setup.lab.Start(number(node)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(start)
	return start
}

// writers starts a writer on each node, on one volume, and returns the volume.
func writers(t *testing.T, ns string, annotations ...string) (volume string, pods map[string]string) {
	t.Helper()
	apply(t, claim(ns, "data", "tak-replicated", "ReadWriteMany", annotations...))
	volume = volumeOf(t, ns, "data")
	pods = map[string]string{}
	var names []string
	for _, n := range setup.nodes {
		pods[n] = "writer-" + n
		names = append(names, pods[n])
		apply(t, pod(ns, pods[n], "data", n, "append", "/data/"+n))
	}
	running(t, ns, names...)
	inSync(t, volume)
	return volume, pods
}

// readers starts a Pod on each node that looks at what the writers left.
func readers(t *testing.T, ns string) (names []string) {
	t.Helper()
	for _, n := range setup.nodes {
		names = append(names, "reader-"+n)
		apply(t, pod(ns, "reader-"+n, "data", n))
	}
	for _, name := range names {
		ready(t, ns, "app="+name, 1)
	}
	return names
}

// without is a node that has no replica of a volume.
func without(t *testing.T, volume string) string {
	t.Helper()
	v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range setup.nodes {
		if !slices.ContainsFunc(v.Spec.Replicas, func(r api.ReplicaSpec) bool { return r.Node == n }) {
			return n
		}
	}
	t.Fatalf("every node has a replica: %+v", v.Spec.Replicas)
	return ""
}

// TestPowerCut cuts the power of the coordinator's node, of a follower's, and of one that has only an application, and gives it back: writers
// on the other nodes go on within 5 s, and no record that was synced is lost.
func TestPowerCut(t *testing.T) {
	ours(t)
	for _, role := range []string{"coordinator", "follower", "application"} {
		t.Run(role, func(t *testing.T) {
			ns := namespace(t, "power-"+role)
			copies := map[bool]string{false: "3", true: "2"}[role == "application"]
			volume, pods := writers(t, ns, `csi.replicated.tak-os.org/replicas: "`+copies+`"`)
			victim := coordinator(t, volume)
			switch role {
			case "follower":
				victim = setup.nodes[(number(victim))%len(setup.nodes)]
			case "application":
				victim = without(t, volume)
			}
			begin := time.Now()
			t.Logf("power cut of %s, the node of the %s", victim, role)
			start := cut(t, victim)
			time.Sleep(15 * time.Second) // what the others do in the meantime is what is measured
			away := time.Now()
			// It hit its window: the coordinator was elected anew, or was another node all the time.
			eventually(t, settle, "another node is the coordinator", func() error {
				if coordinator(t, volume) == victim {
					return fmt.Errorf("%s still is, and its power is cut", victim)
				}
				return nil
			})
			start()
			for n, p := range pods {
				if n != victim {
					wantSmooth(t, p, mustResults(t, ns, p), begin, away, resumeWithin)
				}
			}
			inSync(t, volume)
			names := readers(t, ns)
			end := map[string][]result{}
			for n, p := range pods {
				end[n] = mustResults(t, ns, p)
			}
			for n := range pods {
				wantRecords(t, ns, names[0], "/data/"+n, end[n])
			}
			stop(t, ns, pods)
			sameDigest(t, ns, names...)
		})
	}
}

// stop ends writers, so that what they wrote holds still.
func stop(t *testing.T, ns string, pods map[string]string) {
	t.Helper()
	args := []string{"-n", ns, "delete", "pod", "--wait"}
	for _, p := range pods {
		args = append(args, p)
	}
	must(t, args...)
}
