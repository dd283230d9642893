//go:build e2e

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube/api"
)

// TestFourCopies has a volume with four copies on four nodes (A6): one of them loses its power, and writers on the others go on.
func TestFourCopies(t *testing.T) {
	ours(t)
	fourth := addNode(t)
	ns := namespace(t, "four")
	volume, pods := writers(t, ns, `csi.replicated.tak-os.org/replicas: "4"`)
	v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]bool{}
	for _, r := range v.Spec.Replicas {
		on[r.Node] = true
	}
	if len(v.Spec.Replicas) != 4 || len(on) != 4 || !on[fourth] {
		t.Fatalf("replicas %+v", v.Spec.Replicas)
	}
	victim := setup.nodes[2]
	begin := time.Now()
	start := cut(t, victim)
	var going []string
	for n, p := range pods {
		if n != victim {
			going = append(going, p)
		}
	}
	end := lasted(t, ns, begin, going)
	start()
	all := map[string][]result{}
	for _, p := range going {
		wantSmooth(t, p, mustResults(t, ns, p), begin, end, resumeWithin)
	}
	inSync(t, volume)
	for n, p := range pods {
		all[n] = mustResults(t, ns, p)
	}
	apply(t, pod(ns, "reader-"+fourth, "data", fourth))
	ready(t, ns, "app=reader-"+fourth, 1)
	for n := range pods {
		wantRecords(t, ns, "reader-"+fourth, "/data/"+n, all[n])
	}
	stop(t, ns, pods)
	sameDigest(t, ns, append(readers(t, ns), "reader-"+fourth)...)
}

// ownerExpires is how long an owner that is not heard of keeps a volume of one node at a time (D15).
const ownerExpires = time.Minute

// TestOwnerAway takes the owner of a volume of one node at a time away without a word: its node loses its power, or its link. Another node is denied until the
// ownership has expired, then it has the volume and everything that was synced. The former owner's mount, if it comes back, answers EIO (D15).
func TestOwnerAway(t *testing.T) {
	ours(t)
	for _, kind := range []string{"power", "link"} {
		t.Run(kind, func(t *testing.T) {
			ns := namespace(t, "owner-"+kind)
			apply(t, claim(ns, "data", "tak-replicated", "ReadWriteOnce"))
			volume := volumeOf(t, ns, "data")
			was, next := setup.nodes[1], setup.nodes[2]
			apply(t, pod(ns, "was", "data", was, "append", "/data/f"))
			running(t, ns, "was")
			inSync(t, volume)
			begin := time.Now()
			back := func() {}
			if kind == "power" {
				back = cut(t, was)
			} else {
				if err := setup.lab.Unplug(number(was)); err != nil {
					t.Fatal(err)
				}
				back = func() {
					if err := setup.lab.Plug(number(was)); err != nil {
						t.Error(err)
					}
				}
				t.Cleanup(func() { _ = setup.lab.Plug(number(was)) })
			}
			apply(t, pod(ns, "next", "data", next, "append", "/data/g"))
			eventually(t, ownerExpires, "the other node denied, with the owner's name", func() error {
				out, err := try("-n", ns, "get", "events", "--field-selector", "type=Warning,involvedObject.name=next", "-o", "jsonpath={.items[*].message}")
				if err == nil && !strings.Contains(out, was) {
					err = fmt.Errorf("events say %q", out)
				}
				return err
			})
			running(t, ns, "next")
			took := mustResults(t, ns, "next")[0].at.Sub(begin)
			t.Logf("the next owner writes %.0f s after the former was gone", took.Seconds())
			if took < ownerExpires/2 || took > 3*ownerExpires {
				t.Errorf("after %s, and an ownership expires after %s", took, ownerExpires)
			}
			back()
			returned := time.Now()
			if kind == "link" {
				wantEIO(t, ns, "was", returned)
			}
			all := mustResults(t, ns, "was")
			if last := lastConfirmed(all); last.After(begin.Add(resumeWithin)) {
				t.Errorf("the former owner's round at %s was confirmed, and it was away from %s", last, begin)
			}
			inSync(t, volume)
			wantRecords(t, ns, "next", "/data/f", all)
			wantSmooth(t, "next", mustResults(t, ns, "next"), returned, time.Now(), resumeWithin)
			must(t, "-n", ns, "delete", "pod", "was", "next")
			// What was fenced can be unmounted, and the volume mounted there anew.
			apply(t, pod(ns, "again", "data", was))
			ready(t, ns, "app=again", 1)
			wantRecords(t, ns, "again", "/data/f", all)
		})
	}
}

// wantEIO waits until a workload has had rounds after a time, and asserts that all of those failed with EIO.
func wantEIO(t *testing.T, ns, pod string, since time.Time) {
	t.Helper()
	const rounds = 20
	eventually(t, settle, pod+" is answered EIO", func() error {
		all, err := results(ns, pod)
		if err != nil {
			return err
		}
		n := 0
		for _, r := range all {
			if !r.at.After(since) {
				continue
			}
			if n++; !strings.Contains(r.failed, "input/output error") {
				t.Fatalf("%s, round %d after the return: %+v", pod, r.n, r)
			}
		}
		if n < rounds {
			return fmt.Errorf("%d rounds", n)
		}
		return nil
	})
}

func lastConfirmed(all []result) (at time.Time) {
	for _, r := range all {
		if r.failed == "" {
			at = r.at
		}
	}
	return at
}
