package cluster

import (
	"context"
	"fmt"
	"io"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

var drivers = []string{api.DriverReplicated, api.DriverLocal, api.DriverPerNode}

// uninstallCheck lists what depends on the drivers, in the order in which it has to go.
func uninstallCheck(ctx context.Context, k *kube.Client, w io.Writer) error {
	pvs, err := k.PVsOf(ctx, drivers...)
	if err != nil {
		return err
	}
	all, err := k.Volumes(ctx)
	if err != nil && !kube.NotFound(err) && !kube.NotServed(err) { // no such kind: nothing of it is there
		return err
	}
	classes, err := k.Classes(ctx)
	if err != nil {
		return err
	}
	n := 0
	say := func(format string, args ...any) {
		n++
		fmt.Fprintf(w, format+"\n", args...)
	}
	for _, pv := range pvs {
		if pv.Driver != api.DriverLocal || pv.ClaimNamespace != k.Namespace() { // those are copies of volumes
			say("PersistentVolume %s (%s): claim %s/%s, %s, reclaim policy %s", pv.Name, pv.Driver, pv.ClaimNamespace, pv.ClaimName, pv.Phase, pv.Reclaim)
		}
	}
	for i := range all {
		v := &all[i]
		note := "its copies go when it is destroyed"
		if v.Spec.Reclaim == nil && !named(pvs, v.Name) {
			note = "retained: bind it again, or destroy it with ctl destroy-retained"
		}
		say("ReplicatedVolume %s: %s; %s", v.Name, v.Status.Phase, note)
	}
	for _, pv := range pvs {
		if pv.Driver == api.DriverLocal && pv.ClaimNamespace == k.Namespace() {
			say("PersistentVolume %s (%s): copy %s, %s", pv.Name, pv.Driver, pv.ClaimName, pv.Phase)
		}
	}
	for _, c := range classes {
		for _, d := range drivers {
			if c.Provisioner == d {
				fmt.Fprintf(w, "StorageClass %s (%s): goes with the installation; nothing new can be provisioned then\n", c.Name, d)
			}
		}
	}
	if n > 0 {
		return fmt.Errorf("%d objects still depend on the drivers; remove them first, while the drivers run", n)
	}
	fmt.Fprintln(w, "no volume depends on the drivers")
	return nil
}

func named(pvs []kube.PV, volume string) bool {
	for _, pv := range pvs {
		if pv.Driver == api.DriverReplicated && pv.Handle == volume {
			return true
		}
	}
	return false
}
