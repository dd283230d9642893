package durable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// lockFile is what a process locks to have a root for itself.
const lockFile = "lock"

// OpenLocked opens a driver's folder, which it makes if need be, and locks it
// until release is called or the process ends. An error says when another process
// has it.
func OpenLocked(path string) (root *os.Root, release func(), err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, nil, err
	}
	root, err = os.OpenRoot(path)
	if err != nil {
		return nil, nil, err
	}
	lock, err := root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		root.Close()
		return nil, nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		root.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil, fmt.Errorf("%s: another process has it", path)
		}
		return nil, nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return root, func() { lock.Close(); root.Close() }, nil
}

// Keyed lets one call at a time work on a key. The zero value is ready; safe for
// concurrent use.
type Keyed struct {
	mu struct {
		sync.Mutex
		held map[string]*turn
	}
}

// turn is a key in use: a token in free belongs to nobody.
type turn struct {
	free  chan struct{}
	users int
}

// Lock waits until the key is free or ctx ends, whose error it returns.
func (k *Keyed) Lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	t := k.mu.held[key]
	if t == nil {
		if k.mu.held == nil {
			k.mu.held = map[string]*turn{}
		}
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		k.mu.held[key] = t
	}
	t.users++
	k.mu.Unlock()
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; k.leave(key, t) }, nil
	case <-ctx.Done():
		k.leave(key, t)
		return nil, ctx.Err()
	}
}

// LockAll locks several keys, in an order in which no two callers wait for each other.
func (k *Keyed) LockAll(ctx context.Context, keys ...string) (unlock func(), err error) {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	var held []func()
	unlock = func() {
		for _, u := range held {
			u()
		}
	}
	for _, key := range slices.Compact(keys) {
		u, err := k.Lock(ctx, key)
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, u)
	}
	return unlock, nil
}

func (k *Keyed) leave(key string, t *turn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(k.mu.held, key)
	}
}
