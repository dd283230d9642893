package registrar

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
)

// Command returns the role's command.
func Command() *cli.Command {
	var c Config
	return &cli.Command{
		Name:  "registrar",
		Usage: "register CSI drivers with this node's kubelet",
		Description: "Takes the place of the usual node-driver-registrar, for one driver or several: each is offered to the kubelet\n" +
			"when it answers, and again if the kubelet refuses it. Prints one line with \"ready\" when it has begun.",
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "csi-socket", Destination: &c.Sockets, Sources: boot.Env("csi-socket"), Usage: "`PATH` of a driver's CSI socket, once for each"},
			&cli.StringSliceFlag{Name: "kubelet-socket", Destination: &c.KubeletSockets, Sources: boot.Env("kubelet-socket"), Usage: "`PATH` of the same socket as the kubelet sees it, once for each, in the same order; none: the same paths"},
			&cli.StringFlag{Name: "registration-dir", Value: "/var/lib/kubelet/plugins_registry", Destination: &c.Folder, Sources: boot.Env("registration-dir"), Usage: "the kubelet's `FOLDER` for registration"},
		}, boot.Flags(&c.Boot, "info")...),
		Action: func(ctx context.Context, _ *cli.Command) error {
			log, err := c.Boot.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctx, cancel := c.Boot.Context(ctx)
			defer cancel()
			return Run(ctx, c, log, func() { fmt.Println("ready: drivers are registered in " + c.Folder) })
		},
	}
}
