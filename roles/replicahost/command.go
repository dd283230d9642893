package replicahost

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "replica-host",
		Usage: "serve the replicas of one node",
		Description: "Serves every replica that a volume places on this node, one worker each, in one process. Storage comes\n" +
			"from the local driver's publication. Replicas that are recorded in --state-dir start without the API.\n" +
			"Prints one line with \"ready\" when it has begun.",
		Flags: flags(&c),
		Action: func(ctx context.Context, _ *cli.Command) error {
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			return Run(ctx, c, log, func() { fmt.Printf("ready: replica host of node %s\n", c.Node) })
		},
	}
}

func flags(c *Config) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "node-name", Destination: &c.Node, Sources: boot.Env("node-name"), Usage: "`NAME` of the node"},
		&cli.StringFlag{Name: "namespace", Value: api.DefaultNamespace, Destination: &c.Namespace, Sources: boot.Env("namespace"), Usage: "the driver's `NAMESPACE`"},
		&cli.StringFlag{Name: "cluster-domain", Value: api.DefaultClusterName, Destination: &c.ClusterDomain, Sources: boot.Env("cluster-domain"), Usage: "DNS `DOMAIN` of the cluster"},
		&cli.StringFlag{Name: "kubeconfig", Destination: &c.Kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "`FILE` that says how to reach the API server; empty: the Pod's own account"},
		&cli.StringFlag{Name: "pod-ip", Destination: &c.Advertise, Sources: boot.Env("pod-ip"), Usage: "`IP` under which workers here are reached, the Pod's"},
		&cli.StringFlag{Name: "listen-address", Destination: &c.Listen, Sources: boot.Env("listen-address"), Usage: "`IP` that workers listen on; empty: all"},
		&cli.StringFlag{Name: "state-dir", Value: "/var/lib/tak-replicated/host", Destination: &c.State, Sources: boot.Env("state-dir"), Usage: "`FOLDER` for the host's records and cached credentials"},
		&cli.StringFlag{Name: "lock-dir", Value: "/run/tak-replicated/locks", Destination: &c.Locks, Sources: boot.Env("lock-dir"), Usage: "`FOLDER` of locks, the same for all replica hosts of the machine"},
		&cli.StringFlag{Name: "consumer-socket", Value: "/run/tak-replicated/consumer.sock", Destination: &c.ConsumerSocket, Sources: boot.Env("consumer-socket"), Usage: "`PATH` of the local driver's consumer socket"},
		&cli.StringFlag{Name: "consumer-mount-root", Value: "/var/lib/tak-replicated/consumer", Destination: &c.ConsumerRoot, Sources: boot.Env("consumer-mount-root"), Usage: "`FOLDER` where the local driver's publications appear"},
		&cli.IntFlag{Name: "max-workers", Value: DefaultWorkers, Destination: &c.Workers, Sources: boot.Env("max-workers"), Usage: "`COUNT` of replicas served; others are pending"},
		&cli.IntFlag{Name: "max-starts", Value: DefaultStarts, Destination: &c.Starts, Sources: boot.Env("max-starts"), Usage: "`COUNT` of workers that start at once"},
		&cli.IntFlag{Name: "max-operations", Value: DefaultOperations, Destination: &c.Operations, Sources: boot.Env("max-operations"), Usage: "`COUNT` of clients' operations that execute at once"},
		&cli.IntFlag{Name: "max-checkpoints", Value: DefaultCheckpoints, Destination: &c.Checkpoints, Sources: boot.Env("max-checkpoints"), Usage: "`COUNT` of checkpoints that are captured at once"},
		&cli.IntFlag{Name: "max-rebuilds", Value: DefaultRebuilds, Destination: &c.Rebuilds, Sources: boot.Env("max-rebuilds"), Usage: "`COUNT` of rebuilds of other nodes' replicas that are sent at once"},
		&cli.Int64Flag{Name: "rebuild-rate", Value: DefaultRebuildRate, Destination: &c.RebuildRate, Sources: boot.Env("rebuild-rate"), Usage: "`BYTES` a second sent by all rebuilds together"},
		&cli.IntFlag{Name: "port-first", Value: DefaultPortFirst, Destination: &c.PortFirst, Sources: boot.Env("port-first"), Usage: "first `PORT` of the workers"},
		&cli.IntFlag{Name: "port-last", Value: DefaultPortLast, Destination: &c.PortLast, Sources: boot.Env("port-last"), Usage: "last `PORT` of the workers"},
		&cli.Uint64Flag{Name: "reserve-bytes", Value: worker.DefaultReserveBytes, Destination: &c.Worker.ReserveBytes, Sources: boot.Env("reserve-bytes"), Usage: "`BYTES` of a replica's disk kept from files, for journal and checkpoints"},
		&cli.Int64Flag{Name: "checkpoint-bytes", Value: worker.DefaultCheckpointBytes, Destination: &c.Worker.CheckpointBytes, Sources: boot.Env("checkpoint-bytes"), Usage: "`BYTES` of journal between two checkpoints"},
		&cli.Int64Flag{Name: "journal-bytes", Value: worker.DefaultJournalBytes, Destination: &c.Worker.JournalBytes, Sources: boot.Env("journal-bytes"), Usage: "`BYTES` that a replica's journal may take"},
		&cli.DurationFlag{Name: "lease-ttl", Value: worker.DefaultTTL, Destination: &c.Worker.TTL, Sources: boot.Env("lease-ttl"), Usage: "`DURATION` that a client's leases last without renewal"},
		&cli.IntFlag{Name: "session-leases", Value: worker.DefaultSessionLeases, Destination: &c.Worker.SessionLeases, Sources: boot.Env("session-leases"), Usage: "`NUMBER` of files and folders on which one client may hold leases; beyond it they are recalled. About 200 bytes each"},
	}, boot.Flags(&c.Boot, "info")...)
}

// Run serves until ctx ends. ready is called when it has begun.
func Run(ctx context.Context, c Config, log *zap.Logger, ready func()) error {
	if err := c.validate(); err != nil {
		return err
	}
	client, err := kube.Connect(kube.Options{Kubeconfig: c.Kubeconfig, Namespace: c.Namespace, UserAgent: boot.Name + "/replica-host", Wrap: c.Wrap})
	if err != nil {
		return err
	}
	storage, err := consumer.Dial(c.ConsumerSocket)
	if err != nil {
		return err
	}
	defer storage.Close()
	ops := c.Boot.NewOps()
	h, err := New(c, client, storage, ops, log)
	if err != nil {
		return err
	}
	volumes := client.WatchVolumes(0, h.Notify)
	var g boot.Group
	g.Add("host", func(ctx context.Context) error { return h.Run(ctx, volumes) })
	g.Add("metrics", ops.Run)
	ready()
	return g.Run(ctx)
}
