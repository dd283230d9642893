package ctl

import (
	"context"
	"fmt"
	"os"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ctl/cluster"
	"tak-os.org/tak-replicated/roles/dev"
)

// replaceFlags are those of ctl replace.
type replaceFlags struct {
	dir     string
	cluster cluster.Replacement // of a cluster's volume, if it names one
	req     dev.ReplaceRequest
	timeout time.Duration
}

// replaceReplica asks a cluster's manager, or the dev that runs in a folder, to replace
// a replica, and waits for it.
func replaceReplica(ctx context.Context, f replaceFlags) error {
	if f.req.Replica == "" || f.req.Incarnation == 0 {
		return boot.Usagef("--replica and --incarnation name what is replaced; ctl status, or ctl volumes of a cluster, shows both")
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	if q := f.cluster; q.Volume != "" {
		q.Replica, q.Incarnation, q.Force = f.req.Replica, f.req.Incarnation, f.req.Force
		return cluster.Replace(ctx, q, os.Stdout)
	}
	if f.cluster.Node != "" {
		return boot.Usagef("--node is for a volume of a cluster: name it with --volume")
	}
	if err := dev.AskReplace(ctx, f.dir, f.req); err != nil {
		return err
	}
	fmt.Printf("replaced: %s is of incarnation %d now; the former copy is barred and destroyed\n", f.req.Replica, f.req.Incarnation+1)
	return nil
}
