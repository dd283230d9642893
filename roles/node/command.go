package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
)

// DefaultQuorumWait is how long an operation waits for a quorum.
const DefaultQuorumWait = 30 * time.Second

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "node",
		Usage: "serve the kubelet's requests for mounts of replicated volumes",
		Description: "Answers the CSI node service at --socket. Every mount is made by the mount owner behind --owner-socket;\n" +
			"this process has no privileges, and may restart at any time. Prints one line with \"ready\" when it answers.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "node-name", Destination: &c.Node, Sources: boot.Env("node-name"), Usage: "`NAME` of the node"},
			&cli.StringFlag{Name: "namespace", Value: api.DefaultNamespace, Destination: &c.Namespace, Sources: boot.Env("namespace"), Usage: "the driver's `NAMESPACE`"},
			&cli.StringFlag{Name: "cluster-domain", Value: api.DefaultClusterName, Destination: &c.ClusterDomain, Sources: boot.Env("cluster-domain"), Usage: "DNS `DOMAIN` of the cluster"},
			&cli.StringFlag{Name: "kubeconfig", Destination: &c.Kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "`FILE` that says how to reach the API server; empty: the Pod's own account"},
			&cli.StringFlag{Name: "kubelet-dir", Value: "/var/lib/kubelet", Destination: &c.KubeletDir, Sources: boot.Env("kubelet-dir"), Usage: "`FOLDER` of the kubelet"},
			&cli.StringFlag{Name: "socket", Destination: &c.Socket, Sources: boot.Env("socket"), Usage: "`PATH` of the CSI socket; empty: plugins/csi.replicated.tak-os.org/csi.sock in --kubelet-dir"},
			&cli.StringFlag{Name: "owner-socket", Value: "/run/tak-replicated/mount-owner.sock", Destination: &c.OwnerSocket, Sources: boot.Env("owner-socket"), Usage: "`PATH` of the mount owner's socket"},
			&cli.DurationFlag{Name: "quorum-wait", Value: DefaultQuorumWait, Destination: &c.QuorumWait, Sources: boot.Env("quorum-wait"), Usage: "`DURATION` that an operation on a volume waits for a quorum before it fails with EIO; 0: for ever"},
		}, boot.Flags(&c.Boot, "info")...),
		Action: func(ctx context.Context, _ *cli.Command) error {
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			return Run(ctx, c, log, func() { fmt.Printf("ready: node %s\n", c.Node) })
		},
	}
}
