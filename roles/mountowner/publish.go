package mountowner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/kernel"
	"tak-os.org/tak-replicated/roles/boot"
)

// PublishRequest asks for a staged volume at a Pod's path.
type PublishRequest struct {
	Volume   string `json:"volume"`
	Staging  string `json:"staging"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly"`
}

// ErrNotStaged says that the volume is not mounted at its staging path, or that
// the mount there is dead: it has to be staged (again).
var ErrNotStaged = errors.New("not staged by this owner")

// Publish makes a staged volume appear at a target. It can be repeated; a dead
// mount at the target is replaced.
func (o *Owner) Publish(ctx context.Context, q PublishRequest) error {
	from, err := o.open(q.Staging)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%s: %w", q.Staging, ErrNotStaged)
	}
	if err != nil {
		return err
	}
	defer from.Close()
	t, err := o.open(q.Target)
	if err != nil {
		return err
	}
	defer t.Close()
	// Unstaging must not come between the look at what is staged and the bind: what
	// is below it would be published, or what is published would be taken away.
	unlock, err := o.busy.LockAll(ctx, q.Staging, q.Target)
	if err != nil {
		return err
	}
	defer unlock()
	staged, err := o.staged(q)
	if err != nil {
		return err
	}
	if o.mounted(q.Target) != nil {
		return fmt.Errorf("%s: %w: a volume is staged there", q.Target, ErrConflict)
	}
	top, err := topOf(q.Target)
	if err != nil {
		return err
	}
	if top.kind == ours && top.Device == staged.Device {
		if top.ReadOnly != q.ReadOnly {
			return fmt.Errorf("%s: %w: it is published there with read-only %v", q.Target, ErrConflict, top.ReadOnly)
		}
		return nil
	}
	if _, err := o.takeDead(t, q.Volume); err != nil {
		return err
	}
	if err := guard(t); err != nil {
		return err
	}
	return bind(from, staged, t, q.ReadOnly)
}

// staged returns the mount at the staging path if it serves that volume.
func (o *Owner) staged(q PublishRequest) (mounts.Mount, error) {
	m := o.mounted(q.Staging)
	if m == nil || !m.alive() {
		return mounts.Mount{}, fmt.Errorf("%s: %w", q.Staging, ErrNotStaged)
	}
	if m.spec.Volume != q.Volume {
		return mounts.Mount{}, fmt.Errorf("%s: %w: volume %s is staged there", q.Staging, ErrConflict, m.spec.Volume)
	}
	select {
	case <-m.up:
	default:
		return mounts.Mount{}, fmt.Errorf("%s: %w: it does not serve yet", q.Staging, ErrNotStaged)
	}
	top, err := topOf(q.Staging)
	if err == nil && top.kind != ours {
		err = fmt.Errorf("%s: %w", q.Staging, ErrNotStaged)
	}
	return top.Mount, err
}

// serves reports whether a filesystem is one of this owner's.
func (o *Owner) serves(device string) bool {
	for _, st := range o.Mounts() {
		if top, err := topOf(st.Mountpoint); err == nil && top.kind == ours && top.Device == device {
			return true
		}
	}
	return false
}

// bind mounts what is at one place at another, read-only from its first moment if
// asked. It makes no request to the filesystem: its server is this process.
func bind(from *mounts.Target, staged mounts.Mount, to *mounts.Target, readOnly bool) error {
	source, err := from.Folder()
	if err != nil {
		return err
	}
	defer source.Close()
	if has, err := staged.Has(source); err != nil || !has {
		return errors.Join(fmt.Errorf("%s: %w", from.Path, ErrNotStaged), err) // another folder has come in its place
	}
	target, err := to.Folder()
	if err != nil {
		return err
	}
	defer target.Close()
	return mounts.Bind(source, target, readOnly)
}

// guardName is what a guard's mount is called.
const guardName = boot.Name

// guard makes sure that a bare folder can't be written: whatever looks at it when
// the volume is not mounted there meets an empty read-only filesystem.
func guard(t *mounts.Target) error {
	top, err := topOf(t.Path)
	if err != nil || top.kind != nothing {
		return err
	}
	if err := t.Mkdir(0o750); err != nil {
		return placeError(err)
	}
	at, err := t.Folder()
	if err != nil {
		return placeError(err)
	}
	defer at.Close()
	if err := unix.Mount(guardName, fmt.Sprintf("/proc/self/fd/%d", at.Fd()), "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2,mode=0555"); err != nil {
		return fmt.Errorf("guard %s: %w", t.Path, err)
	}
	return nil
}

