// Package roles lists the program's roles.
package roles

import (
	"context"
	"io"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/fusefs/kernel"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ctl"
	"tak-os.org/tak-replicated/roles/dev"
	"tak-os.org/tak-replicated/roles/local"
	"tak-os.org/tak-replicated/roles/manager"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/node"
	"tak-os.org/tak-replicated/roles/pernode"
	"tak-os.org/tak-replicated/roles/registrar"
	"tak-os.org/tak-replicated/roles/replicahost"
	"tak-os.org/tak-replicated/roles/worker"
)

// Commands returns every role's command.
func Commands() []*cli.Command {
	return []*cli.Command{
		dev.Command(),
		worker.Command(),
		mountowner.Command(),
		manager.Command(),
		node.Command(),
		replicahost.Command(),
		local.Command(),
		pernode.Command(),
		registrar.Command(),
		ctl.Command(),
	}
}

// Main runs the role that args name and returns the exit code.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	return boot.Main(ctx, Commands(), args, out, errOut)
}

// Tune prepares the process if args name a role that moves data; it may start the
// program anew, in the same process. Without it the role works all the same.
func Tune(args []string) {
	if len(args) > 2 && args[1] == "mount-owner" && (args[2] == "keep" || slices.Contains(args, "--restart")) {
		return // they only hold, and watch: memory that is not needed is the serving process's
	}
	if len(args) > 1 && slices.Contains([]string{"dev", "worker", "mount-owner", "replica-host"}, args[1]) {
		_ = boot.Tune() // a sandbox may forbid it
	}
}

// Shim runs the program that this one stands in for under another name: it
// answers to fusermount3, so that an image needs no other package.
func Shim(args []string) (code int, ok bool) {
	if len(args) == 0 || filepath.Base(args[0]) != "fusermount3" {
		return 0, false
	}
	return kernel.Fusermount(args[1:]), true
}
