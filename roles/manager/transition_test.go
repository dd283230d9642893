package manager

import (
	"slices"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

// podWorld has a volume of the pod runtime; its Pods answer once they are there.
func podVolume(t *testing.T) (*world, *manager, *api.ReplicatedVolume) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	m.cfg.Runtime = runtimePod
	w.pods = true
	v, _ := w.provision(m, 2)
	return w, m, v
}

func transitionReason(reason string) func(*api.ReplicatedVolume) bool {
	return func(v *api.ReplicatedVolume) bool {
		c := v.Condition(api.ConditionTransition)
		return c != nil && c.Reason == reason
	}
}

func (w *world) askTransition(v *api.ReplicatedVolume, to api.Runtime, observed int64) {
	w.t.Helper()
	v, err := w.k.Volume(w.t.Context(), v.Name)
	w.must(err)
	if observed == 0 {
		observed = v.Generation
	}
	v.Spec.Transition = &api.TransitionRequest{Runtime: to, ObservedGeneration: observed}
	_, err = w.k.UpdateVolume(w.t.Context(), v)
	w.must(err)
}

// TestTransition takes a volume from Pods to the hosts (D6, D7): refused as long as a condition is
// not met, then accepted, and never back.
func TestTransition(t *testing.T) {
	w, m, v := podVolume(t)
	pods := []string{"pod/" + v.Name + "-r1", "pod/" + v.Name + "-r2"}
	has := func(want bool) {
		t.Helper()
		for _, p := range pods {
			if slices.Contains(w.c.Left(v.Name), p) != want {
				t.Errorf("%s is there: %v", p, !want)
			}
		}
	}
	has(true)
	if v.Status.Runtime != api.RuntimePod || slices.ContainsFunc(w.c.Left(v.Name), func(s string) bool { return s == "secret/kube-system/"+v.Name+"-client" }) {
		t.Errorf("runtime %s, left %v", v.Status.Runtime, w.c.Left(v.Name))
	}
	// Once provisioned, no Pod may initialise an empty folder any more.
	w.settle(m, v.Name, func(*api.ReplicatedVolume) bool {
		all, err := w.k.WorkerPods(t.Context(), v.Name)
		w.must(err)
		return len(all) == 2 && all[0].Labels[api.LabelBootstrap] == "" && all[1].Labels[api.LabelBootstrap] == ""
	})

	w.askTransition(v, api.RuntimeShared, 17)
	w.settle(m, v.Name, transitionReason(api.ReasonGenerationStale))
	w.workers.open(v.Name, "n1:/mnt")
	w.askTransition(v, api.RuntimeShared, 0)
	now := w.settle(m, v.Name, transitionReason(api.ReasonConsumersPresent))
	if c := now.Condition(api.ConditionTransition); !strings.Contains(c.Message, "n1:/mnt") {
		t.Errorf("condition %+v", c)
	}
	w.workers.close(v.Name, "n1:/mnt")
	w.c.SetNode(kubetest.Node{Name: v.Spec.Replicas[0].Node, NotReady: true})
	now = w.settle(m, v.Name, transitionReason(api.ReasonNodeNotReady))
	if c := now.Condition(api.ConditionTransition); !strings.Contains(c.Message, v.Spec.Replicas[0].Node) {
		t.Errorf("condition %+v", c)
	}
	has(true)
	w.c.SetNode(kubetest.Node{Name: v.Spec.Replicas[0].Node})
	claims := claimsLeft(w.c.Left(v.Name))

	now = w.settle(m, v.Name, transitionReason(api.ReasonDone))
	has(false)
	if now.Status.Runtime != api.RuntimeShared || now.Spec.Runtime != api.RuntimePod || !now.Is(api.ConditionTransition) {
		t.Errorf("status %+v", now.Status)
	}
	if after := claimsLeft(w.c.Left(v.Name)); !slices.Equal(claims, after) {
		t.Errorf("claims were %v, are %v", claims, after)
	}
	services, err := w.k.Services(t.Context(), v.Name)
	w.must(err)
	for _, s := range services {
		if s.Selects {
			t.Errorf("service %s still selects pods", s.Name)
		}
	}
	w.askTransition(v, api.RuntimePod, 0)
	w.settle(m, v.Name, transitionReason(api.ReasonOneWay))
	has(false)

	now, err = w.k.Volume(t.Context(), v.Name)
	w.must(err)
	w.must(m.requestReclaim(t.Context(), now, api.ReclaimDeleteVolume))
	w.settle(m, v.Name, nil)
	if left := w.c.Left(v.Name); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestPodVolumeIsDestroyed waits for the worker Pods before a claim goes.
func TestPodVolumeIsDestroyed(t *testing.T) {
	w, m, v := podVolume(t)
	w.must(m.requestReclaim(t.Context(), v, api.ReclaimDeleteVolume))
	w.settle(m, v.Name, nil)
	if left := w.c.Left(v.Name); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
