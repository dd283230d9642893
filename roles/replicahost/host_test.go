package replicahost

import (
	"os"
	"path/filepath"
	"testing"

	"tak-os.org/tak-replicated/kube/api"
)

// TestLife is a volume's whole life on three nodes: served, a host killed and
// restarted with and without the API, released and acknowledged (D8, D11, D12).
func TestLife(t *testing.T) {
	l := newLab(t, 3)
	v := l.volume("pvc-life", "node-1", "node-2", "node-3")
	for _, n := range l.nodes {
		n.start()
	}
	l.serving(v)
	before := l.status(v.Name, 1, "initialised", func(st api.ReplicaStatus) bool { return st.Initialized })
	if before.PVCUID == "" || before.PV != "pv-pvc-life-r1" || before.Node != "node-1" {
		t.Errorf("status %+v", before)
	}
	claim, err := l.kube.Claim(t.Context(), api.DefaultNamespace, "pvc-life-r1")
	must(t, err)
	if !claim.HasFinalizer(api.FinalizerBackingUse) {
		t.Error("the claim has no finalizer")
	}
	ends, err := l.kube.Endpoints(t.Context(), v.Name)
	must(t, err)
	if len(ends) != 3 || !ends[0].ByHost || len(ends[0].Addrs) != 1 {
		t.Errorf("endpoints %+v", ends)
	}
	for _, f := range []string{"replicas/pvc-life-r1.1.json", "trust/pvc-life-r1.1/server.key"} {
		fi, err := os.Stat(filepath.Join(l.nodes["node-1"].cfg.State, f))
		must(t, err)
		if fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f, fi.Mode())
		}
	}

	// A host is killed and comes back by itself, the API being away.
	was, err := l.ask(v.Name, 2)
	must(t, err)
	l.nodes["node-1"].kill()
	l.nodes["node-2"].kill()
	l.api.StopAPI()
	l.nodes["node-1"].start()
	l.nodes["node-2"].start()
	must(t, l.api.StartAPI())
	l.eventually("the same replica serves again", func() error {
		now, err := l.ask(v.Name, 2)
		if err == nil && now.PID == was.PID {
			t.Error("the killed process answers")
		}
		return err
	})
	l.serving(v)

	// Release, replica by replica, as the manager asks for it.
	l.update(v.Name, func(v *api.ReplicatedVolume) {
		for i := range v.Spec.Replicas {
			v.Spec.Replicas[i].State = api.StateReleased
		}
	})
	for _, r := range v.Spec.Replicas {
		st := l.status(v.Name, r.Index, "is released", func(st api.ReplicaStatus) bool { return st.Released != nil })
		claim, err := l.kube.Claim(t.Context(), api.DefaultNamespace, api.ReplicaName(v.Name, r.Index))
		must(t, err)
		if a := st.Released; a.PVCUID != claim.UID || a.PV != claim.PV || a.Node != r.Node || a.Incarnation != 1 {
			t.Errorf("acknowledged %+v", a)
		}
		if !claim.HasFinalizer(api.FinalizerBackingUse) {
			t.Error("the host removed the finalizer, which is the manager's to do")
		}
		held, err := l.nodes[r.Node].driver.List(t.Context())
		if err != nil || len(held) != 0 {
			t.Errorf("node %s still holds %+v, error %v", r.Node, held, err)
		}
	}
	// The acknowledgement is repeated by a host that restarts.
	l.nodes["node-3"].kill()
	l.nodes["node-3"].start()
	l.status(v.Name, 3, "is still released", func(st api.ReplicaStatus) bool { return st.Phase == api.ReplicaReleased && st.Released != nil })
}
