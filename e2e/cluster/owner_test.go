//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// restartWithin is how soon an application goes on whose mount's container was killed as a whole: the kubelet has to notice, and to start it.
const restartWithin = 10 * time.Second

// TestOwnerKilled kills the process that serves a node's mounts, and then everything in its container, as the kernel does when that has no memory
// left, while processes on the node write, and hold descriptors, one of them of an unlinked file, and a lock. None of them sees an error: the
// keeper, in its own container, has what the next serving process needs.
func TestOwnerKilled(t *testing.T) {
	ours(t)
	ns := namespace(t, "owner")
	_, pods := writers(t, ns)
	victim := setup.nodes[1]
	apply(t, pod(ns, "holder", "data", victim, "hold", "/data/held"))
	load := []string{"holder", pods[victim]}
	running(t, ns, load...)
	was := ownerPod(t, victim)
	for _, c := range []struct {
		what   string
		within time.Duration
		all    bool
	}{{"serving process", resumeWithin, false}, {"container", restartWithin, true}} {
		begin := time.Now()
		killed := killServing(t, victim, c.all)
		t.Logf("killed the %s: processes %v", c.what, killed)
		if want := map[bool]int{false: 1, true: 2}[c.all]; len(killed) != want {
			t.Fatalf("these are not %d", want)
		}
		eventually(t, settle, "the volume is served again", func() error {
			if err := wroteSince(ns, begin.Add(time.Second), load...); err != nil {
				return err
			}
			if there := serving(t, victim, true); len(there) != 2 || slices.Equal(there, killed) {
				return fmt.Errorf("serving processes %v", there)
			}
			return nil
		})
		end := time.Now()
		for _, p := range load {
			wantSmooth(t, p, mustResults(t, ns, p), begin, end, c.within)
		}
	}
	now := ownerPod(t, victim)
	if now.UID != was.UID || restarts(now, "keeper") != restarts(was, "keeper") || restarts(now, "mount-owner") != restarts(was, "mount-owner")+1 {
		t.Errorf("the mount owner was %s, and is %s with statuses %+v", was.UID, now.UID, now.Status.ContainerStatuses)
	}
	names := readers(t, ns)
	wantRecords(t, ns, names[0], "/data/"+victim, mustResults(t, ns, pods[victim]))
}

// ownerPod is the Pod of a node's mount owner.
func ownerPod(t *testing.T, node string) corev1.Pod { return podOn(t, "mount-owner", node) }

// podOn is the ready Pod of one of the product's components on a node.
func podOn(t *testing.T, component, node string) (p corev1.Pod) {
	t.Helper()
	eventually(t, settle, component+" of "+node, func() error {
		pods, err := readyPods("kube-system", "csi.replicated.tak-os.org/component="+component)
		if err != nil {
			return err
		}
		for _, p = range pods {
			if p.Spec.NodeName == node {
				return nil
			}
		}
		return fmt.Errorf("none of %d is there", len(pods))
	})
	return p
}

func restarts(p corev1.Pod, container string) int32 {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == container {
			return c.RestartCount
		}
	}
	return -1
}

// killServing kills the serving process of a node, with all the supervisor as well: everything in its container, at once.
func killServing(t *testing.T, node string, all bool) []string {
	t.Helper()
	pids := serving(t, node, all)
	inNode(t, node, "kill -KILL "+strings.Join(pids, " "))
	return pids
}

// serving are the processes of a node that serve its mounts, by their numbers there; with all also the supervisor.
func serving(t *testing.T, node string, all bool) (pids []string) {
	t.Helper()
	for _, w := range processes(t, node, "mount-owner", "serve") {
		if all || !slices.Contains(w, "--restart") {
			pids = append(pids, w[0])
		}
	}
	return pids
}

// processes are those of a node that run the product's program with arguments that begin so: their number there, and their words.
func processes(t *testing.T, node string, args ...string) (found [][]string) {
	t.Helper()
	out := inNode(t, node, `for f in /proc/[0-9]*; do echo "${f#/proc/} $(tr '\0' ' ' <$f/cmdline)"; done 2>/dev/null`)
	for line := range strings.Lines(out) {
		w := strings.Fields(line)
		if len(w) >= 2+len(args) && strings.HasSuffix(w[1], "tak-replicated") && slices.Equal(w[2:2+len(args)], args) {
			found = append(found, w)
		}
	}
	return found
}

// inNode runs a script in a node's namespaces.
func inNode(t *testing.T, node, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, err := setup.lab.Exec(ctx, number(node), "bash", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}
