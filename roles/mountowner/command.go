package mountowner

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/roles/boot"
)

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "mount-owner",
		Usage: "keep mounts of volumes, asked for through a Unix socket",
		Description: "Starts a serving process and keeps what it needs to be replaced: when it dies another one goes on\n" +
			"with the same mounts and open files (Linux 6.9). Prints one line with \"ready\" when the socket serves.\n" +
			"The socket answers root and the own user only.",
		Flags: slices.Concat(keepFlags(&c), flags(&c), boot.Flags(&c.Boot, "info")),
		Action: func(ctx context.Context, _ *cli.Command) error {
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			return Own(ctx, c, log)
		},
		Commands: []*cli.Command{keepCommand(), serveCommand()},
	}
}

func keepCommand() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "keep",
		Usage: "the keeper alone; \"serve --restart\" serves, in another container of its Pod",
		Description: "Holds what a serving process needs to be replaced, and nothing else: its end is the end of all mounts.\n" +
			"The serving process, which may die at any time, has to be in the same process table.",
		Flags: slices.Concat(keepFlags(&c), socketFlags(&c), boot.Flags(&c.Boot, "info")),
		Action: func(ctx context.Context, _ *cli.Command) error {
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			return Keep(ctx, c, log)
		},
	}
}

func serveCommand() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "serve",
		Usage: "the serving process of a keeper",
		Flags: slices.Concat([]cli.Flag{
			&cli.BoolFlag{Name: "restart", Destination: &c.Restart, Sources: boot.Env("restart"), Usage: "wait for the keeper (\"keep\") of the instance, start the serving process as a child, and again at once when it ends"},
			instanceFlag(&c),
		}, flags(&c), boot.Flags(&c.Boot, "info")),
		Action: func(ctx context.Context, _ *cli.Command) error {
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			if c.Restart {
				return Supervise(ctx, c, log)
			}
			return Serve(ctx, c, log, func() { fmt.Println("ready: mount owner answers at " + c.Socket) })
		},
	}
}

func keepFlags(c *Config) []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "take-over", Destination: &c.TakeOver, Sources: boot.Env("take-over"), Usage: "take the mounts of the mount owner that has the socket, which then only waits to be ended"},
		instanceFlag(c),
	}
}

func instanceFlag(c *Config) cli.Flag {
	return &cli.StringFlag{Name: "instance", Destination: &c.Instance, Sources: boot.Env("instance"), Usage: "`NAME` of what this mount owner belongs to, the Pod's UID: once it has handed over it does not take the mounts back"}
}

func socketFlags(c *Config) []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "socket", Value: "/run/tak-replicated/mount-owner.sock", Destination: &c.Socket, Sources: boot.Env("socket"), Usage: "`PATH` of the Unix socket"}}
}

func flags(c *Config) []cli.Flag {
	return slices.Concat(socketFlags(c), []cli.Flag{
		&cli.StringFlag{Name: "kubelet-dir", Destination: &c.KubeletDir, Sources: boot.Env("kubelet-dir"), Usage: "`FOLDER` of the kubelet, below which a frontend may have volumes mounted; empty: nowhere"},
		&cli.StringFlag{Name: "trust-dir", Value: "/run/tak-replicated/trust", Destination: &c.TrustDir, Sources: boot.Env("trust-dir"), Usage: "`FOLDER` for the credentials of volumes that a frontend has mounted"},
	}, LimitFlags(&c.WriteBehind))
}

// LimitFlags returns the flags that bound what a mount has answered ahead of the
// log, and what it remembers.
func LimitFlags(l *client.Limits) []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "write-behind-ops", Value: DefaultWriteBehindOps, Destination: &l.QueueOps, Sources: boot.Env("write-behind-ops"), Usage: "`NUMBER` of operations that a mount answers before a quorum has them, on what only it uses; fsync waits for them; 0: every operation waits for a quorum"},
		&cli.IntFlag{Name: "write-behind-bytes", Value: DefaultWriteBehindBytes, Destination: &l.QueueBytes, Sources: boot.Env("write-behind-bytes"), Usage: "`BYTES` of such operations that a mount holds at most"},
		&cli.IntFlag{Name: "cache-inodes", Value: client.DefaultCacheInodes, Destination: &l.CacheInodes, Sources: boot.Env("cache-inodes"), Usage: "`NUMBER` of files and folders of which a mount remembers attributes and names while it has leases on them; a coordinator's --session-leases is to be more"},
	}
}
