//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tak-os.org/tak-replicated/e2e/cluster/install"
	"tak-os.org/tak-replicated/kube/api"
)

// withComponents applies manifests/ with the image that runs, and waits for the manager.
func withComponents(t *testing.T, components ...string) {
	t.Helper()
	image := strings.Fields(images(t))[0]
	if err := install.Manifests(t.Context(), setup.kubectl, image, components...); err != nil {
		t.Fatal(err)
	}
	eventually(t, settle, "manager rolled out", func() error {
		_, err := try("-n", "kube-system", "rollout", "status", "deployment/tak-replicated-manager", "--timeout=30s")
		return err
	})
}

// podRuntime has new volumes run in worker Pods until the test ends. It has to be asked for before the namespace with the volumes, so
// that the manager can still destroy them.
func podRuntime(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		withComponentsAfter(t)
		for _, kind := range []string{"rolebinding", "role"} {
			if _, err := try("-n", "kube-system", "delete", kind, "tak-replicated-manager-workers", "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
	withComponents(t, install.Registrar, install.PodRuntime)
}

// withComponentsAfter takes the component off again, when the test's own context has ended.
func withComponentsAfter(t *testing.T) {
	t.Helper()
	image := strings.Fields(images(t))[0]
	err := install.WithOverlay(image, []string{install.Registrar}, func(dir string) error {
		_, err := try("apply", "-k", dir)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// workerPods are a volume's worker Pods that are ready.
func workerPods(t *testing.T, volume string) []corev1.Pod {
	t.Helper()
	pods, err := readyPods("kube-system", "csi.replicated.tak-os.org/volume="+volume)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// askTransition asks for the replica hosts, with the generation that the volume has now.
func askTransition(t *testing.T, volume string) {
	t.Helper()
	generation := must(t, "-n", "kube-system", "get", "replicatedvolume", volume, "-o", "jsonpath={.metadata.generation}")
	must(t, "-n", "kube-system", "patch", "replicatedvolume", volume, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"transition":{"runtime":"Shared","observedGeneration":%s}}}`, generation))
}

// transition waits until the condition has a reason, and returns the volume as it is then.
func transition(t *testing.T, volume, reason string) (v api.ReplicatedVolume) {
	t.Helper()
	eventually(t, settle, "transition "+reason, func() (err error) {
		if v, err = get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume); err != nil {
			return err
		}
		c := v.Condition(api.ConditionTransition)
		if c == nil || c.Reason != reason {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	return v
}

// TestPodRuntime has a volume in worker Pods (D6): one of them is lost under load and comes back. Its transition to the replica hosts (D7) is
// refused while a Pod has it open, and then keeps nodes, lives and data.
func TestPodRuntime(t *testing.T) {
	podRuntime(t)
	ns := namespace(t, "runtime")
	volume, pods := writers(t, ns)
	before, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
	if err != nil {
		t.Fatal(err)
	}
	if before.Status.Runtime != api.RuntimePod {
		t.Fatalf("runtime %s", before.Status.Runtime)
	}
	// The Pods that could make new state have been replaced by such that can't.
	var workers []corev1.Pod
	eventually(t, settle, "three worker Pods that make no new state", func() error {
		workers = slices.DeleteFunc(workerPods(t, volume), func(p corev1.Pod) bool { return p.Labels[api.LabelBootstrap] != "" })
		if len(workers) != 3 {
			return fmt.Errorf("%d", len(workers))
		}
		return nil
	})
	inSync(t, volume)

	// One of them is the coordinator's.
	begin := time.Now()
	for _, w := range workers {
		must(t, "-n", "kube-system", "delete", "pod", w.Name, "--grace-period=0", "--force")
		eventually(t, settle, w.Name+" is back", func() error {
			for _, now := range workerPods(t, volume) {
				if now.Name == w.Name && now.UID != w.UID {
					return nil
				}
			}
			return errors.New("no other Pod of this name is ready")
		})
		inSync(t, volume)
	}
	askTransition(t, volume)
	refused := transition(t, volume, api.ReasonConsumersPresent)
	if message := refused.Condition(api.ConditionTransition).Message; !strings.Contains(message, setup.nodes[0]) {
		t.Errorf("the refusal names no node: %q", message)
	}
	if refused.Status.Runtime != api.RuntimePod || len(workerPods(t, volume)) != 3 {
		t.Errorf("after the refusal: runtime %s", refused.Status.Runtime)
	}
	end := time.Now()
	all := map[string][]result{}
	for n, p := range pods {
		all[n] = mustResults(t, ns, p)
		wantSmooth(t, p, all[n], begin, end, resumeWithin)
	}

	stop(t, ns, pods)
	askTransition(t, volume)
	now := transition(t, volume, api.ReasonDone)
	if now.Status.Runtime != api.RuntimeShared || !slices.Equal(now.Spec.Replicas, before.Spec.Replicas) {
		t.Errorf("runtime %s, replicas %+v, before %+v", now.Status.Runtime, now.Spec.Replicas, before.Spec.Replicas)
	}
	if out := must(t, "-n", "kube-system", "get", "pods", "-l", "csi.replicated.tak-os.org/volume="+volume, "-o", "name"); out != "" {
		t.Errorf("worker Pods are left: %s", out)
	}
	if out := must(t, "-n", "kube-system", "get", "secrets", "-l", "csi.replicated.tak-os.org/volume="+volume, "-o", "name"); out != "" {
		t.Errorf("credentials of worker Pods are left: %s", out)
	}
	inSync(t, volume)
	names := readers(t, ns)
	for n := range pods {
		wantRecords(t, ns, names[0], "/data/"+n, all[n])
	}
	sameDigest(t, ns, names...)
	// It is written to as before.
	mustInPod(t, ns, names[0], "/workload", "write", "/data/after", "text")
	eventually(t, time.Minute, "read on another node", func() error {
		if out := mustInPod(t, ns, names[1], "/workload", "cat", "/data/after"); out != "text" {
			return errors.New(out)
		}
		return nil
	})
}
