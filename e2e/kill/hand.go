package kill

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Op names a system call.
type Op uint32

// The calls that a load makes.
const (
	opOpen Op = iota
	opClose
	opRead
	opWrite
	opFsync
	opRename
	opLink
	opUnlink
	opStat
	opMkdir
	opRmdir
	opList
	opFlock
	opTruncate
	opCount
)

var opNames = [opCount]string{"open", "close", "read", "write", "fsync", "rename", "link", "unlink", "stat", "mkdir", "rmdir", "list", "flock", "truncate"}

func (o Op) String() string {
	if o < opCount {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", uint32(o))
}

// slowFrom is from when on an operation is reported by itself.
const slowFrom = 20 * time.Millisecond

// Slow is one operation that took long.
type Slow struct {
	Hand  string
	Op    string
	Start int64 // as now
	Took  time.Duration
}

// hand is one thread of the load: it makes system calls, one at a time, below
// one mount.
type hand struct {
	name  string
	mount string // the mountpoint that it works through
	slot  *slot
	rand  *rand.Rand
	pause time.Duration // at most, between two operations

	mu   sync.Mutex // guards slow, which the round reads while hands of the whole load go on
	slow []Slow
}

// call makes one system call and takes its time. The error names call, path and
// time; errors.Is finds the errno.
func (h *hand) call(op Op, path string, f func() error) error {
	start := now()
	h.slot.op.Store(uint32(op))
	h.slot.started.Store(start)
	err := f()
	took := time.Duration(now() - start)
	h.slot.started.Store(0)
	h.slot.done.Add(1)
	if took >= slowFrom {
		h.mu.Lock()
		h.slow = append(h.slow, Slow{h.name, op.String(), start, took})
		h.mu.Unlock()
	}
	if err != nil {
		err = fmt.Errorf("%s: %s %s after %v: %w", h.name, op, path, took.Round(time.Millisecond), err)
	}
	h.rest()
	return err
}

// rest leaves the machine to others for a moment.
func (h *hand) rest() { time.Sleep(time.Duration(h.rand.Int64N(int64(h.pause) + 1))) }

func (h *hand) takeSlow() []Slow {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.slow
	h.slow = nil
	return s
}

// at is a path below the hand's mount.
func (h *hand) at(rel string) string { return filepath.Join(h.mount, rel) }

func (h *hand) open(rel string, flags int) (fd int, err error) {
	err = h.call(opOpen, rel, func() (err error) {
		fd, err = unix.Open(h.at(rel), flags|unix.O_CLOEXEC, 0o644)
		return err
	})
	return fd, err
}

func (h *hand) close(fd int) error {
	return h.call(opClose, "", func() error { return unix.Close(fd) })
}

// write makes one write call, which must take everything; at -1 it goes where
// the descriptor stands.
func (h *hand) write(fd int, data []byte, at int64) error {
	return h.call(opWrite, "", func() error {
		var n int
		var err error
		if at < 0 {
			n, err = unix.Write(fd, data)
		} else {
			n, err = unix.Pwrite(fd, data, at)
		}
		if err == nil && n != len(data) {
			return fmt.Errorf("%d of %d bytes", n, len(data))
		}
		return err
	})
}

func (h *hand) readAt(fd int, size int, at int64) ([]byte, error) {
	data := make([]byte, size)
	var n int
	err := h.call(opRead, "", func() (err error) {
		n, err = unix.Pread(fd, data, at)
		return err
	})
	return data[:max(n, 0)], err
}

func (h *hand) fsync(fd int) error {
	return h.call(opFsync, "", func() error { return unix.Fsync(fd) })
}

func (h *hand) rename(from, to string) error {
	return h.call(opRename, from+" "+to, func() error { return unix.Rename(h.at(from), h.at(to)) })
}

func (h *hand) renameNoReplace(from, to string) error {
	return h.call(opRename, from+" "+to+" (noreplace)", func() error {
		return unix.Renameat2(unix.AT_FDCWD, h.at(from), unix.AT_FDCWD, h.at(to), unix.RENAME_NOREPLACE)
	})
}

func (h *hand) link(from, to string) error {
	return h.call(opLink, from+" "+to, func() error { return unix.Link(h.at(from), h.at(to)) })
}

func (h *hand) unlink(rel string) error {
	return h.call(opUnlink, rel, func() error { return unix.Unlink(h.at(rel)) })
}

func (h *hand) mkdir(rel string) error {
	return h.call(opMkdir, rel, func() error { return unix.Mkdir(h.at(rel), 0o755) })
}

func (h *hand) rmdir(rel string) error {
	return h.call(opRmdir, rel, func() error { return unix.Rmdir(h.at(rel)) })
}

func (h *hand) stat(rel string) (st unix.Stat_t, err error) {
	err = h.call(opStat, rel, func() error { return unix.Lstat(h.at(rel), &st) })
	return st, err
}

// links wants a file to have that many links.
func (h *hand) links(rel string, want int) error {
	st, err := h.stat(rel)
	if err == nil && int(st.Nlink) != want {
		err = fmt.Errorf("%s: %s has %d links, not %d", h.name, rel, st.Nlink, want)
	}
	return err
}

// want turns an error that is expected into none, and everything else into one.
func want(errno syscall.Errno, err error) error {
	switch {
	case errors.Is(err, errno):
		return nil
	case err == nil:
		return fmt.Errorf("it succeeded instead of %q", errno)
	}
	return err
}

// only wants exactly one of two outcomes to be good and the other one errno,
// and returns which was good.
func only(errno syscall.Errno, errs [2]error) (winner int, err error) {
	for i := range errs {
		if errs[i] == nil {
			if errs[1-i] == nil {
				return 0, errors.New("both of two that race have won")
			}
			return i, want(errno, errs[1-i])
		}
	}
	return 0, fmt.Errorf("neither of two that race has won: %w", errors.Join(errs[0], errs[1]))
}
