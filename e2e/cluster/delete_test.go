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
)

// gone waits until nothing is left of a volume in the API.
func gone(t *testing.T, volume string) {
	t.Helper()
	eventually(t, settle, "nothing left of "+volume, func() error {
		var left []string
		for _, args := range [][]string{
			{"get", "pv", volume, "--ignore-not-found", "-o", "name"},
			{"-n", "kube-system", "get", "replicatedvolume", volume, "--ignore-not-found", "-o", "name"},
			{"-n", "kube-system", "get", "pvc,service,endpointslice", "-l", "csi.replicated.tak-os.org/volume=" + volume, "-o", "name"},
			{"-n", "tak-replicated-ca", "get", "secret", volume, "--ignore-not-found", "-o", "name"},
			{"-n", "tak-replicated-trust", "get", "secret", "-l", "csi.replicated.tak-os.org/volume=" + volume, "-o", "name"},
		} {
			out, err := try(args...)
			if err != nil {
				return err
			}
			left = append(left, strings.Fields(out)...)
		}
		if len(left) > 0 {
			return fmt.Errorf("%v; %s", left, reclaim(volume))
		}
		return nil
	})
}

// reclaim is what the volume's condition says about its destruction.
func reclaim(volume string) string {
	out, _ := try("-n", "kube-system", "get", "replicatedvolume", volume, "--ignore-not-found", "-o", `jsonpath={.status.conditions[?(@.type=="Reclaim")].reason}: {.status.conditions[?(@.type=="Reclaim")].message}`)
	return out
}

// backing are the local driver's volumes on a node's disk.
func backing(t *testing.T, node string) []string {
	t.Helper()
	var names []string
	found, err := filepath.Glob(filepath.Join(setup.lab.Root(number(node)), "var/lib/tak-replicated/local/volumes/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		names = append(names, filepath.Base(f))
	}
	return names
}

// used makes a claim, writes through it on every node, and ends the Pods unless they are to stay.
func used(t *testing.T, ns, class string) (volume string) {
	t.Helper()
	apply(t, claim(ns, "data", class, "ReadWriteMany"))
	volume = volumeOf(t, ns, "data")
	apply(t, pod(ns, "user", "data", ""))
	ready(t, ns, "app=user", 1)
	mustInPod(t, ns, "user", "/workload", "write", "/data/f", "text")
	return volume
}

// TestDelete deletes a claim while a Pod still uses it: it stays until the Pod is gone, then everything goes.
func TestDelete(t *testing.T) {
	ns := namespace(t, "delete")
	volume := used(t, ns, "tak-replicated")
	if setup.lab != nil && len(backing(t, setup.nodes[0])) == 0 {
		t.Fatal("no backing volume is seen on the node's disk: the test looks at the wrong place")
	}
	must(t, "-n", ns, "delete", "pvc", "data", "--wait=false")
	time.Sleep(5 * time.Second)
	if out := mustInPod(t, ns, "user", "/workload", "cat", "/data/f"); out != "text" {
		t.Errorf("the Pod that still uses the claim reads %q", out)
	}
	must(t, "-n", ns, "delete", "pod", "user")
	gone(t, volume)
}

// TestDeleteWithNodeAway deletes a volume while one of its nodes is away: the condition names it, the others' copies go, and the rest
// when the node is back.
func TestDeleteWithNodeAway(t *testing.T) {
	ours(t)
	ns := namespace(t, "away")
	volume := used(t, ns, "tak-replicated")
	must(t, "-n", ns, "delete", "pod", "user")
	victim := setup.nodes[2]
	start := cut(t, victim)
	must(t, "-n", ns, "delete", "pvc", "data", "--wait=false")
	eventually(t, settle, "the condition names the node that is away", func() error {
		out := reclaim(volume)
		if !strings.Contains(out, victim) {
			return errors.New(out)
		}
		return nil
	})
	start()
	gone(t, volume)
	eventually(t, settle, "the node's copy is gone", func() error {
		for _, n := range backing(t, victim) {
			return errors.New(n + " is left")
		}
		return nil
	})
}

// TestRetain keeps a volume whose claim is gone, binds it again by its handle, and destroys it by deleting its PersistentVolume with
// reclaim policy Delete. Another, which no PersistentVolume names any more, is destroyed by the operator's command.
func TestRetain(t *testing.T) {
	ns := namespace(t, "retain")
	apply(t, class("e2e-retain", 3, "Retain"))
	t.Cleanup(func() { _, _ = try("delete", "storageclass", "e2e-retain") })
	volume := used(t, ns, "e2e-retain")
	must(t, "-n", ns, "delete", "pod", "user")
	must(t, "-n", ns, "delete", "pvc", "data")
	eventually(t, settle, "volume released", func() error {
		out, err := try("get", "pv", volume, "-o", "jsonpath={.status.phase}")
		if err == nil && out != "Released" {
			err = errors.New(out)
		}
		return err
	})
	// Another claim takes the volume over: its owner's reference is taken off, and the new claim names it.
	must(t, "patch", "pv", volume, "--type=merge", "-p", `{"spec":{"claimRef":null}}`)
	again := strings.Replace(claim(ns, "again", "e2e-retain", "ReadWriteMany"), "spec:\n", "spec:\n  volumeName: "+volume+"\n", 1)
	apply(t, again+pod(ns, "reader", "again", ""))
	ready(t, ns, "app=reader", 1)
	if out := mustInPod(t, ns, "reader", "/workload", "cat", "/data/f"); out != "text" {
		t.Errorf("the retained volume has %q", out)
	}
	must(t, "patch", "pv", volume, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	must(t, "-n", ns, "delete", "pod", "reader")
	must(t, "-n", ns, "delete", "pvc", "again")
	gone(t, volume)

	apply(t, claim(ns, "kept", "e2e-retain", "ReadWriteMany"))
	volume = volumeOf(t, ns, "kept")
	must(t, "-n", ns, "delete", "pvc", "kept")
	if out, err := ctl("destroy-retained", volume, "--confirm", volume); err == nil {
		t.Errorf("a PersistentVolume still names the volume, and it is destroyed: %s", out)
	}
	must(t, "delete", "pv", volume)
	if out := must(t, "-n", "kube-system", "get", "replicatedvolume", volume, "-o", "jsonpath={.metadata.deletionTimestamp}"); out != "" {
		t.Errorf("the volume is destroyed with its PersistentVolume, which was to retain it")
	}
	out, err := ctl("destroy-retained", volume, "--confirm", volume)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out)
	gone(t, volume)
}

// onDisk tells whether a path is on a node's disk.
func onDisk(node, path string) bool {
	_, err := os.Lstat(filepath.Join(setup.lab.Root(number(node)), path))
	return err == nil
}
