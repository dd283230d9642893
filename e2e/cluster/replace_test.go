//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/lab"
	"tak-os.org/tak-replicated/kube/api"
)

// ctl runs the operator's command in the manager's Pod.
func ctl(args ...string) (string, error) {
	return try(append([]string{"-n", "kube-system", "exec", "deploy/tak-replicated-manager", "-c", "manager", "--", "/usr/bin/tak-replicated", "ctl"}, args...)...)
}

// replaced asks for a replacement, and waits until nothing of the former life is left.
func replaced(t *testing.T, volume string, index int32, life int64, request string) api.ReplicatedVolume {
	t.Helper()
	must(t, "-n", "kube-system", "patch", "replicatedvolume", volume, "--type=merge", "-p", request)
	var now api.ReplicatedVolume
	eventually(t, settle, fmt.Sprintf("replica %d in its life %d", index, life), func() (err error) {
		now, err = get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
		if err != nil {
			return err
		}
		r, c := now.Replica(index), now.Condition(api.ConditionReplacement)
		if r.Incarnation != life || !now.Is(api.ConditionReplacement) || now.Status.Phase != api.PhaseReady || len(now.Spec.Retired) > 0 {
			return fmt.Errorf("replica %+v, retired %+v, phase %s, condition %+v", *r, now.Spec.Retired, now.Status.Phase, c)
		}
		return nil
	})
	return now
}

// hostPod is the Pod with a node's replica host.
func hostPod(t *testing.T, node string) string {
	t.Helper()
	return must(t, "-n", "kube-system", "get", "pod", "-l", "csi.replicated.tak-os.org/component=node", "--field-selector", "spec.nodeName="+node, "-o", "jsonpath={.items[0].metadata.name}")
}

// TestReplaceLost takes the backing volume away under a replica: ReplicaStateLost, the volume is degraded, and writers go on. It stays so until
// an operator decides; then the replica begins anew on the same node, there being no other, and has what the others have.
func TestReplaceLost(t *testing.T) {
	ours(t)
	ns := namespace(t, "lost")
	volume, pods := writers(t, ns)
	victim := setup.nodes[(number(coordinator(t, volume)))%len(setup.nodes)]
	v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
	if err != nil {
		t.Fatal(err)
	}
	var index int32
	for _, r := range v.Spec.Replicas {
		if r.Node == victim {
			index = r.Index
		}
	}
	begin := time.Now()
	lost := 0
	for _, name := range backing(t, victim) {
		dir := filepath.Join(setup.lab.Root(number(victim)), "var/lib/tak-replicated/local/volumes", name, "replica")
		if !strings.Contains(name, strings.TrimPrefix(volume, "pvc-")) && len(backing(t, victim)) > 1 {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		lost++
	}
	if lost != 1 {
		t.Fatalf("%d backing volumes were emptied, of %v", lost, backing(t, victim))
	}
	must(t, "-n", "kube-system", "delete", "pod", hostPod(t, victim))
	eventually(t, settle, "the loss is known", func() error {
		now, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
		if err == nil && (!now.Is(api.ConditionStateLost) || now.Status.Phase != api.PhaseDegraded || len(now.Status.KnownLoss) != 1) {
			err = fmt.Errorf("phase %s, conditions %+v", now.Status.Phase, now.Status.Conditions)
		}
		return err
	})
	now := replaced(t, volume, index, 2, fmt.Sprintf(`{"spec":{"replacement":{"replica":%d,"incarnation":1}}}`, index))
	if now.Is(api.ConditionStateLost) || len(now.Status.KnownLoss) != 1 {
		t.Errorf("known loss %+v", now.Status.KnownLoss)
	}
	end := time.Now()
	for _, p := range pods {
		wantSmooth(t, p, mustResults(t, ns, p), begin, end, resumeWithin)
	}
	names := readers(t, ns)
	all := map[string][]result{}
	for n, p := range pods {
		all[n] = mustResults(t, ns, p)
	}
	for n := range pods {
		wantRecords(t, ns, names[0], "/data/"+n, all[n])
	}
	stop(t, ns, pods)
	sameDigest(t, ns, names...)
	t.Log(must(t, "-n", "kube-system", "get", "pvc", "-l", "csi.replicated.tak-os.org/volume="+volume))
}

// moveWithin is how long writers pause at most when the only copy of a volume moves: all of the cluster's nodes have to learn where it is.
const moveWithin = 10 * time.Second

// TestDrain moves the only copy of a volume off a node that is cordoned, while a Pod on another node writes.
func TestDrain(t *testing.T) {
	ours(t)
	ns := namespace(t, "drain")
	apply(t, class("e2e-one", 1, "Delete"))
	t.Cleanup(func() { _, _ = try("delete", "storageclass", "e2e-one") })
	apply(t, claim(ns, "data", "e2e-one", "ReadWriteMany"))
	volume := volumeOf(t, ns, "data")
	from := coordinator(t, volume)
	user := setup.nodes[(number(from))%len(setup.nodes)]
	apply(t, pod(ns, "writer", "data", user, "append", "/data/f"))
	running(t, ns, "writer")
	must(t, "cordon", from)
	t.Cleanup(func() { _, _ = try("uncordon", from) })
	begin := time.Now()
	out, err := ctl("drain", from)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out)
	end := time.Now()
	wantSmooth(t, "writer", mustResults(t, ns, "writer"), begin, end, moveWithin)
	eventually(t, settle, "the former copy is gone", func() error {
		now, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
		if err == nil && (now.Replica(1).Node == from || len(now.Spec.Retired) > 0 || now.Status.Phase != api.PhaseReady) {
			err = fmt.Errorf("replica %+v, retired %+v", now.Replica(1), now.Spec.Retired)
		}
		if err == nil && len(backing(t, from)) > 0 {
			err = errors.New("its folder is left")
		}
		return err
	})
	apply(t, pod(ns, "reader", "data", user))
	ready(t, ns, "app=reader", 1)
	wantRecords(t, ns, "reader", "/data/f", mustResults(t, ns, "writer"))
}

