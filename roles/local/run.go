package local

import (
	"context"
	"path/filepath"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/local"
	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/roles/boot"
)

// Config is what the role's flags say.
type Config struct {
	Node           string
	Root           string
	Socket         string
	KubeletDir     string
	ConsumerRoot   string
	ConsumerSocket string
	Proc           string
	FolderMode     string
	Boot           boot.Config
}

func (c *Config) driver() (local.Config, error) {
	mode, err := boot.FolderMode(c.FolderMode)
	if err != nil {
		return local.Config{}, err
	}
	if err := boot.NodeName(c.Node); err != nil {
		return local.Config{}, err
	}
	for flag, path := range map[string]string{"root": c.Root, "kubelet-dir": c.KubeletDir, "proc": c.Proc} {
		if !filepath.IsAbs(path) {
			return local.Config{}, boot.Usagef("--%s: %q is not an absolute path", flag, path)
		}
	}
	if c.ConsumerRoot != "" && !filepath.IsAbs(c.ConsumerRoot) {
		return local.Config{}, boot.Usagef("--consumer-mount-root: %q is not an absolute path", c.ConsumerRoot)
	}
	return local.Config{
		Root: c.Root, Node: c.Node, KubeletDir: c.KubeletDir,
		ConsumerRoot: c.ConsumerRoot, Proc: c.Proc, FolderMode: mode,
	}, nil
}

// Run serves until ctx ends. ready is called when the sockets answer.
func Run(ctx context.Context, c Config, log *zap.Logger, ready func()) error {
	cfg, err := c.driver()
	if err != nil {
		return err
	}
	d, err := local.Open(cfg, log.Named("local"))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Recover(ctx); err != nil {
		return err
	}
	ops := c.Boot.NewOps()
	ops.Registry.MustRegister(metrics{d})
	var g boot.Group
	g.Add("metrics", ops.Run)
	g.Add("trash", d.Run)
	if err := c.serveCSI(&g, ops, d, log); err != nil {
		return err
	}
	// Also where nothing can be acquired: a replica host is told so, and is not ready.
	switch l, err := server.Listen(c.ConsumerSocket); {
	case err != nil && c.ConsumerRoot != "":
		return err
	case err != nil:
		log.Info("no socket tells consumers that nothing can be acquired", zap.Error(err))
	default:
		s := consumer.NewServer(d, log.Named("consumer"), ops.ObserveCalls("consumer"))
		g.Add("consumer socket", func(ctx context.Context) error { return server.Serve(ctx, l, s) })
	}
	ready()
	return g.Run(ctx)
}

func (c *Config) serveCSI(g *boot.Group, ops *boot.Ops, d *local.Driver, log *zap.Logger) error {
	l, err := server.Listen(c.Socket)
	if err != nil {
		return err
	}
	s := d.Server(log.Named("csi"), ops.ObserveCalls("csi"), ops.Ready)
	ops.AddReady("records", d.Ready)
	g.Add("CSI socket", func(ctx context.Context) error { return server.Serve(ctx, l, s) })
	return nil
}
