package mountowner

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/roles/boot"
)

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	var serve Config
	return &cli.Command{
		Name:  "mount-owner",
		Usage: "keep mounts of volumes, asked for through a Unix socket",
		Description: "Starts a serving process and keeps what it needs to be replaced: when it dies another one goes on\n" +
			"with the same mounts and open files (Linux 6.9). Prints one line with \"ready\" when the socket serves.\n" +
			"The socket answers root and the own user only.",
		Flags: append(flags(&c),
			&cli.BoolFlag{Name: "take-over", Destination: &c.TakeOver, Sources: boot.Env("take-over"), Usage: "take the mounts of the mount owner that has the socket, which then only waits to be ended"},
			&cli.StringFlag{Name: "instance", Destination: &c.Instance, Sources: boot.Env("instance"), Usage: "`NAME` of what this mount owner belongs to, the Pod's UID: once it has handed over it does not take the mounts back"},
		),
		Action: func(ctx context.Context, _ *cli.Command) error {
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			return Keep(ctx, c, log)
		},
		Commands: []*cli.Command{{
			Name:  "serve",
			Usage: "the serving process, started by the keeper",
			Flags: flags(&serve),
			Action: func(ctx context.Context, _ *cli.Command) error {
				log, err := serve.Boot.Logger(os.Stderr)
				if err != nil {
					return err
				}
				return Serve(ctx, serve, log, func() { fmt.Println("ready: mount owner answers at " + serve.Socket) })
			},
		}},
	}
}

func flags(c *Config) []cli.Flag {
	return append(append([]cli.Flag{
		&cli.StringFlag{Name: "socket", Value: "/run/tak-replicated/mount-owner.sock", Destination: &c.Socket, Sources: boot.Env("socket"), Usage: "`PATH` of the Unix socket"},
		&cli.StringFlag{Name: "kubelet-dir", Destination: &c.KubeletDir, Sources: boot.Env("kubelet-dir"), Usage: "`FOLDER` of the kubelet, below which a frontend may have volumes mounted; empty: nowhere"},
		&cli.StringFlag{Name: "trust-dir", Value: "/run/tak-replicated/trust", Destination: &c.TrustDir, Sources: boot.Env("trust-dir"), Usage: "`FOLDER` for the credentials of volumes that a frontend has mounted"},
	}, LimitFlags(&c.WriteBehind)...), boot.Flags(&c.Boot, "info")...)
}

// LimitFlags returns the flags that bound what a mount has answered ahead of the
// log.
func LimitFlags(l *client.Limits) []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "write-behind-ops", Value: DefaultWriteBehindOps, Destination: &l.QueueOps, Sources: boot.Env("write-behind-ops"), Usage: "`NUMBER` of operations that a mount answers before a quorum has them, on what only it uses; fsync waits for them; 0: every operation waits for a quorum"},
		&cli.IntFlag{Name: "write-behind-bytes", Value: DefaultWriteBehindBytes, Destination: &l.QueueBytes, Sources: boot.Env("write-behind-bytes"), Usage: "`BYTES` of such operations that a mount holds at most"},
	}
}
