//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/lab"
)

const perNodeRoot = "var/lib/tak-replicated/per-node/volumes/node-cache"

// TestPerNode runs the per-node example: a Deployment with one Pod a node, each with a copy that outlives it, exclusion on one node, its
// PodDisruptionBudget, and deletion on every node, also on one that was away.
func TestPerNode(t *testing.T) {
	ns := namespace(t, "per-node")
	b, err := os.ReadFile("../../manifests/examples/per-node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryWith(strings.ReplaceAll(string(b), "namespace: default", "namespace: "+ns), "-n", ns, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = try("delete", "pv", "node-cache", "--ignore-not-found", "--wait=false") })
	pods := ready(t, ns, "app=node-cache", len(setup.nodes))
	seen := map[string]string{}
	for _, p := range pods {
		mustInPod(t, ns, p.Name, "sh", "-c", "echo "+p.Spec.NodeName+" >/cache/node")
		seen[p.Spec.NodeName] = p.Name
	}
	if len(seen) != len(setup.nodes) {
		t.Fatalf("Pods are on %v", seen)
	}
	for node, p := range seen {
		if out := mustInPod(t, ns, p, "cat", "/cache/node"); out != node {
			t.Errorf("the copy on %s says %q", node, out)
		}
	}
	node := setup.nodes[0]

	// A second Pod on a node is refused, and told who holds the copy (F2).
	second := strings.Replace(pod(ns, "second", "node-cache", node), lab.WorkloadImage, "busybox:1.37", 1)
	apply(t, strings.Replace(second, "args: [pause]", "command: [sleep, '600']", 1))
	eventually(t, time.Minute, "the second Pod refused, with the holder's name", func() error {
		out, err := try("-n", ns, "get", "events", "--field-selector", "type=Warning,involvedObject.name=second", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, seen[node]) {
			err = fmt.Errorf("events say %q", out)
		}
		return err
	})
	must(t, "-n", ns, "delete", "pod", "second")

	// The budget lets one Pod go, and no other while that is missing.
	must(t, "cordon", node)
	t.Cleanup(func() { _, _ = try("uncordon", node) })
	if err := evict(ns, seen[node]); err != nil {
		t.Fatalf("all Pods are there, and one can't be evicted: %v", err)
	}
	eventually(t, time.Minute, "the evicted Pod is missing", func() error {
		pods, err := readyPods(ns, "app=node-cache")
		if err == nil && len(pods) != len(setup.nodes)-1 {
			err = fmt.Errorf("%d are ready", len(pods))
		}
		return err
	})
	if err := evict(ns, seen[setup.nodes[1]]); err == nil || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("one Pod is missing, and the eviction of another is answered with %v", err)
	}
	must(t, "uncordon", node)

	// A Pod that comes to a node with a copy finds it (F3).
	pods = ready(t, ns, "app=node-cache", len(setup.nodes))
	for _, p := range pods {
		if p.Spec.NodeName == node {
			if out := mustInPod(t, ns, p.Name, "cat", "/cache/node"); out != node {
				t.Errorf("the next Pod on %s finds %q", node, out)
			}
		}
	}
	must(t, "-n", ns, "delete", "deployment", "node-cache", "--wait")
	eventually(t, settle, "Pods gone", func() error {
		out, err := try("-n", ns, "get", "pods", "-o", "name")
		if err == nil && out != "" {
			err = errors.New(out)
		}
		return err
	})
	perNodeDelete(t, ns)
}

// evict asks for a Pod's eviction as a drain does.
func evict(ns, pod string) error {
	_, err := tryWith(fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": %q}}`, pod, ns),
		"create", "--raw", "/api/v1/namespaces/"+ns+"/pods/"+pod+"/eviction", "-f", "-")
	return err
}

// perNodeDelete deletes the PersistentVolume while a node is away: its copy goes when it is back.
func perNodeDelete(t *testing.T, ns string) {
	if setup.lab == nil {
		return
	}
	away := setup.nodes[2]
	for _, n := range setup.nodes {
		if !onDisk(n, perNodeRoot) {
			t.Fatalf("no copy is seen on the disk of %s: the test looks at the wrong place", n)
		}
	}
	start := cut(t, away)
	must(t, "-n", ns, "delete", "pvc", "node-cache")
	must(t, "delete", "pv", "node-cache")
	copyGone := func(n string) {
		eventually(t, settle, "copy on "+n+" gone", func() error {
			if onDisk(n, perNodeRoot) {
				return errors.New("it is there")
			}
			return nil
		})
	}
	for _, n := range setup.nodes {
		if n != away {
			copyGone(n)
		}
	}
	if !onDisk(away, perNodeRoot) {
		t.Error("the copy on the node that is away is gone already: it was not away")
	}
	start()
	copyGone(away)
}
