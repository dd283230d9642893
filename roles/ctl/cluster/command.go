package cluster

import (
	"context"
	"os"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// Commands returns the commands that speak to a cluster.
func Commands() []*cli.Command {
	return []*cli.Command{volumesCommand(), uninstallCommand(), destroyCommand(), drainCommand()}
}

// Connect makes a client of the API server that kubeconfig says; empty: the Pod's
// own account.
func Connect(kubeconfig, namespace string) (*kube.Client, error) {
	r := reach{kubeconfig, namespace}
	return r.connect()
}

// reach says how to reach the cluster.
type reach struct{ kubeconfig, namespace string }

func (r *reach) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "kubeconfig", Destination: &r.kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "`FILE` that says how to reach the API server; empty: the Pod's own account"},
		&cli.StringFlag{Name: "namespace", Value: api.DefaultNamespace, Destination: &r.namespace, Sources: boot.Env("namespace"), Usage: "the driver's `NAMESPACE`"},
	}
}

func (r *reach) connect() (*kube.Client, error) {
	return kube.Connect(kube.Options{Kubeconfig: r.kubeconfig, Namespace: r.namespace, UserAgent: boot.Name + "/ctl"})
}

func volumesCommand() *cli.Command {
	var r reach
	var asJSON bool
	var domain string
	return &cli.Command{
		Name: "volumes", ArgsUsage: "[VOLUME]",
		Usage: "volumes of a cluster, their replicas, and what they wait for",
		Description: "Shows what manager and hosts have written down. It needs the right to read ReplicatedVolumes. Of one VOLUME that is\n" +
			"named it also shows who has it open and how far rebuilds are, if its workers can be reached from here and the\n" +
			"account may list Secrets of " + api.TrustNamespace + ", as in the manager's Pod.",
		Flags: append(r.flags(),
			&cli.StringFlag{Name: "cluster-domain", Value: api.DefaultClusterName, Destination: &domain, Sources: boot.Env("cluster-domain"), Usage: "DNS `DOMAIN` of the cluster"},
			&cli.BoolFlag{Name: "json", Destination: &asJSON, Sources: boot.Env("json"), Usage: "print JSON"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 1 {
				return boot.Usagef("volumes takes at most one volume, not %d arguments", cmd.NArg())
			}
			k, err := r.connect()
			if err != nil {
				return err
			}
			if err := volumes(ctx, k, cmd.Args().First(), asJSON, os.Stdout); err != nil || asJSON || cmd.NArg() == 0 {
				return err
			}
			return sessions(ctx, k, cmd.Args().First(), domain, worker.Ask, os.Stdout)
		},
	}
}

func uninstallCommand() *cli.Command {
	var r reach
	return &cli.Command{
		Name:  "uninstall-check",
		Usage: "what in a cluster still depends on the drivers; exit code 1 while something does",
		Flags: r.flags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 0 {
				return boot.Usagef("uninstall-check takes no arguments")
			}
			k, err := r.connect()
			if err != nil {
				return err
			}
			return uninstallCheck(ctx, k, os.Stdout)
		},
	}
}

func drainCommand() *cli.Command {
	var r reach
	return &cli.Command{
		Name: "drain", ArgsUsage: "NODE",
		Usage: "move every replica of a node to other nodes",
		Description: "Cordon the node first: a node that is schedulable may be chosen again. Each replica takes part until its successor has\n" +
			"everything. May be repeated; what can't be moved is told, and stays.",
		Flags: r.flags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return boot.Usagef("drain takes one node, not %d arguments", cmd.NArg())
			}
			k, err := r.connect()
			if err != nil {
				return err
			}
			return drain(ctx, k, cmd.Args().First(), os.Stdout)
		},
	}
}

func destroyCommand() *cli.Command {
	var r reach
	var confirm string
	return &cli.Command{
		Name: "destroy-retained", ArgsUsage: "VOLUME",
		Usage: "destroy a volume that was retained, with all of its copies, for ever",
		Description: "Takes the volume's handle. Refused while any PersistentVolume names it. The volume's quorum has to agree, and\n" +
			"nobody may have it open; until then nothing is destroyed. The manager does it; look at it with ctl volumes.",
		Flags: append(r.flags(),
			&cli.StringFlag{Name: "confirm", Destination: &confirm, Sources: boot.Env("confirm"), Usage: "the `VOLUME` once more, so that no other is destroyed"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			name := cmd.Args().First()
			switch {
			case cmd.NArg() != 1:
				return boot.Usagef("destroy-retained takes one volume, not %d arguments", cmd.NArg())
			case confirm != name:
				return boot.Usagef("--confirm has to name the volume %s too", name)
			}
			k, err := r.connect()
			if err != nil {
				return err
			}
			return destroyRetained(ctx, k, name, os.Stdout)
		},
	}
}
