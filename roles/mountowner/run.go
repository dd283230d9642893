package mountowner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/kernel"
	"tak-os.org/tak-replicated/roles/boot"
)

// Config is what the role's flags say.
type Config struct {
	Socket string
	// KubeletDir is the folder below which a node's frontend may stage and publish
	// volumes; empty: nowhere.
	KubeletDir string
	// TrustDir keeps the credentials of staged volumes.
	TrustDir string
	// TakeOver has a keeper that starts take the mounts of the one that has the
	// socket, which then does nothing more.
	TakeOver bool
	// Restart has "serve" start the serving process as a child, and again.
	Restart bool
	// Instance names what the keeper belongs to, a Pod: one that has handed its
	// mounts over does not take them back when its container is started again, and
	// its serving processes serve nobody else.
	Instance    string
	WriteBehind client.Limits
	Boot        boot.Config

	held func() // is called when the keeper has the mounts, or has handed them over; may be nil
}

func (c *Config) validate() error {
	if err := CheckLimits(c.WriteBehind); err != nil {
		return err
	}
	if !filepath.IsAbs(c.Socket) {
		return boot.Usagef("--socket: %q is not an absolute path", c.Socket)
	}
	if n := len(c.keeperSocket()); n > SocketPathMost {
		return boot.Usagef("--socket: path is %d bytes too long for a Unix socket", n-SocketPathMost)
	}
	for flag, dir := range map[string]string{"kubelet-dir": c.KubeletDir, "trust-dir": c.TrustDir} {
		if dir != "" && (!filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/") {
			return boot.Usagef("--%s: %q is not a clean absolute path", flag, dir)
		}
	}
	if c.KubeletDir != "" && c.TrustDir == "" {
		return boot.Usagef("--trust-dir is needed with --kubelet-dir")
	}
	if strings.ContainsRune(c.Instance, '/') {
		return boot.Usagef("--instance: %q has a slash", c.Instance)
	}
	return nil
}

// SocketPathMost is the longest path of a Unix socket, in bytes.
const SocketPathMost = 107

// keeperSuffix makes the keeper's socket of the API's.
const keeperSuffix = ".keeper"

func (c *Config) keeperSocket() string { return c.Socket + keeperSuffix }

// Own is keeper and serving process together: the keeper starts the serving
// process, and holds what that needs to be replaced, until ctx ends.
func Own(ctx context.Context, c Config, log *zap.Logger) error {
	if err := c.prepare(log); err != nil {
		return err
	}
	command, err := c.serving()
	if err != nil {
		return err
	}
	ops := c.relayOps()
	var g boot.Group
	g.Add("keeper", func(ctx context.Context) error { return c.keep(ctx, command, log) })
	g.Add("metrics", ops.Run)
	return g.Run(ctx)
}

// Keep is the keeper alone, until ctx ends. Whoever comes with its instance serves.
func Keep(ctx context.Context, c Config, log *zap.Logger) error {
	if err := c.prepare(log); err != nil {
		return err
	}
	if err := c.needInstance(); err != nil {
		return err
	}
	ops := c.Boot.NewOps()
	var holds atomic.Bool
	ops.AddReady("mounts", func() error {
		if !holds.Load() {
			return errors.New("the keeper before has not handed its mounts over yet")
		}
		return nil
	})
	if err := ops.Listen(); err != nil { // while no mount ends with it
		return err
	}
	defer ops.Close()
	c.held = func() { holds.Store(true) }
	var g boot.Group
	g.Add("keeper", func(ctx context.Context) error { return c.keep(ctx, nil, log) })
	g.Add("metrics", func(ctx context.Context) error {
		if err := ops.Run(ctx); err != nil && ctx.Err() == nil {
			log.Error("metrics are not served any more; the mounts are kept", zap.Error(err))
		}
		<-ctx.Done()
		return nil
	})
	return g.Run(ctx)
}

