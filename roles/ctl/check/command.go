package check

import (
	"context"
	"os"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
)

// Command returns the command.
func Command() *cli.Command {
	var c Config
	var asJSON bool
	return &cli.Command{
		Name:  "check",
		Usage: "see whether this machine has what a node needs",
		Description: "Looks at the kernel, /dev/fuse, mount propagation, the clock, how long the disk takes to sync, ports and\n" +
			"DNS. Ends with 1 if something is missing. Run it as root, on the node itself.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: "/var/lib/tak-replicated", Destination: &c.Dir, Sources: boot.Env("dir"), Usage: "`FOLDER` for the node's state; if it is not there, the folder above it is measured"},
			&cli.StringFlag{Name: "kubelet-dir", Value: "/var/lib/kubelet", Destination: &c.KubeletDir, Sources: boot.Env("kubelet-dir"), Usage: "kubelet's `FOLDER`; empty leaves it out"},
			&cli.StringSliceFlag{Name: "port", Destination: &c.Ports, Sources: boot.Env("port"), Usage: "`PORT` that has to be free on this machine, once for each; none: a warning if one is taken that the manifests name"},
			&cli.StringSliceFlag{Name: "resolve", Destination: &c.Names, Sources: boot.Env("resolve"), Usage: "`NAME` that has to have an address, once for each; none: a warning if no server answers"},
			&cli.BoolFlag{Name: "json", Destination: &asJSON, Sources: boot.Env("json"), Usage: "print JSON"},
		},
		Action: func(ctx context.Context, _ *cli.Command) error {
			findings := c.Look(ctx)
			write := print
			if asJSON {
				write = printJSON
			}
			if err := write(os.Stdout, findings); err != nil {
				return err
			}
			return verdict(findings)
		},
	}
}
