package dev

import (
	"context"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// DefaultDir is where dev keeps a volume unless told otherwise.
const DefaultDir = "/var/lib/tak-replicated/dev"

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "dev",
		Usage: "run a volume's replicas and mount it, all on this machine",
		Description: "Starts the replicas in --dir, mounts the volume, and prints one line with \"ready\" and the mount\n" +
			"points. Ctrl-C unmounts and ends; the next start finds the files again. Needs root and /dev/fuse.",
		Flags: append(append([]cli.Flag{
			&cli.IntFlag{Name: "replicas", Destination: &c.Replicas, Sources: boot.Env("replicas"), DefaultText: "3, or as DIR was made", Usage: "`NUMBER` of replicas, 1 to 4; fixed when --dir is made"},
			&cli.StringFlag{Name: "dir", Value: DefaultDir, Destination: &c.Dir, Sources: boot.Env("dir"), Usage: "`FOLDER` of replicas, trust and settings; made when missing"},
			&cli.StringFlag{Name: "mount", Destination: &c.Mount, Sources: boot.Env("mount"), DefaultText: "DIR/mnt", Usage: "`FOLDER` to mount the volume on; made when missing"},
			&cli.IntFlag{Name: "mounts", Value: 1, Destination: &c.Mounts, Sources: boot.Env("mounts"), Usage: "`NUMBER` of mounts of the one volume: at MNT, MNT-2, MNT-3 and so on"},
			&cli.BoolFlag{Name: "processes", Destination: &c.Processes, Sources: boot.Env("processes"), Usage: "run every worker and mount owner as a process of its own, and start again those that end"},
			&cli.DurationFlag{Name: "quorum-wait", Value: 30 * time.Second, Destination: &c.QuorumWait, Sources: boot.Env("quorum-wait"), Usage: "an operation waits `DURATION` for a quorum before it answers EIO; 0 waits for ever"},
			&cli.Uint64Flag{Name: "reserve-bytes", Value: worker.DefaultReserveBytes, Destination: &c.ReserveBytes, Sources: boot.Env("reserve-bytes"), Usage: "`BYTES` of the disk that each replica keeps from files"},
			&cli.Int64Flag{Name: "checkpoint-bytes", Value: worker.DefaultCheckpointBytes, Destination: &c.CheckpointBytes, Sources: boot.Env("checkpoint-bytes"), Usage: "`BYTES` of journal between two checkpoints of a replica"},
			&cli.Int64Flag{Name: "journal-bytes", Value: worker.DefaultJournalBytes, Destination: &c.JournalBytes, Sources: boot.Env("journal-bytes"), Usage: "`BYTES` that a replica's journal may take"},
		}, mountowner.LimitFlags(&c.WriteBehind)...), boot.Flags(&c.Boot, "warn")...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.IsSet("replicas") && c.Replicas == 0 {
				return boot.Usagef("--replicas: 0 is not 1 to 4")
			}
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			return Run(ctx, c, log, os.Stdout, os.Stderr)
		},
	}
}
