package worker

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
)

// Defaults of the flags; dev uses them too.
const (
	DefaultReserveBytes    = 384 << 20
	DefaultCheckpointBytes = 64 << 20
	DefaultJournalBytes    = 256 << 20
	DefaultRebuildRate     = 32 << 20
	DefaultTTL             = 3 * time.Second
	DefaultSessionLeases   = 128 << 10
	leasesLeast            = 1 << 10
	leasesMost             = 16 << 20
)

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	var members []string
	return &cli.Command{
		Name:  "worker",
		Usage: "serve one replica of a volume",
		Description: "Opens the replica in --dir, takes part in the volume's log, and serves clients while it is the\n" +
			"coordinator. Prints one line with \"ready\" when it listens. Exit code 3 says that the replica's\n" +
			"state is lost: it is never initialised again by itself.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "dir", Destination: &c.Dir, Sources: boot.Env("dir"), Usage: "`FOLDER` of the replica"},
			&cli.StringFlag{Name: "volume", Destination: &c.Volume, Sources: boot.Env("volume"), Usage: "`UID` of the volume"},
			&cli.StringFlag{Name: "replica", Destination: &c.Replica, Sources: boot.Env("replica"), Usage: "`NAME` of the replica"},
			&cli.Uint64Flag{Name: "incarnation", Value: 1, Destination: &c.Incarnation, Sources: boot.Env("incarnation"), Usage: "which `LIFE` of the replica this is, from 1"},
			&cli.StringFlag{Name: "listen", Destination: &c.Listen, Sources: boot.Env("listen"), Usage: "`HOST:PORT` to listen on"},
			&cli.StringSliceFlag{Name: "member", Destination: &members, Sources: boot.Env("member"), Usage: "`ID=REPLICA@HOST:PORT[/SERVERNAME]` of a member of the volume, once for each, this one too"},
			&cli.StringFlag{Name: "trust", Destination: &c.Trust, Sources: boot.Env("trust"), Usage: "`FOLDER` with ca.crt, server.crt, server.key, peer.crt and peer.key; read again when renewed"},
			&cli.BoolFlag{Name: "bootstrap", Destination: &c.Bootstrap, Sources: boot.Env("bootstrap"), Usage: "initialise the replica if its folder is empty; give it only to a replica that never ran"},
			&cli.BoolFlag{Name: "join", Destination: &c.Join, Sources: boot.Env("join"), Usage: "with --bootstrap: the replica joins a log that exists, and waits for a checkpoint"},
			&cli.StringFlag{Name: "record", Destination: &c.Record, Sources: boot.Env("record"), Usage: "`FILE` outside of --dir in which the host keeps what it knows of the replica: a folder that is older is refused"},
			&cli.Uint64Flag{Name: "reserve-bytes", Value: DefaultReserveBytes, Destination: &c.ReserveBytes, Sources: boot.Env("reserve-bytes"), Usage: "`BYTES` of the disk kept from files, for journal and checkpoints"},
			&cli.Int64Flag{Name: "checkpoint-bytes", Value: DefaultCheckpointBytes, Destination: &c.CheckpointBytes, Sources: boot.Env("checkpoint-bytes"), Usage: "`BYTES` of journal between two checkpoints"},
			&cli.Int64Flag{Name: "journal-bytes", Value: DefaultJournalBytes, Destination: &c.JournalBytes, Sources: boot.Env("journal-bytes"), Usage: "`BYTES` that the journal may take"},
			&cli.Int64Flag{Name: "rebuild-rate", Value: DefaultRebuildRate, Destination: &c.RebuildRate, Sources: boot.Env("rebuild-rate"), Usage: "`BYTES` a second sent to members that need a checkpoint"},
			&cli.DurationFlag{Name: "lease-ttl", Value: DefaultTTL, Destination: &c.TTL, Sources: boot.Env("lease-ttl"), Usage: "`DURATION` that a client's leases last without renewal"},
			&cli.IntFlag{Name: "session-leases", Value: DefaultSessionLeases, Destination: &c.SessionLeases, Sources: boot.Env("session-leases"), Usage: "`NUMBER` of files and folders on which one client may hold leases; beyond it they are recalled. About 200 bytes each"},
			&cli.Int64Flag{Name: "scrub-rate", Value: DefaultScrubRate, Destination: &c.ScrubRate, Sources: boot.Env("scrub-rate"), Usage: "`BYTES` of contents a second that are compared with their checksums in the background"},
			&cli.DurationFlag{Name: "scrub-every", Value: DefaultScrubEvery, Destination: &c.ScrubEvery, Sources: boot.Env("scrub-every"), Usage: "`DURATION` from one look at everything to the next"},
		}, boot.Flags(&c.Boot, "info")...),
		Action: func(ctx context.Context, _ *cli.Command) error {
			for _, text := range members {
				m, err := ParseMember(text)
				if err != nil {
					return err
				}
				c.Members = append(c.Members, m)
			}
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			return Run(ctx, c, log, func(addr string) {
				fmt.Printf("ready: replica %s listens on %s\n", c.Replica, addr)
			})
		},
	}
}