// TestNodeDeleted loses a node of a volume with two copies for good: its Node object is deleted. The survivor goes on alone by the operator's
// decision, a new copy joins it on the third node, and the claim of the lost copy goes without its host.
func TestNodeDeleted(t *testing.T) {
	ours(t)
	ns := namespace(t, "deleted")
	apply(t, class("e2e-two", 2, "Delete"))
	t.Cleanup(func() { _, _ = try("delete", "storageclass", "e2e-two") })
	volume := used(t, ns, "e2e-two")
	must(t, "-n", ns, "delete", "pod", "user")
	v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
	if err != nil {
		t.Fatal(err)
	}
	lost, stays := *v.Replica(1), *v.Replica(2)
	start := cut(t, lost.Node)
	must(t, "delete", "node", lost.Node)
	now := replaced(t, volume, 1, 2, `{"spec":{"replacement":{"replica":1,"incarnation":1,"force":true}}}`)
	if s := now.Replica(2); s.Node != stays.Node || s.Incarnation != 2 || now.Replica(1).Node == lost.Node {
		t.Errorf("replicas %+v", now.Spec.Replicas)
	}
	if out := must(t, "-n", "kube-system", "get", "pvc", volume+"-r1", "--ignore-not-found", "-o", "name"); out != "" {
		t.Errorf("the lost copy's claim is left: %s", out)
	}
	apply(t, pod(ns, "reader", "data", stays.Node))
	ready(t, ns, "app=reader", 1)
	if out := mustInPod(t, ns, "reader", "/workload", "cat", "/data/f"); out != "text" {
		t.Errorf("the survivor has %q", out)
	}
	start()
	eventually(t, settle, "the node that came back destroys its copy", func() error {
		for _, n := range backing(t, lost.Node) {
			return errors.New(n + " is left")
		}
		return nil
	})
}

// TestNodeOfThreeDeleted loses a node of a volume with three copies for good, with a fourth node in the cluster: the Node object is deleted, the operator
// asks for a replacement, and the copy is made anew on the fourth node, its claim and all, while writers go on.
func TestNodeOfThreeDeleted(t *testing.T) {
	ours(t)
	fourth := addNode(t)
	ns := namespace(t, "of-three")
	volume, pods := writers(t, ns)
	v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
	if err != nil {
		t.Fatal(err)
	}
	var lost api.ReplicaSpec
	for _, r := range v.Spec.Replicas {
		if r.Node != fourth && r.Node != setup.nodes[0] { // the first is the way to Services from outside
			lost = r
		}
	}
	begin := time.Now()
	start := cut(t, lost.Node)
	must(t, "delete", "node", lost.Node)
	now := replaced(t, volume, lost.Index, lost.Incarnation+1, fmt.Sprintf(`{"spec":{"replacement":{"replica":%d,"incarnation":%d}}}`, lost.Index, lost.Incarnation))
	if n := now.Replica(lost.Index).Node; n == lost.Node {
		t.Errorf("the replica is still on %s", n)
	}
	if out := must(t, "-n", "kube-system", "get", "pvc", volume+fmt.Sprintf("-r%d", lost.Index), "--ignore-not-found", "-o", "name"); out != "" {
		t.Errorf("the lost copy's claim is left: %s", out)
	}
	end := time.Now()
	all := map[string][]result{}
	for n, p := range pods {
		if n != lost.Node {
			all[n] = mustResults(t, ns, p)
			wantSmooth(t, p, all[n], begin, end, resumeWithin)
		}
	}
	start()
	eventually(t, settle, "the node that came back destroys its copy", func() error {
		for _, n := range backing(t, lost.Node) {
			return errors.New(n + " is left")
		}
		return nil
	})
	stop(t, ns, pods)
	apply(t, pod(ns, "reader", "data", lost.Node))
	ready(t, ns, "app=reader", 1)
	for n := range all {
		wantRecords(t, ns, "reader", "/data/"+n, all[n])
	}
}

// addNode boots one more node with the product's image, and takes it away when the test ends.
func addNode(t *testing.T) (name string) {
	t.Helper()
	n, err := setup.lab.Add()
	if err != nil {
		t.Fatal(err)
	}
	name = lab.NodeName(n)
	t.Cleanup(func() {
		// What is on its disk only it can give back.
		eventually(t, settle, "no volume is left on "+name, func() error {
			out, err := try("get", "pv", "-o", "name")
			if err == nil && out != "" {
				err = errors.New(out)
			}
			return err
		})
		if err := setup.lab.Remove(n); err != nil {
			t.Error(err)
		}
		if _, err := try("delete", "node", name); err != nil {
			t.Error(err)
		}
	})
	eventually(t, settle, name+" is Ready", func() error {
		out, err := try("get", "node", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && out != "True" {
			err = errors.New(out)
		}
		return err
	})
	if err := setup.lab.CopyImage(t.Context(), strings.Fields(images(t))[0], 1, n); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"node", "mount-owner", "local"} {
		eventually(t, settle, what+" runs on "+name, func() error {
			pods, err := readyPods("kube-system", "csi.replicated.tak-os.org/component="+what)
			if err != nil {
				return err
			}
			for _, p := range pods {
				if p.Spec.NodeName == name {
					return nil
				}
			}
			return errors.New(whyNot("kube-system"))
		})
	}
	return name
}
