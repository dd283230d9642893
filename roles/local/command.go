package local

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
)

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "local",
		Usage: "serve volumes that are folders of this node (csi.local.tak-os.org)",
		Description: "Serves CSI's identity, controller and node services on one socket, for this node's external-provisioner\n" +
			"(--node-deployment) and kubelet. With --consumer-mount-root a consumer on this node, such as the replica\n" +
			"host, acquires volumes over a second socket. Both sockets answer root and the own user only.\n" +
			"Prints one line with \"ready\" when it serves.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "node-name", Destination: &c.Node, Sources: boot.Env("node-name"), Usage: "`NAME` of this node in Kubernetes"},
			&cli.StringFlag{Name: "root", Value: "/var/lib/tak-replicated/local", Destination: &c.Root, Sources: boot.Env("root"), Usage: "`FOLDER` of volumes and records"},
			&cli.StringFlag{Name: "socket", Value: "/var/lib/kubelet/plugins/csi.local.tak-os.org/csi.sock", Destination: &c.Socket, Sources: boot.Env("socket"), Usage: "`PATH` of the CSI socket"},
			&cli.StringFlag{Name: "kubelet-dir", Value: "/var/lib/kubelet", Destination: &c.KubeletDir, Sources: boot.Env("kubelet-dir"), Usage: "kubelet's `FOLDER`, below which volumes are published"},
			&cli.StringFlag{Name: "consumer-mount-root", Destination: &c.ConsumerRoot, Sources: boot.Env("consumer-mount-root"), Usage: "`FOLDER` beneath which acquired volumes are mounted, on a shared mount; empty turns acquisition off"},
			&cli.StringFlag{Name: "consumer-socket", Value: "/run/tak-replicated/consumer.sock", Destination: &c.ConsumerSocket, Sources: boot.Env("consumer-socket"), Usage: "`PATH` of the consumers' socket"},
			&cli.StringFlag{Name: "proc", Value: "/proc", Destination: &c.Proc, Sources: boot.Env("proc"), Usage: "`FOLDER` of the process table in whose mount namespaces uses of a volume are looked for"},
			&cli.StringFlag{Name: "folder-mode", Value: "0755", Destination: &c.FolderMode, Sources: boot.Env("folder-mode"), Usage: "octal `MODE` of a new volume's folder, which belongs to root"},
		}, boot.Flags(&c.Boot, "info")...),
		Action: func(ctx context.Context, _ *cli.Command) error {
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			return Run(ctx, c, log, func() { fmt.Println("ready: local volumes are served at " + c.Socket) })
		},
	}
}
