package mountowner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/kernel"
	"tak-os.org/tak-replicated/roles/boot"
)

// Config is what the role's flags say.
type Config struct {
	Socket string
	Boot   boot.Config
}

func (c *Config) validate() error {
	if !filepath.IsAbs(c.Socket) {
		return boot.Usagef("--socket: %q is not an absolute path", c.Socket)
	}
	if n := len(c.keeperSocket()); n > SocketPathMost {
		return boot.Usagef("--socket: path is %d bytes too long for a Unix socket", n-SocketPathMost)
	}
	return nil
}

// SocketPathMost is the longest path of a Unix socket, in bytes.
const SocketPathMost = 107

// keeperSuffix makes the keeper's socket of the API's.
const keeperSuffix = ".keeper"

func (c *Config) keeperSocket() string { return c.Socket + keeperSuffix }

// Keep is the keeper: it starts the serving process and holds what that needs
// to be replaced, until ctx ends.
func Keep(ctx context.Context, c Config, log *zap.Logger) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
		return err
	}
	exe, err := boot.Executable()
	if err != nil {
		return err
	}
	lock, err := lockSocket(ctx, c.Socket, lockPatience)
	if err != nil {
		return err
	}
	defer lock.Close()
	ops := c.Boot.NewOps()
	var g boot.Group
	g.Add("keeper", func(ctx context.Context) error {
		return kernel.RunKeeper(ctx, kernel.KeeperConfig{
			Socket: c.keeperSocket(),
			Command: []string{
				exe, "mount-owner", "serve", "--socket", c.Socket,
				"--log-level", c.Boot.LogLevel, "--log-format", c.Boot.LogFormat,
			},
			Env: boot.ChildEnvironment(), Shared: lock, Log: log,
		})
	})
	g.Add("metrics", ops.Run)
	return g.Run(ctx)
}

// Serve is the serving process: it takes the keeper's mounts over, and answers
// the API and the kernel until ctx ends or the keeper is gone.
func Serve(ctx context.Context, c Config, log *zap.Logger, ready func()) error {
	if err := c.validate(); err != nil {
		return err
	}
	ctx, cancel, err := withParent(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	link, kept, err := kernel.DialKeeper(ctx, c.keeperSocket(), log)
	if err != nil {
		return err
	}
	defer link.Close()
	l, err := ListenUnix(c.Socket)
	if err != nil {
		return err
	}
	o := newOwner(log, link)
	ops := c.Boot.NewOps()
	o.Observe(ops)
	var g boot.Group
	g.Add("mounts", o.Run)
	g.Add("socket", func(ctx context.Context) error { return boot.ServeHTTP(ctx, l, o.Handler()) })
	g.Add("metrics", ops.Run)
	go func() {
		for _, k := range kept {
			o.resume(k)
		}
		ready()
	}()
	return g.Run(ctx)
}

// withParent ends the context when the process that started this one ends.
func withParent(ctx context.Context) (context.Context, context.CancelFunc, error) {
	parent := os.Getppid()
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("watch the keeper: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer unix.Close(fd)
		for ctx.Err() == nil && os.Getppid() == parent {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, parentPollMs); n > 0 || err != nil && err != unix.EINTR {
				break
			}
		}
		cancel()
	}()
	return ctx, cancel, nil
}

// parentPollMs is how long the watcher of the parent may outlive its context,
// in milliseconds.
const parentPollMs = 1000