// Supervise starts serving processes for the keeper of the instance, another as soon
// as one ends, until ctx ends.
func Supervise(ctx context.Context, c Config, log *zap.Logger) error {
	if err := c.prepare(log); err != nil {
		return err
	}
	if err := c.needInstance(); err != nil {
		return err
	}
	command, err := c.serving()
	if err != nil {
		return err
	}
	s := kernel.Supervisor{
		Socket: c.keeperSocket(), Instance: c.Instance, Command: command, Env: boot.ChildEnvironment(), Over: c.handedOver, Log: log,
	}
	ops := c.relayOps()
	var g boot.Group
	g.Add("supervisor", s.Run)
	g.Add("metrics", ops.Run)
	return g.Run(ctx)
}

// prepare checks the configuration, makes the socket's folder, and removes what former instances have left there.
func (c *Config) prepare(log *zap.Logger) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
		return err
	}
	if err := c.dropMarks(); err != nil {
		log.Warn("remove marks of handovers", zap.Error(err))
	}
	return nil
}

func (c *Config) needInstance() error {
	if c.Instance == "" {
		return boot.Usagef("--instance is needed: keeper and serving process find each other by it")
	}
	return nil
}

// serving is the command of the serving process.
func (c *Config) serving() ([]string, error) {
	exe, err := boot.Executable()
	if err != nil {
		return nil, err
	}
	return append([]string{
		exe, "mount-owner", "serve", "--socket", c.Socket, "--instance", c.Instance, "--kubelet-dir", c.KubeletDir, "--trust-dir", c.TrustDir,
		"--log-level", c.Boot.LogLevel, "--log-format", c.Boot.LogFormat,
	}, LimitArgs(c.WriteBehind)...), nil
}

// keep holds the mounts until ctx ends, at first those of the keeper before. Without
// a command somebody else starts the serving process.
func (c *Config) keep(ctx context.Context, command []string, log *zap.Logger) error {
	mounts, err := c.inherit(ctx, log)
	if err != nil {
		return err
	}
	if c.held != nil {
		c.held()
	}
	if mounts == nil {
		<-ctx.Done()
		return nil
	}
	defer mounts.Close()
	lock, err := lockSocket(ctx, c.Socket, lockPatience)
	if err != nil {
		return err
	}
	err = kernel.RunKeeper(ctx, kernel.KeeperConfig{
		Socket: c.keeperSocket(), Command: command, Env: boot.ChildEnvironment(),
		Instance: c.Instance, Shared: lock, Mounts: mounts, Log: log,
	})
	lock.Close() // nobody waits for it in vain
	if !errors.Is(err, kernel.ErrSucceeded) {
		return err
	}
	log.Info("another keeper has the mounts; waiting to be ended")
	if err := c.noteHandedOver(); err != nil {
		log.Error("note the handover", zap.Error(err))
	}
	<-ctx.Done()
	return nil
}

// Serve is the serving process: it takes the keeper's mounts over, and answers
// the API and the kernel until ctx ends or the keeper is gone.
func Serve(ctx context.Context, c Config, log *zap.Logger, ready func()) error {
	if err := c.validate(); err != nil {
		return err
	}
	link, kept, err := kernel.DialKeeper(ctx, c.keeperSocket(), c.Instance, log)
	if err != nil {
		return err
	}
	defer link.Close()
	l, err := ListenUnix(c.Socket)
	if err != nil {
		return err
	}
	o := newOwner(log, link, c.WriteBehind)
	o.instance = c.Instance
	o.places = Places{Kubelet: c.KubeletDir, Trust: c.TrustDir}
	ops := c.Boot.NewOps()
	o.Observe(ops)
	o.metrics = ops.Metrics()
	var g boot.Group
	g.Add("keeper", link.Wait)
	g.Add("mounts", o.Run)
	g.Add("socket", func(ctx context.Context) error { return boot.ServeHTTP(ctx, l, o.Handler()) })
	g.Add("metrics", ops.Run)
	go func() {
		for _, k := range kept {
			o.resume(k)
		}
		close(o.resumed)
		ready()
	}()
	if err := g.Run(ctx); !errors.Is(err, kernel.ErrStop) {
		return err
	}
	return nil
}
