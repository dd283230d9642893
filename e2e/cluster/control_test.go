//go:build e2e

package cluster

import (
	"sync"
	"testing"
	"time"
)

const (
	// apiAway is how long API server and manager are away.
	apiAway = 4 * time.Minute
	// asBeforeWithin is how soon after their return, and that of a node, claims are provisioned and reclaimed.
	// Most of it is Kubernetes' own: its controller manager was seen to ask for Deployments again only 78 s later, and the
	// provisioner waits 20 s for the lease of the one that is gone. What is ours took 8 s.
	asBeforeWithin = 3 * time.Minute
)

// TestControlPlaneAway stops API server and manager for minutes: mounts go on, and fail over when the coordinator's node loses its
// power in the meantime. On return all settles: a claim is provisioned, and another's volume reclaimed.
func TestControlPlaneAway(t *testing.T) {
	ours(t)
	ns := namespace(t, "control")
	volume, pods := writers(t, ns)
	victim := coordinator(t, volume)
	apply(t, claim(ns, "old", "tak-replicated", "ReadWriteMany"))
	old := volumeOf(t, ns, "old")

	must(t, "-n", "kube-system", "scale", "deployment", "tak-replicated-manager", "--replicas=0")
	t.Cleanup(func() {
		_, _ = try("-n", "kube-system", "scale", "deployment", "tak-replicated-manager", "--replicas=2")
	})
	must(t, "-n", "kube-system", "wait", "--for=delete", "pod", "-l", "csi.replicated.tak-os.org/component=manager", "--timeout=60s")
	begin := time.Now()
	if err := setup.lab.ControlPlane("stop", "apiserver"); err != nil {
		t.Fatal(err)
	}
	start := sync.OnceFunc(func() {
		if err := setup.lab.ControlPlane("start", "apiserver"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(start)
	time.Sleep(apiAway / 3)
	if _, err := try("get", "--raw", "/readyz"); err == nil {
		t.Fatal("the API server still answers")
	}
	startNode := cut(t, victim)
	time.Sleep(apiAway * 2 / 3)
	end := time.Now()
	start()
	eventually(t, settle, "API server is back", func() error { _, err := try("get", "--raw", "/readyz"); return err })
	for n, p := range pods {
		if n != victim {
			wantSmooth(t, p, mustResults(t, ns, p), begin, end, resumeWithin)
		}
	}
	startNode()
	must(t, "-n", "kube-system", "scale", "deployment", "tak-replicated-manager", "--replicas=2")
	back := time.Now()
	must(t, "-n", ns, "delete", "pvc", "old", "--wait=false")
	apply(t, claim(ns, "new", "tak-replicated", "ReadWriteMany"))
	volumeOf(t, ns, "new")
	gone(t, old)
	if took := time.Since(back); took > asBeforeWithin {
		t.Errorf("a claim was provisioned and another reclaimed after %s, later than after %s", took, asBeforeWithin)
	}
	inSync(t, volume)
	names := readers(t, ns)
	for n, p := range pods {
		wantRecords(t, ns, names[0], "/data/"+n, mustResults(t, ns, p))
	}
}
