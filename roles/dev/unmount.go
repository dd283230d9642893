package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/roles/mountowner"
)

const (
	// busyPatience is how long a busy mount is waited for before it is detached.
	busyPatience = 5 * time.Second
	busyRetry    = 200 * time.Millisecond
	// unmountTimeout bounds one call to a mount owner.
	unmountTimeout = 10 * time.Second
	// letGoPatience is how long the mount owner is waited for after everything
	// was unmounted and it was told to end.
	letGoPatience = 2 * time.Second
)

// letGo waits for the end of the mount owner in this process, but not for ever:
// a process that has its own copy of the mounts, such as a container that was
// started meanwhile, keeps the kernel's side of them, which ends with dev.
func (s *system) letGo(patience time.Duration) {
	if s.ownerEnded == nil {
		return
	}
	select {
	case <-s.ownerEnded:
	case <-time.After(patience):
		fmt.Fprintf(s.errOut, "%s is also mounted in another mount namespace, where it answers ENOTCONN from now on\n", strings.Join(s.cfg.mountpoints(), " "))
	}
}

// unmountAll unmounts everything. A mount that is busy is waited for, then
// detached: its users keep what they have until they let go or get ENOTCONN.
func (s *system) unmountAll(ctx context.Context) error {
	var errs []error
	deadline := time.Now().Add(busyPatience)
	for i, o := range s.owners {
		if err := s.unmount(ctx, o, s.cfg.mountpoint(i+1), deadline); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *system) unmount(ctx context.Context, o owner, mnt string, deadline time.Time) error {
	told := false
	for {
		err := unmountOnce(ctx, o, mnt, false)
		var busy *mountowner.BusyError
		if !errors.As(err, &busy) {
			if err != nil && !errors.Is(err, mountowner.ErrNotMounted) {
				s.log.Warn("the mount owner does not unmount", zap.String("mountpoint", mnt), zap.Error(err))
			}
			return clearMount(mnt) // what the owner can't do any more the kernel can
		}
		if time.Now().After(deadline) {
			fmt.Fprintf(s.errOut, "%s is still busy, detaching it\n", mnt)
			return errors.Join(unmountOnce(ctx, o, mnt, true), clearMount(mnt))
		}
		if !told {
			told = true
			fmt.Fprintf(s.errOut, "%s is busy, waiting up to %s: %s\n", mnt, busyPatience, names(busy.Holders))
		}
		time.Sleep(busyRetry)
	}
}

func unmountOnce(ctx context.Context, o owner, mnt string, detach bool) error {
	ctx, cancel := context.WithTimeout(ctx, unmountTimeout)
	defer cancel()
	return o.Unmount(ctx, mnt, detach)
}

func names(holders []mountowner.Holder) string {
	if len(holders) == 0 {
		return "by a process that can't be seen from here"
	}
	var all []string
	for _, h := range holders {
		all = append(all, h.String())
	}
	return strings.Join(all, ", ")
}

// fsType is the type under which mounts of this program are listed.
const fsType = "fuse.tak-replicated"

// clearStale takes away what an earlier dev left mounted, at its mountpoints
// and at these, once its mount owners have ended: they unmount by path.
func clearStale(ctx context.Context, dir string, mountpoints []string) error {
	if r, err := ReadRuntime(dir); err == nil {
		for _, m := range r.Mounts {
			if err := mountowner.AwaitGone(ctx, m.Socket); err != nil {
				return err
			}
			mountpoints = append(mountpoints, m.Mountpoint)
		}
	}
	for _, mnt := range mountpoints {
		if err := clearMount(mnt); err != nil {
			return err
		}
	}
	return nil
}

// clearMount detaches every mount of this program at mnt. It does not look at
// the mount itself, which may not answer.
func clearMount(mnt string) error {
	for range mountsMost {
		mounted, err := mountedHere(mnt)
		if err != nil || !mounted {
			return err
		}
		if err := unix.Unmount(mnt, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("take away what is mounted at %s: %w", mnt, err)
		}
	}
	return nil
}

// mountedHere reports whether a mount of this program is at exactly mnt.
func mountedHere(mnt string) (bool, error) {
	typ, _, err := mountedAt(mnt)
	return typ == fsType, err
}

// mountedAt returns type and source of what is mounted at exactly mnt; the type is
// empty if nothing is.
func mountedAt(mnt string) (typ, source string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if point, t, s := mountOf(lines.Text()); point == mnt {
			typ, source = t, s // the last one is on top
		}
	}
	return typ, source, lines.Err()
}

// mountOf returns mountpoint, type and source of a line of mountinfo (proc(5)).
func mountOf(line string) (point, typ, source string) {
	head, tail, ok := strings.Cut(line, " - ")
	fields, what := strings.Fields(head), strings.Fields(tail)
	if !ok || len(fields) < 5 || len(what) < 2 {
		return "", "", ""
	}
	return unescape.Replace(fields[4]), what[0], unescape.Replace(what[1])
}

// unescape undoes what the kernel does to blanks in paths.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
