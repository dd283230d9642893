package manager

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
)

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "manager",
		Usage: "provision and destroy volumes in a cluster",
		Description: "Answers the CSI controller service on --socket, for an external-provisioner in the same Pod. Of several\n" +
			"managers one, chosen by a lease, makes and keeps what volumes need. Prints one line with \"ready\" when\n" +
			"it serves.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "socket", Value: "/csi/csi.sock", Destination: &c.Socket, Sources: boot.Env("socket"), Usage: "`PATH` of the CSI socket"},
			&cli.StringFlag{Name: "namespace", Value: api.DefaultNamespace, Destination: &c.Namespace, Sources: boot.Env("namespace"), Usage: "the driver's `NAMESPACE`"},
			&cli.StringFlag{Name: "cluster-domain", Value: api.DefaultClusterName, Destination: &c.ClusterDomain, Sources: boot.Env("cluster-domain"), Usage: "DNS `DOMAIN` of the cluster"},
			&cli.StringFlag{Name: "kubeconfig", Destination: &c.Kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "`FILE` that says how to reach the API server; empty: the Pod's own account"},
			&cli.StringFlag{Name: "identity", Destination: &c.Identity, Sources: boot.Env("identity"), Usage: "`NAME` of this manager among all; empty: the host's name"},
			&cli.StringFlag{Name: "replica-runtime", Value: runtimeShared, Destination: &c.Runtime, Sources: boot.Env("replica-runtime"), Usage: "`RUNTIME` of new volumes: shared (in the replica hosts) or pod (a Pod a replica)"},
			&cli.StringFlag{Name: "worker-image", Destination: &c.WorkerImage, Sources: boot.Env("worker-image"), Usage: "`IMAGE` of the Pods of the pod runtime"},
			&cli.StringFlag{Name: "controller-image", Destination: &c.ControllerImage, Sources: boot.Env("controller-image"), Usage: "`IMAGE` of nothing: deprecated and ignored"},
			&cli.DurationFlag{Name: "resync", Value: 2 * time.Minute, Destination: &c.Resync, Sources: boot.Env("resync"), Usage: "`DURATION` after which every volume is looked at without a reason"},
			&cli.StringFlag{Name: "ui-addr", Destination: &c.UI.Addr, Sources: boot.Env("ui-addr"), Usage: "`HOST:PORT` of a read-only status page; without --ui-cert a loopback address, for kubectl port-forward; empty: no page"},
			&cli.StringFlag{Name: "ui-cert", Destination: &c.UI.Cert, Sources: boot.Env("ui-cert"), Usage: "PEM `FILE` with the page's certificate: it is then served by TLS, to tokens of the cluster whose user may read volumes"},
			&cli.StringFlag{Name: "ui-key", Destination: &c.UI.Key, Sources: boot.Env("ui-key"), Usage: "PEM `FILE` with the key of --ui-cert"},
		}, boot.Flags(&c.Boot, "info")...),
		Action: func(ctx context.Context, _ *cli.Command) error {
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			return Run(ctx, c, log, func(identity string) { fmt.Printf("ready: manager %s\n", identity) })
		},
	}
}
