package mountowner

import (
	"context"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/roles/boot"
)

// Serve is the serving process: it answers the API and the kernel until ctx
// ends.
func Serve(ctx context.Context, c Config, log *zap.Logger, ready func()) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
		return err
	}
	l, err := ListenUnix(c.Socket)
	if err != nil {
		return err
	}
	o := newOwner(log, nil)
	ops := c.Boot.NewOps()
	var g boot.Group
	g.Add("mounts", o.Run)
	g.Add("socket", func(ctx context.Context) error { return boot.ServeHTTP(ctx, l, o.Handler()) })
	g.Add("metrics", ops.Run)
	ready()
	return g.Run(ctx)
}

func (c *Config) validate() error {
	if !filepath.IsAbs(c.Socket) {
		return boot.Usagef("--socket: %q is not an absolute path", c.Socket)
	}
	return nil
}
