package pernode

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
)

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "per-node",
		Usage: "serve static volumes that are a folder of their own on each node (per-node.liken.sh)",
		Description: "Serves CSI's identity and node services. A volume's handle names one folder on each node that has mounted\n" +
			"it; on a node one Pod at a time has it. A copy outlives its Pod, and is removed when its PersistentVolume\n" +
			"is gone. Nothing new is mounted while the API server does not answer.\n" +
			"Prints one line with \"ready\" when it serves.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "node-name", Destination: &c.Node, Sources: boot.Env("node-name"), Usage: "`NAME` of this node in Kubernetes"},
			&cli.StringFlag{Name: "root", Value: "/var/lib/tak-replicated/per-node", Destination: &c.Root, Sources: boot.Env("root"), Usage: "`FOLDER` of copies and records"},
			&cli.StringFlag{Name: "socket", Value: "/var/lib/kubelet/plugins/per-node.liken.sh/csi.sock", Destination: &c.Socket, Sources: boot.Env("socket"), Usage: "`PATH` of the CSI socket"},
			&cli.StringFlag{Name: "kubelet-dir", Value: "/var/lib/kubelet", Destination: &c.KubeletDir, Sources: boot.Env("kubelet-dir"), Usage: "kubelet's `FOLDER`, below which volumes are published"},
			&cli.StringFlag{Name: "kubeconfig", Destination: &c.Kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "`FILE` that says how to reach the API server; empty: the Pod's own account"},
			&cli.StringFlag{Name: "proc", Value: "/proc", Destination: &c.Proc, Sources: boot.Env("proc"), Usage: "`FOLDER` of the process table in whose mount namespaces uses of a copy are looked for"},
			&cli.StringFlag{Name: "folder-mode", Value: "0755", Destination: &c.FolderMode, Sources: boot.Env("folder-mode"), Usage: "octal `MODE` of a new copy's folder, which belongs to root"},
			&cli.DurationFlag{Name: "look-every", Value: 10 * time.Minute, Destination: &c.LookEvery, Sources: boot.Env("look-every"), Usage: "`DURATION` after which all copies are looked at without a reason"},
		}, boot.Flags(&c.Boot, "info")...),
		Action: func(ctx context.Context, _ *cli.Command) error {
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			return Run(ctx, c, log, func() { fmt.Println("ready: per-node volumes are served at " + c.Socket) })
		},
	}
}
