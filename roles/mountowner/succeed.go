package mountowner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/kernel"
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

// inherit takes the mounts of the keeper that has the socket, none if there is
// none. It returns nil when this instance has handed its mounts over before.
func (c *Config) inherit(ctx context.Context, log *zap.Logger) (*kernel.Handed, error) {
	if !c.TakeOver {
		return &kernel.Handed{}, nil
	}
	if c.Instance != "" {
		_, err := os.Lstat(c.mark())
		if err == nil {
			log.Info("this instance has handed its mounts over; waiting to be ended")
			return nil, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
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

// probeOwner asks the serving process, this keeper's or its successor's.
func probeOwner(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	if _, err := NewClient(socket).Health(ctx); err != nil {
		return fmt.Errorf("serving process: %w", err)
	}
	return nil
}
