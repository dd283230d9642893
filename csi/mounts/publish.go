package mounts

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrTaken says that something else is mounted at a target.
var ErrTaken = errors.New("something else is mounted there")

// ErrBusy says that a mount is in use and can't be taken away.
var ErrBusy = errors.New("mount is in use")

// targetMode keeps applications from the bare folder.
const targetMode = 0o700

// Publish makes dir appear at target. If it is mounted there already with that
// readOnly, there is nothing to do; [ErrTaken] if anything else is. The folder
// above target has to exist.
func (r Root) Publish(dir *os.File, target string, readOnly bool) error {
	t, err := r.Open(target)
	if err != nil {
		return err
	}
	defer t.Close()
	own, err := Own()
	if err != nil {
		return err
	}
	if m, ok := At(own, t.Path); ok {
		p, err := placeOf(dir, own)
		if err != nil {
			return err
		}
		if m.Device == p.device && m.Root == p.root && m.ReadOnly == readOnly {
			return nil
		}
		return fmt.Errorf("target %s: %w", target, ErrTaken)
	}
	if err := t.Mkdir(targetMode); err != nil {
		return err
	}
	at, err := t.Folder()
	if err != nil {
		return err
	}
	defer at.Close()
	return Bind(dir, at, readOnly)
}

// Published reports whether dir is mounted at target.
func (r Root) Published(dir *os.File, target string) (bool, error) {
	own, err := Own()
	if err != nil {
		return false, err
	}
	return r.PublishedIn(own, dir, target)
}

// PublishedIn is Published for whoever has read the own mount table already.
func (r Root) PublishedIn(own []Mount, dir *os.File, target string) (bool, error) {
	t, err := r.Open(target)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer t.Close()
	p, err := placeOf(dir, own)
	if err != nil {
		return false, err
	}
	m, ok := At(own, t.Path)
	return ok && m.Device == p.device && m.Root == p.root, nil
}

// Unpublish takes away every mount at target and the empty folder. What is gone
// already is fine. [ErrBusy] if a mount is in use: then it stays. [ErrTaken] if
// what is mounted there lies in all, an open folder with one folder a volume, and
// not in the one with that name.
func (r Root) Unpublish(all *os.File, name, target string) error {
	t, err := r.Open(target)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	for {
		own, err := Own()
		if err != nil {
			return err
		}
		m, ok := At(own, t.Path)
		if !ok {
			break
		}
		p, err := placeOf(all, own)
		if err != nil {
			return err
		}
		if other := p.child(m); other != "" && other != name {
			return fmt.Errorf("target %s: %w: volume %s, not %q", target, ErrTaken, other, name)
		}
		if err := t.Unmount(0); err != nil {
			return err
		}
	}
	return t.Rmdir()
}

// Unmount takes away what is mounted on top at the target.
func (t *Target) Unmount(flags int) error {
	err := unix.Unmount(t.reach(), flags|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmount %s: %w", t.Path, ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", t.Path, err)
	}
	return nil
}
