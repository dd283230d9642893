package ctl

import (
	"context"
	"fmt"
	"io"
	"net"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ctl/cluster"
	"tak-os.org/tak-replicated/roles/ui"
)

// serveUI serves the status page until ctx ends.
func serveUI(ctx context.Context, kubeconfig, namespace, domain, addr string, out io.Writer) error {
	if err := ui.Check("addr", addr); err != nil {
		return err
	}
	k, err := cluster.Connect(kubeconfig, namespace)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ready: http://%s/\n", l.Addr())
	return boot.ServeHTTP(ctx, l, ui.Handler(ui.NewCluster(k, domain)))
}
