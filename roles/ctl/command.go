package ctl

import (
	"context"
	"os"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/dev"
)

// Command returns the role's command.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "ctl",
		Usage: "look at what runs, and at a replica's files when nothing does",
		Commands: []*cli.Command{
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
			explainCommand(),
		},
	}
}

func statusCommand() *cli.Command {
	var dir string
	var asJSON bool
	return &cli.Command{
		Name:  "status",
		Usage: "members with role, lag and process; sessions; mounts",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: dev.DefaultDir, Destination: &dir, Sources: boot.Env("dir"), Usage: "`FOLDER` of the dev that runs"},
			&cli.BoolFlag{Name: "json", Destination: &asJSON, Sources: boot.Env("json"), Usage: "print JSON"},
		},
		Action: func(ctx context.Context, _ *cli.Command) error {
			st, err := status(ctx, dir)
			if err != nil {
				return err
			}
			if asJSON {
				return st.json(os.Stdout)
			}
			return st.print(os.Stdout)
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
