package ctl

import (
	"context"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ctl/check"
	"tak-os.org/tak-replicated/roles/ctl/cluster"
	"tak-os.org/tak-replicated/roles/ctl/explain"
	"tak-os.org/tak-replicated/roles/dev"
)

// Command returns the role's command.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "ctl",
		Usage: "look at what runs, and at a replica's files when nothing does",
		Commands: append([]*cli.Command{
			statusCommand(),
			{Name: "journal", Usage: "a replica's journal, read-only, while no worker serves it", Commands: []*cli.Command{
				onReplica("verify", "read the whole journal and tell whether anything is lost", func(replica string) error {
					return verifyJournal(replica, os.Stdout)
				}),
				onReplica("dump", "list batches, entries and kinds of operations; no names, no contents", func(replica string) error {
					return dumpJournal(replica, os.Stdout)
				}),
			}},
			{Name: "checkpoint", Usage: "a replica's newest checkpoint, read-only, while no worker serves it", Commands: []*cli.Command{
				onReplica("verify", "read the newest checkpoint and all contents, and compare checksums", func(replica string) error {
					return verifyCheckpoint(replica, os.Stdout)
				}),
			}},
			exportCommand(),
			replaceCommand(),
			bundleCommand(),
			uiCommand(),
			explain.Command(),
			check.Command(),
		}, cluster.Commands()...),
	}
}

func statusCommand() *cli.Command {
	var f statusFlags
	return &cli.Command{
		Name:  "status",
		Usage: "how a dev or a cluster is: health and why, members, sessions, mounts",
		Description: "Without --kubeconfig or --in-cluster it asks everybody that dev started in --dir; with one of them it shows the\n" +
			"volumes of a cluster as manager and hosts have written them down. Exit code 0: healthy; 4: degraded, it serves and\n" +
			"survives fewer failures; 5: unavailable; 1: nobody could be asked.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: dev.DefaultDir, Destination: &f.dir, Sources: boot.Env("dir"), Usage: "`FOLDER` of the dev that runs"},
			&cli.StringFlag{Name: "kubeconfig", Destination: &f.kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "`FILE` that says how to reach a cluster's API server"},
			&cli.BoolFlag{Name: "in-cluster", Destination: &f.inCluster, Sources: boot.Env("in-cluster"), Usage: "reach the API server with the Pod's own account"},
			&cli.StringFlag{Name: "namespace", Value: api.DefaultNamespace, Destination: &f.namespace, Sources: boot.Env("namespace"), Usage: "the driver's `NAMESPACE` in the cluster"},
			&cli.BoolFlag{Name: "json", Destination: &f.json, Sources: boot.Env("json"), Usage: "print JSON"},
			&cli.BoolFlag{Name: "watch", Destination: &f.watch, Sources: boot.Env("watch"), Usage: "show it again and again, until interrupted"},
			&cli.DurationFlag{Name: "every", Value: 2 * time.Second, Destination: &f.every, Sources: boot.Env("every"), Usage: "with --watch: `DURATION` from one time to the next"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 0 {
				return boot.Usagef("status takes no arguments")
			}
			return f.run(ctx)
		},
	}
}

func bundleCommand() *cli.Command {
	var f bundleFlags
	return &cli.Command{
		Name:  "support-bundle",
		Usage: "gather state, logs and metrics in one archive for whoever helps; no secrets, no names of files",
		Description: "Without --kubeconfig or --in-cluster of the dev in --dir, with one of them of a cluster: volumes with their\n" +
			"conditions, Events, nodes, and the logs and metrics of the drivers' Pods. It reads no Secret and no file of a\n" +
			"volume. What could not be had is in errors.txt.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: dev.DefaultDir, Destination: &f.dir, Sources: boot.Env("dir"), Usage: "`FOLDER` of the dev"},
			&cli.StringFlag{Name: "kubeconfig", Destination: &f.kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "`FILE` that says how to reach a cluster's API server"},
			&cli.BoolFlag{Name: "in-cluster", Destination: &f.inCluster, Sources: boot.Env("in-cluster"), Usage: "reach the API server with the Pod's own account"},
			&cli.StringFlag{Name: "namespace", Value: api.DefaultNamespace, Destination: &f.namespace, Sources: boot.Env("namespace"), Usage: "the driver's `NAMESPACE` in the cluster"},
			&cli.StringFlag{Name: "output", Destination: &f.output, Sources: boot.Env("output"), DefaultText: "tak-replicated-TIME.tar.gz", Usage: "new `FILE` for the archive"},
			&cli.StringSliceFlag{Name: "log", Destination: &f.logs, Sources: boot.Env("log"), Usage: "`FILE` of a log to take along, once for each"},
			&cli.StringSliceFlag{Name: "metrics", Destination: &f.metrics, Sources: boot.Env("metrics"), Usage: "`URL` of metrics to take along, once for each"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 0 {
				return boot.Usagef("support-bundle takes no arguments")
			}
			return f.run(ctx, os.Stdout)
		},
	}
}

