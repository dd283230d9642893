package ctl

import (
	"context"
	"fmt"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/dev"
)

// replaceFlags are those of ctl replace.
type replaceFlags struct {
	dir     string
	req     dev.ReplaceRequest
	timeout time.Duration
}

// replaceReplica asks the dev that runs in a folder to replace a replica, and
// waits for it.
func replaceReplica(ctx context.Context, f replaceFlags) error {
	if f.req.Replica == "" || f.req.Incarnation == 0 {
		return boot.Usagef("--replica and --incarnation name what is replaced; ctl status shows both")
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	if err := dev.AskReplace(ctx, f.dir, f.req); err != nil {
		return err
	}
	fmt.Printf("replaced: %s is of incarnation %d now; the former copy is barred and destroyed\n", f.req.Replica, f.req.Incarnation+1)
	return nil
}
