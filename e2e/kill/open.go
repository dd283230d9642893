package kill

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// cells of a file that stays open, each holding the number that was written last.
const (
	cells     = 64
	cellBytes = 32
)

// keptOpen is a file that stays open over all rounds, one without a name beside
// it, and a lock on the first.
type keptOpen struct {
	*load
	h, other *hand // the one that has it open, and one on the other mount
	fd       int   // 0: not opened yet
	orphan   int
	peer     int // the same file, open through the other mount
	n        int
}

func (k *keptOpen) begin() (err error) {
	name := fmt.Sprintf("kept-%s-%d", k.h.name, os.Getpid()) // a load that was killed leaves its own
	if k.fd, err = k.h.open(name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR); err != nil {
		return err
	}
	if k.orphan, err = k.h.open(name+".gone", unix.O_CREAT|unix.O_EXCL|unix.O_RDWR); err != nil {
		return err
	}
	if err := k.h.unlink(name + ".gone"); err != nil {
		return err
	}
	if k.peer, err = k.other.open(name, unix.O_RDWR); err != nil {
		return err
	}
	return k.h.call(opFlock, name, func() error { return unix.Flock(k.fd, unix.LOCK_EX|unix.LOCK_NB) })
}

// step writes the next number everywhere and reads it back.
func (k *keptOpen) step(int) error {
	if k.fd == 0 {
		if err := k.begin(); err != nil {
			return err
		}
	}
	n := k.n
	k.n++
	at := int64(n%cells) * cellBytes
	cell := fmt.Appendf(nil, "%-*d", cellBytes, n)
	for _, fd := range []int{k.fd, k.orphan} {
		if err := k.h.write(fd, cell, at); err != nil {
			return err
		}
		if err := sameCell(k.h, fd, cell, at); err != nil {
			return err
		}
	}
	if err := sameCell(k.other, k.peer, cell, at); err != nil {
		return err
	}
	if n%syncEvery == 0 {
		if err := k.h.fsync(k.fd); err != nil {
			return err
		}
	}
	if n%4 != 0 {
		return nil
	}
	err := k.other.call(opFlock, "kept", func() error { return unix.Flock(k.peer, unix.LOCK_EX|unix.LOCK_NB) })
	if err := want(unix.EWOULDBLOCK, err); err != nil {
		return fmt.Errorf("%s takes a lock that is held: %w", k.other.name, err)
	}
	return nil
}

func sameCell(h *hand, fd int, cell []byte, at int64) error {
	got, err := h.readAt(fd, len(cell), at)
	if err == nil && string(got) != string(cell) {
		err = fmt.Errorf("%s reads %q at %d where %q was written", h.name, got, at, cell)
	}
	return err
}

// end closes everything; the orphan still has no links.
func (k *keptOpen) end() error {
	if k.fd == 0 {
		return nil
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(k.orphan, &st); err != nil || st.Nlink != 0 {
		return fmt.Errorf("%s: an unlinked file has %d links: %v", k.h.name, st.Nlink, err)
	}
	for _, fd := range []int{k.fd, k.orphan, k.peer} {
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("%s: close: %w", k.h.name, err)
		}
	}
	return nil
}