func uiCommand() *cli.Command {
	var kubeconfig, namespace, domain, addr string
	return &cli.Command{
		Name:  "ui",
		Usage: "serve a read-only status page of a cluster to this machine, with your own account's rights",
		Description: "It needs the right to list ReplicatedVolumes and Events; who has a volume open is shown to who may list the\n" +
			"Secrets of the trust namespace and reaches the workers. Prints one line with \"ready\" and serves until interrupted. A manager with\n" +
			"--ui-addr serves the same page to whoever may forward a port to its Pod, and with --ui-cert to tokens of the cluster whose user may read volumes.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "kubeconfig", Destination: &kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "`FILE` that says how to reach the API server; empty: the Pod's own account"},
			&cli.StringFlag{Name: "namespace", Value: api.DefaultNamespace, Destination: &namespace, Sources: boot.Env("namespace"), Usage: "the driver's `NAMESPACE`"},
			&cli.StringFlag{Name: "cluster-domain", Value: api.DefaultClusterName, Destination: &domain, Sources: boot.Env("cluster-domain"), Usage: "DNS `DOMAIN` of the cluster"},
			&cli.StringFlag{Name: "addr", Value: "127.0.0.1:8642", Destination: &addr, Sources: boot.Env("addr"), Usage: "`HOST:PORT` to serve on, a loopback address"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 0 {
				return boot.Usagef("ui takes no arguments")
			}
			return serveUI(ctx, kubeconfig, namespace, domain, addr, os.Stdout)
		},
	}
}

// onReplica is a command whose only argument is a replica's folder.
func onReplica(name, usage string, run func(replica string) error) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: "REPLICA-FOLDER",
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return boot.Usagef("%s takes one replica folder, not %d arguments", cmd.Name, cmd.NArg())
			}
			return run(cmd.Args().First())
		},
	}
}

func exportCommand() *cli.Command {
	var checkpointOnly bool
	return &cli.Command{
		Name: "export", ArgsUsage: "REPLICA-FOLDER NEW-FOLDER",
		Usage: "write the files of one replica to a new folder, without a quorum and without changing the replica",
		Description: "The journal is applied to a copy of the replica beside NEW-FOLDER, which needs room for its contents\n" +
			"once more until the end. What is exported is all that this replica has, confirmed or not. Run it as\n" +
			"root, so that owners and device nodes can be made.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "checkpoint-only", Destination: &checkpointOnly, Sources: boot.Env("checkpoint-only"), Usage: "leave the journal out and export the newest checkpoint; needs no copy"},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 2 {
				return boot.Usagef("%s takes a replica folder and a new folder, not %d arguments", cmd.Name, cmd.NArg())
			}
			return exportFiles(cmd.Args().Get(0), cmd.Args().Get(1), checkpointOnly, os.Stdout)
		},
	}
}

func replaceCommand() *cli.Command {
	var f replaceFlags
	return &cli.Command{
		Name:  "replace",
		Usage: "replace one replica by a new one, and bar and destroy the old copy",
		Description: "Names the replica and which life of it, as ctl status shows them, so that no other is hit. The quorum of the\n" +
			"present members decides: the new replica gets a copy first, and the old one is removed and barred in one\n" +
			"change. A healthy replica of a cluster takes part until then: so it is moved, with --node where to. A volume of two replicas that has lost one has no quorum: with --force the survivor goes on alone with\n" +
			"all that it has, and what only the other one had is lost. May be repeated until it says \"replaced\".",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: dev.DefaultDir, Destination: &f.dir, Sources: boot.Env("dir"), Usage: "`FOLDER` of the dev that runs; not with --volume"},
			&cli.StringFlag{Name: "volume", Destination: &f.cluster.Volume, Sources: boot.Env("volume"), Usage: "handle of a `VOLUME` of a cluster, as ctl volumes shows it"},
			&cli.StringFlag{Name: "kubeconfig", Destination: &f.cluster.Kubeconfig, Sources: boot.Env("kubeconfig"), Usage: "with --volume: `FILE` that says how to reach the API server; empty: the Pod's own account"},
			&cli.StringFlag{Name: "namespace", Value: api.DefaultNamespace, Destination: &f.cluster.Namespace, Sources: boot.Env("namespace"), Usage: "with --volume: the driver's `NAMESPACE`"},
			&cli.StringFlag{Name: "node", Destination: &f.cluster.Node, Sources: boot.Env("node"), DefaultText: "the manager chooses", Usage: "with --volume: `NODE` for the new copy"},
			&cli.StringFlag{Name: "replica", Destination: &f.req.Replica, Sources: boot.Env("replica"), Usage: "`NAME` of the replica; its number will do with --volume"},
			&cli.Uint64Flag{Name: "incarnation", Destination: &f.req.Incarnation, Sources: boot.Env("incarnation"), Usage: "which `LIFE` of the replica is replaced"},
			&cli.BoolFlag{Name: "force", Destination: &f.req.Force, Sources: boot.Env("force"), Usage: "of two replicas, go on with the other one alone; only when this one is lost for good"},
			&cli.DurationFlag{Name: "timeout", Destination: &f.timeout, Sources: boot.Env("timeout"), DefaultText: "none", Usage: "give up waiting after `DURATION`; the replacement goes on with the next request"},
		},
		Action: func(ctx context.Context, _ *cli.Command) error { return replaceReplica(ctx, f) },
	}
}
