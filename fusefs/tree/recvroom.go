package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// receiving is what a tree knows of its folder "recv": a checkpoint on its way needs
// room beside the state that the replica has, and takes it until it is installed or
// nobody goes on with it.
type receiving struct {
	mu     sync.Mutex
	there  bool
	active bool   // a writer is open
	index  uint64 // up to where the state would have to be for nobody to need it
	full   int    // transfers that found no room, see beginsAnew
}

// NoRoomError says that a checkpoint can't be received beside what is there.
type NoRoomError struct {
	Dir                 string
	Of                  string // bytes, or inodes:
	Free, Reserve, More uint64 // those that are free, kept from files, and needed at least
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("no room in %s for a second copy of the files beside the present one: %d %s are free, "+
		"of which %d are kept for journal and checkpoints, and at least %d more are needed: make room on that disk, "+
		"or replace the replica by one on a larger disk", e.Dir, e.Free, e.Of, e.Reserve, e.More)
}

// roomStep is how much is received between two looks at the disk.
const roomStep = 16 << 20

// filesStep is more files than come with that many bytes: shorter ones are in the store.
const filesStep = roomStep / pageSize

// checkRoom makes sure that more bytes fit the disk and leave the reserve alone. It
// looks at the disk only when what it saw last is used up.
func (w *CheckpointWriter) checkRoom(more uint64) error {
	if more <= w.room {
		w.room -= more
		return nil
	}
	usable, err := w.usable(more)
	if err != nil {
		return err
	}
	w.room = min(usable-more, roomStep)
	return nil
}

// usable is what may be received yet; it is an error if that is less than more, also
// without what nobody needs any more.
func (w *CheckpointWriter) usable(more uint64) (uint64, error) {
	usable, err := w.look(more)
	var full *NoRoomError
	if !errors.As(err, &full) {
		return usable, err
	}
	if usable, err = w.lookAgain(more, w.newest); !errors.As(err, &full) || !w.t.beginsAnew() {
		return usable, err
	}
	return w.lookAgain(more, math.MaxUint64)
}

// lookAgain removes what was given up, and what this transfer has not asked for among
// the contents below an inode, and takes another look at the disk.
func (w *CheckpointWriter) lookAgain(more uint64, below fsop.Ino) (uint64, error) {
	err := w.c.each(func(ino fsop.Ino) error {
		name := contentName(ino)
		if e := w.parts.get(name); !e.here || !e.seen && ino < below {
			w.drop(name)
		}
		if len(w.stale) >= unsyncedPartsMax {
			return w.clearStale()
		}
		return nil
	})
	if err == nil {
		err = w.clearStale()
	}
	if err != nil {
		return 0, fmt.Errorf("make room: %w", err)
	}
	return w.look(more)
}

// beginsAnew says whether a transfer without room gives up all that it has not asked
// for yet. One does, after one that left it for the next: it may be that the sender has
// nothing of it any more.
func (t *Tree) beginsAnew() bool {
	t.recv.mu.Lock()
	defer t.recv.mu.Unlock()
	t.recv.full++
	return t.recv.full == 2
}

// look takes a look at the disk.
func (w *CheckpointWriter) look(more uint64) (uint64, error) {
	u, err := w.t.fs.Usage(w.t.cfg.Dir)
	if err != nil {
		return 0, fmt.Errorf("look for room: %w", err)
	}
	usable := u.AvailBytes - min(u.AvailBytes, w.t.cfg.ReserveBytes)
	if usable < more {
		return 0, &NoRoomError{w.t.cfg.Dir, "bytes", u.AvailBytes, w.t.cfg.ReserveBytes, more}
	}
	if spare := SpareInodes(u.TotalInodes, u.FreeInodes); spare < filesStep {
		return 0, &NoRoomError{w.t.cfg.Dir, "inodes", u.FreeInodes, keptInodes(u.TotalInodes), filesStep}
	}
	return usable, nil
}

// expect refuses parts that do not fit the disk before they are sent: those that are asked
// for together. n bytes of one more are lacking.
func (w *CheckpointWriter) expect(n uint64) error {
	if !w.asking {
		w.asking, w.expected = true, 0
	}
	w.expected += n
	if w.expected <= roomStep {
		return nil
	}
	_, err := w.usable(w.expected)
	return err
}

// beginReceiving notes that a checkpoint is on its way.
func (t *Tree) beginReceiving(index uint64) {
	t.recv.mu.Lock()
	defer t.recv.mu.Unlock()
	t.recv.there, t.recv.active, t.recv.index = true, true, max(t.recv.index, index)
}

// endReceiving notes that it is not any more; installed: it went into its place.
func (t *Tree) endReceiving(installed bool) {
	t.recv.mu.Lock()
	defer t.recv.mu.Unlock()
	t.recv.active = false
	if installed {
		t.recv.there, t.recv.index, t.recv.full = false, 0, 0
	}
}

// findReceived looks at a start whether anybody may go on with what is in "recv".
func (t *Tree) findReceived() error {
	t.recv.there, t.recv.index = true, 0
	f, err := t.fs.Open(t.fs.PathJoin(t.cfg.Dir, recvDir, progressFile))
	if err == nil {
		_, err = eachProgress(f, func(_ string, r received) {
			// What was sent was at least as new as the checkpoint.
			if r.have > 0 && r.readAt < neverRead {
				t.recv.index = max(t.recv.index, r.readAt)
			}
		})
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at what was received: %w", err)
	}
	return t.dropReceived(t.g.applied)
}

// dropReceived removes what was received of a checkpoint when the state has come to
// that place in another way.
func (t *Tree) dropReceived(index uint64) error {
	t.recv.mu.Lock()
	defer t.recv.mu.Unlock()
	if !t.recv.there || t.recv.active || t.recv.index > index {
		return nil
	}
	if err := t.fs.RemoveAll(t.fs.PathJoin(t.cfg.Dir, recvDir)); err != nil {
		return fmt.Errorf("remove what was received: %w", err)
	}
	t.recv.there, t.recv.index, t.recv.full = false, 0, 0
	return nil
}
