//go:build e2e

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/install"
)

// TestRollingUpdate updates every role to an image of another digest, while on each node a process holds descriptors, one of them of
// an unlinked file, and a lock, and another writes. None of them sees an error, and there is a quorum all the time.
func TestRollingUpdate(t *testing.T) {
	ours(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := install.Load(ctx, setup.lab, "second"); err != nil {
		t.Fatal(err)
	}
	ns := namespace(t, "rolling")
	volume, pods := writers(t, ns)
	load := []string{}
	for _, n := range setup.nodes {
		apply(t, pod(ns, "holder-"+n, "data", n, "hold", "/data/held-"+n))
		load = append(load, "holder-"+n, pods[n])
	}
	running(t, ns, load...)

	before := images(t)
	begin := time.Now()
	if err := install.Manifests(ctx, setup.kubectl, install.ProductImage("second"), install.Registrar); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"daemonset/tak-replicated-local", "daemonset/tak-replicated-per-node", "daemonset/tak-replicated-node", "daemonset/tak-replicated-mount-owner", "deployment/tak-replicated-manager"} {
		eventually(t, 5*time.Minute, w+" updated", func() error {
			_, err := try("-n", "kube-system", "rollout", "status", w, "--timeout=30s")
			return err
		})
	}
	inSync(t, volume)
	end := time.Now()
	if after := images(t); !strings.Contains(after, "second") || strings.Contains(after, "first") || after == before {
		t.Fatalf("images before %q, after %q", before, after)
	}
	for _, p := range load {
		wantSmooth(t, p, mustResults(t, ns, p), begin, end, resumeWithin)
	}
	// The same processes: no container was restarted.
	if out := must(t, "-n", ns, "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}"); strings.Trim(out, "0 ") != "" {
		t.Errorf("restarts of the workload: %s", out)
	}
	names := readers(t, ns)
	for n, p := range pods {
		wantRecords(t, ns, names[0], "/data/"+n, mustResults(t, ns, p))
	}
}

// images are the product's images that the Pods of the driver's namespace run.
func images(t *testing.T) string {
	t.Helper()
	return must(t, "-n", "kube-system", "get", "pods", "-l", "csi.replicated.tak-os.org/component", "-o", "jsonpath={.items[*].spec.containers[*].image}")
}
