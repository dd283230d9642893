//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/install"
	"tak-os.org/tak-replicated/kube/api"
)

// TestRollingUpdate updates every role to an image of another digest, while on each node a process holds descriptors, one of them of
// an unlinked file, and a lock, and another writes; then the frontend and the replica host of the coordinator's node are killed, and their Pod is
// deleted. None of the processes sees an error, and there is a quorum at every second of the update.
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

	quorum := watchQuorum(t, volume, len(setup.nodes))
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
	quorum.wantQuorum(t, begin, end, smooth(t, ns, load, begin, end)...)
	restartParts(t, ns, volume, load, quorum)
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

// smooth asserts that workloads went on, and returns their rounds.
func smooth(t *testing.T, ns string, load []string, begin, end time.Time) (rounds [][]result) {
	t.Helper()
	for _, p := range load {
		all := mustResults(t, ns, p)
		wantSmooth(t, p, all, begin, end, resumeWithin)
		rounds = append(rounds, all)
	}
	return rounds
}

// restartParts ends the frontend and the replica host of the coordinator's node, each on its own and then both with their Pod, while load runs.
func restartParts(t *testing.T, ns, volume string, load []string, quorum *lookout) {
	for _, c := range []struct {
		name string
		role string // whose process is killed, and the name of its container; "" deletes the Pod
	}{{"frontend-killed", "node"}, {"replica-host-killed", "replica-host"}, {"pod-deleted", ""}} {
		t.Run(c.name, func(t *testing.T) {
			node := coordinator(t, volume)
			was := podOn(t, api.ComponentNode, node)
			begin := time.Now()
			if c.role == "" {
				must(t, "-n", "kube-system", "delete", "pod", was.Name)
			} else {
				for _, p := range processes(t, node, c.role) {
					inNode(t, node, "kill -KILL "+p[0])
				}
			}
			eventually(t, settle, "it is back on "+node, func() error {
				now := podOn(t, api.ComponentNode, node)
				if c.role == "" && now.UID == was.UID || c.role != "" && restarts(now, c.role) != restarts(was, c.role)+1 {
					return fmt.Errorf("%s: %+v", now.Name, now.Status.ContainerStatuses)
				}
				return nil
			})
			inSync(t, volume)
			end := time.Now()
			quorum.wantQuorum(t, begin, end, smooth(t, ns, load, begin, end)...)
			apply(t, pod(ns, c.name, "data", node)) // the frontend answers the kubelet
			ready(t, ns, "app="+c.name, 1)
		})
	}
}
