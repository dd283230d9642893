package durable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// trashRetry is how long the trash waits after something could not be removed.
const trashRetry = time.Minute

// dirBatch is how many names are read from a folder at once.
const dirBatch = 1024

// Trash takes folders out of use at once and removes them later, in Run. Safe for
// concurrent use.
type Trash struct {
	dir  *os.File
	log  *zap.Logger
	wake chan struct{}
}

// OpenTrash opens a folder of root as trash. What a crash left there is removed
// by Run.
func OpenTrash(root *os.Root, folder string, log *zap.Logger) (*Trash, error) {
	if err := MakeFolder(root, folder, 0o700); err != nil {
		return nil, err
	}
	dir, err := root.Open(folder)
	if err != nil {
		return nil, err
	}
	return &Trash{dir: dir, log: log, wake: make(chan struct{}, 1)}, nil
}

// Close ends the use of the folder. Run has to have ended.
func (t *Trash) Close() error { return t.dir.Close() }

// Take moves a folder of parent into the trash, durably when it returns nil. One
// that is not there has been taken already.
func (t *Trash) Take(parent *os.Root, name string) error {
	from, err := parent.Open(".")
	if err != nil {
		return err
	}
	defer from.Close()
	err = unix.Renameat2(int(from.Fd()), name, int(t.dir.Fd()), rand.Text(), unix.RENAME_NOREPLACE)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("move %s into the trash: %w", name, err)
	}
	if err := t.dir.Sync(); err != nil {
		return err
	}
	if err := from.Sync(); err != nil {
		return err
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return nil
}

// Run removes what is in the trash until ctx ends.
func (t *Trash) Run(ctx context.Context) error {
	for {
		var retry <-chan time.Time
		if err := t.Empty(ctx); err != nil && ctx.Err() == nil {
			t.log.Warn("what was deleted still takes space", zap.Error(err))
			retry = time.After(trashRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-retry:
		}
	}
}

// Empty removes everything in the trash. What can't be removed stays, and is the
// error.
func (t *Trash) Empty(ctx context.Context) error {
	names, err := namesOf(t.dir)
	if err != nil {
		return err
	}
	var errs []error
	for len(names) > 0 {
		name := names[len(names)-1]
		names = names[:len(names)-1]
		moved, err := t.remove(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove a deleted folder: %w", err))
		}
		names = append(names, moved...)
	}
	return errors.Join(errs...)
}

// remove removes one entry of the trash. Folders inside it that are not empty are
// moved up beside it, so that no depth costs more than one open folder; their new
// names are returned.
func (t *Trash) remove(ctx context.Context, name string) (moved []string, err error) {
	fd := int(t.dir.Fd())
	if err := unix.Unlinkat(fd, name, 0); err == nil || !errors.Is(err, unix.EISDIR) {
		return nil, ignoreAbsent(err)
	}
	sub, err := openBelow(t.dir, name)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	defer sub.Close()
	for {
		inside, err := namesSome(sub)
		if err != nil {
			return moved, err
		}
		if len(inside) == 0 {
			return moved, ignoreAbsent(unix.Unlinkat(fd, name, unix.AT_REMOVEDIR))
		}
		for _, n := range inside {
			if ctx.Err() != nil {
				return moved, ctx.Err()
			}
			up, err := t.removeInside(sub, n)
			if err != nil {
				return moved, err
			}
			if up != "" {
				moved = append(moved, up)
			}
		}
	}
}

// removeInside removes an entry of a folder in the trash, or moves it up.
func (t *Trash) removeInside(sub *os.File, name string) (up string, err error) {
	err = unix.Unlinkat(int(sub.Fd()), name, 0)
	if err == nil || !errors.Is(err, unix.EISDIR) {
		return "", ignoreAbsent(err)
	}
	err = unix.Unlinkat(int(sub.Fd()), name, unix.AT_REMOVEDIR)
	if err == nil || !errors.Is(err, unix.ENOTEMPTY) {
		return "", ignoreAbsent(err)
	}
	up = rand.Text()
	return up, unix.Renameat(int(sub.Fd()), name, int(t.dir.Fd()), up)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// openBelow opens a folder that is neither a link nor a mount.
func openBelow(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// namesOf lists all of a folder.
func namesOf(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return dir.Readdirnames(-1)
}

// namesSome lists some of a folder; none when it is empty.
func namesSome(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(dirBatch)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
