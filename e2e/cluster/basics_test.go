//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestGettingStarted does what docs/getting-started.md says, with its own objects and commands, word for word: three Pods on three
// nodes share one filesystem.
func TestGettingStarted(t *testing.T) {
	ns := namespace(t, "started")
	t.Cleanup(func() { _, _ = try("delete", "storageclass", "three-copies", "--ignore-not-found") })
	d, applied := newDesk(t, ns), 0
	for _, b := range documented(t, "getting-started.md", 6) {
		if b[0] == "yaml" {
			if _, err := tryWith(b[1], "-n", ns, "apply", "-f", "-"); err != nil {
				t.Fatalf("%v\n%s", err, b[1])
			}
			applied++
			continue
		}
		if applied == 3 { // now somebody looks at what runs
			ready(t, ns, "app=site", 3)
		}
		d.types(t, b[1], "NAME", volumeIfThere(ns, "site-content"))
	}
	if applied != 3 {
		t.Fatalf("the guide has %d blocks of YAML, not a class, a claim and a Deployment", applied)
	}
	pods := ready(t, ns, "app=site", 3)
	nodes := map[string]bool{}
	for _, p := range pods {
		nodes[p.Spec.NodeName] = true
	}
	if len(nodes) != 3 {
		t.Fatalf("the Pods are on %v", nodes)
	}
	// Every Pod writes a file of its name, and sees those of all others.
	for _, p := range pods {
		eventually(t, time.Minute, p.Spec.NodeName+" sees the files of all Pods", func() error {
			out, err := inPod(ns, p.Name, "ls", "/srv/content")
			if err != nil {
				return err
			}
			for _, other := range pods {
				if !slices.Contains(strings.Fields(out), other.Name) {
					return fmt.Errorf("no file %s among %q", other.Name, out)
				}
			}
			return nil
		})
	}
	// A new root directory is root's, 0755 (A2).
	if out := mustInPod(t, ns, pods[0].Name, "stat", "-c", "%u:%g %a", "/srv/content"); out != "0:0 755" {
		t.Errorf("the root directory is %s", out)
	}
	// What one node wrote another reads at once (B5).
	for i := range 20 {
		from, to := pods[i%3].Name, pods[(i+1)%3].Name
		want := strconv.Itoa(i)
		mustInPod(t, ns, from, "sh", "-c", "echo "+want+" >/srv/content/count")
		if got := mustInPod(t, ns, to, "cat", "/srv/content/count"); got != want {
			t.Fatalf("%s wrote %s, %s reads %s", from, want, to, got)
		}
	}
	replicas := must(t, "-n", "kube-system", "get", "replicatedvolume", volumeOf(t, ns, "site-content"), "-o", "jsonpath={.spec.replicas[*].node}")
	if n := strings.Fields(replicas); len(n) != 3 || len(slices.Compact(slices.Sorted(slices.Values(n)))) != 3 {
		t.Errorf("replicas are on %v", n)
	}
}

// TestReplicaCounts makes volumes with one and two copies, by class and by annotation, and shows what a bad number gets (A2, A6).
func TestReplicaCounts(t *testing.T) {
	ns := namespace(t, "counts")
	apply(t, class("e2e-one", 1, "Delete"))
	t.Cleanup(func() { _, _ = try("delete", "storageclass", "e2e-one") })
	apply(t, claim(ns, "one", "e2e-one", "ReadWriteMany")+
		claim(ns, "two", "e2e-one", "ReadWriteMany", `csi.replicated.tak-os.org/replicas: "2"`)+
		claim(ns, "bad", "e2e-one", "ReadWriteMany", `csi.replicated.tak-os.org/replicas: "5"`)+
		claim(ns, "four", "e2e-one", "ReadWriteMany", `csi.replicated.tak-os.org/replicas: "4"`))
	for claim, want := range map[string]int{"one": 1, "two": 2} {
		volume := volumeOf(t, ns, claim)
		if out := must(t, "-n", "kube-system", "get", "replicatedvolume", volume, "-o", "jsonpath={.spec.replicas[*].node}"); len(strings.Fields(out)) != want {
			t.Errorf("claim %s has replicas on %q, not %d", claim, out, want)
		}
		apply(t, pod(ns, claim, claim, ""))
		ready(t, ns, "app="+claim, 1)
		mustInPod(t, ns, claim, "/workload", "write", "/data/f", "text")
	}
	refused := map[string]string{"bad": `csi\.replicated\.tak-os\.org/replicas`}
	if len(setup.nodes) < 4 {
		refused["four"] = `(?i)node`
	}
	for claim, reason := range refused {
		eventually(t, time.Minute, "claim "+claim+" refused with a reason", func() error {
			out, err := try("-n", ns, "get", "events", "--field-selector", "type=Warning,involvedObject.name="+claim, "-o", "jsonpath={.items[*].message}")
			if err == nil && !regexp.MustCompile(reason).MatchString(out) {
				err = fmt.Errorf("events say %q", out)
			}
			return err
		})
		if phase := must(t, "-n", ns, "get", "pvc", claim, "-o", "jsonpath={.status.phase}"); phase != "Pending" {
			t.Errorf("claim %s is %s", claim, phase)
		}
	}
}

// TestReadWriteOnce shows several Pods on the owner's node, another node denied with the owner's name, and takeover when
// the owner has gone (D15).
func TestReadWriteOnce(t *testing.T) {
	ns := namespace(t, "single")
	a, b := setup.nodes[0], setup.nodes[1]
	apply(t, claim(ns, "single", "tak-replicated", "ReadWriteOnce")+pod(ns, "first", "single", a)+pod(ns, "second", "single", a))
	ready(t, ns, "set=workload", 2)
	mustInPod(t, ns, "first", "/workload", "write", "/data/f", "from first")
	if out := mustInPod(t, ns, "second", "/workload", "cat", "/data/f"); out != "from first" {
		t.Errorf("the second Pod reads %q", out)
	}
	apply(t, pod(ns, "other", "single", b))
	eventually(t, time.Minute, "the other node denied, with the owner's name", func() error {
		out, err := try("-n", ns, "get", "events", "--field-selector", "type=Warning,involvedObject.name=other", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, a) {
			err = fmt.Errorf("events say %q", out)
		}
		return err
	})
	if pods, err := readyPods(ns, "app=other"); err != nil || len(pods) != 0 {
		t.Fatalf("the other node's Pod is ready: %v", err)
	}
	must(t, "-n", ns, "delete", "pod", "first", "second")
	eventually(t, settle, "takeover", func() error {
		pods, err := readyPods(ns, "app=other")
		if err == nil && len(pods) != 1 {
			err = errors.New(whyNot(ns))
		}
		return err
	})
	if out := mustInPod(t, ns, "other", "/workload", "cat", "/data/f"); out != "from first" {
		t.Errorf("after takeover %q is read", out)
	}
}