// unguard takes the guard away.
func unguard(t *mounts.Target) error {
	for {
		top, err := topOf(t.Path)
		switch {
		case err != nil:
			return err
		case top.kind != guarding:
			return nil
		}
		if err := t.Unmount(unix.MNT_DETACH); err != nil {
			return fmt.Errorf("guard: %w", err)
		}
	}
}

// Unpublish takes a volume away from a target, and the empty folder. What is gone
// is fine. The error is a *BusyError while a process uses it, unless the volume
// does not answer: then the target is let go of at once; ErrConflict when another
// volume is there, or one that is staged and not published.
func (o *Owner) Unpublish(ctx context.Context, volume, target string) error {
	t, err := o.open(target)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	unlock, err := o.busy.Lock(ctx, target)
	if err != nil {
		return err
	}
	defer unlock()
	if o.mounted(target) != nil {
		return fmt.Errorf("%s: %w: a volume is staged there", target, ErrConflict)
	}
	for {
		top, err := topOf(target)
		switch {
		case err != nil:
			return err
		case top.kind == foreign:
			return fmt.Errorf("%s: %w: of type %s", target, ErrConflict, top.Type)
		case top.kind == ours && !top.of(volume):
			return fmt.Errorf("%s: %w: volume %s is published there", target, ErrConflict, top.volume())
		case top.kind == ours:
			err = o.unbind(ctx, t, top.Device)
		case top.kind == guarding:
			err = unguard(t)
		default:
			// A folder only, an empty one, and nothing is mounted there.
			return t.Rmdir()
		}
		if err != nil {
			return err
		}
	}
}

func (o *Owner) unbind(ctx context.Context, t *mounts.Target, device string) error {
	err := at{t}.unmount()
	if !errors.Is(err, kernel.ErrBusy) {
		return err
	}
	if m := o.byDevice(device); m != nil && m.answers(ctx) {
		return &BusyError{Mountpoint: t.Path, Holders: Holders(t.Path)}
	}
	return t.Unmount(unix.MNT_DETACH)
}

// byDevice finds the mount of a filesystem.
func (o *Owner) byDevice(device string) *mount {
	o.mu.Lock()
	defer o.mu.Unlock()
	for path, m := range o.mu.mounts {
		if top, err := topOf(path); err == nil && top.kind == ours && top.Device == device {
			return m
		}
	}
	return nil
}

// answerPatience is how long a volume has to answer before it counts as hung.
const answerPatience = 2 * time.Second

// answers reports whether the volume answers now.
func (m *mount) answers(ctx context.Context) bool {
	_, err := m.ask(ctx, &fsop.GetAttr{Ino: fsop.Root})
	return err == nil
}

// ask asks the volume, through its session and not through the kernel: a process
// must not wait for a mount that it serves.
func (m *mount) ask(ctx context.Context, op fsop.Op) (*fsop.Reply, error) {
	s := m.session.Load()
	if s == nil {
		return nil, ErrNotMounted
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	rep, err := s.Call(ctx, &fsop.Request{Op: op})
	if err == nil && rep.Errno != fsop.OK {
		err = rep.Errno
	}
	return rep, err
}

// Usage is how full a volume is.
type Usage struct {
	Bytes      uint64 `json:"bytes"`
	BytesFree  uint64 `json:"bytesFree"`
	Inodes     uint64 `json:"inodes"`
	InodesFree uint64 `json:"inodesFree"`
	// Abnormal says why the volume does not answer; the numbers are 0 then.
	Abnormal string `json:"abnormal,omitempty"`
}

// Stats tells how full the volume at a path is. It is bounded in time: a volume
// that does not answer is Abnormal.
func (o *Owner) Stats(ctx context.Context, volume, path string) (*Usage, error) {
	if err := o.check(path); err != nil {
		return nil, err
	}
	top, err := topOf(path)
	if err != nil {
		return nil, err
	}
	if top.kind != ours || !top.of(volume) {
		return nil, fmt.Errorf("%s: %w", path, ErrNotMounted)
	}
	m := o.byDevice(top.Device)
	if m == nil {
		return &Usage{Abnormal: "nobody serves the mount any more; it is replaced when the volume is staged or published again"}, nil
	}
	rep, err := m.ask(ctx, &fsop.StatFSQuery{})
	if err != nil {
		return &Usage{Abnormal: err.Error()}, nil
	}
	return &Usage{Bytes: rep.FS.Bytes, BytesFree: rep.FS.BytesFree, Inodes: rep.FS.Inodes, InodesFree: rep.FS.InodesFree}, nil
}
