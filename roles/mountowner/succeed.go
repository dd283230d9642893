package mountowner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/kernel"
	"tak-os.org/tak-replicated/roles/boot"
)

// A keeper that is replaced hands its mounts to the next one, which asks for them
// through the keeper's socket on the machine, and then waits to be ended: it must
// not end by itself, or its container would be started again and take the mounts
// back. If that happens nevertheless, the mark that it leaves keeps it from it.

// handedSuffix makes the mark's name of the socket's; the instance follows.
const handedSuffix = ".handed-over."

func (c *Config) mark() string { return c.Socket + handedSuffix + c.Instance }

func (c *Config) noteHandedOver() error {
	if c.Instance == "" {
		return nil
	}
	return os.WriteFile(c.mark(), nil, 0o600)
}

// handedOver reports whether the mark is there. In doubt it is: who has handed over
// and takes the mounts back does harm, who waits does none.
func (c *Config) handedOver() bool {
	if c.Instance == "" {
		return false
	}
	_, err := os.Lstat(c.mark())
	return !errors.Is(err, fs.ErrNotExist)
}

// podsFolder is the kubelet's, below its own: it has a folder for each Pod, by its UID, until nothing of that is left.
const podsFolder = "pods"

// dropMarks removes the marks of instances that are gone. Those are Pods, and the kubelet has a folder for each: where it
// has none for this one, nobody knows which are gone.
func (c *Config) dropMarks() error {
	if c.KubeletDir == "" || c.Instance == "" {
		return nil
	}
	pods := filepath.Join(c.KubeletDir, podsFolder)
	if _, err := os.Lstat(filepath.Join(pods, c.Instance)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	dir, prefix := filepath.Split(c.Socket + handedSuffix)
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, l := range left {
		instance, ok := strings.CutPrefix(l.Name(), prefix)
		if !ok || instance == "" {
			continue
		}
		if _, err := os.Lstat(filepath.Join(pods, instance)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, l.Name())); err != nil {
			return err
		}
	}
	return nil
}

// inherit takes the mounts of the keeper that has the socket, none if there is
// none. It returns nil when this instance has handed its mounts over before.
func (c *Config) inherit(ctx context.Context, log *zap.Logger) (*kernel.Handed, error) {
	if !c.TakeOver {
		return &kernel.Handed{}, nil
	}
	if c.handedOver() {
		log.Info("this instance has handed its mounts over; waiting to be ended")
		return nil, nil
	}
	h, err := kernel.Succeed(ctx, c.keeperSocket())
	switch {
	case kernel.NoKeeper(err):
		return &kernel.Handed{}, nil
	case err != nil:
		return nil, err
	}
	log.Info("mounts taken over from another keeper", zap.Int("mounts", h.Len()))
	return h, nil
}

// probePatience bounds the question whether the serving process answers.
const probePatience = 2 * time.Second

// relayOps shows the serving process's metrics, and is ready while that answers.
func (c *Config) relayOps() *boot.Ops {
	ops := c.Boot.NewOps()
	ops.AddReady("owner", c.probe)
	ops.Relay(relayMetrics(c.Socket))
	return ops
}

// probe asks the serving process. It is this instance's: whoever replaces another
// is not ready before it has the mounts, since the other is ended then. Once they
// have been handed over the successor's serves as well.
func (c *Config) probe() error {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	h, err := NewClient(c.Socket).Health(ctx)
	if err != nil {
		return fmt.Errorf("serving process: %w", err)
	}
	if h.Instance != c.Instance && !c.handedOver() {
		return fmt.Errorf("serving process: the one that answers is of %q", h.Instance)
	}
	return nil
}
