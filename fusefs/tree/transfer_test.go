package tree_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"testing"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// send copies a checkpoint in pieces and calls between every few of them. It
// returns false when between does: the transfer breaks off.
func send(t *testing.T, r *tree.CheckpointReader, w *tree.CheckpointWriter, between func() bool) (sent int, whole bool) {
	t.Helper()
	for {
		p, err := r.Next()
		if err == io.EOF {
			return sent, true
		}
		if err != nil {
			t.Fatal(err)
		}
		at, err := w.Have(p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := r.Open(p.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for at < p.Size {
			if !between() {
				f.Close()
				return sent, false
			}
			if n, err := sendHole(p, f, w, at); err != nil {
				t.Fatal(err)
			} else if n > 0 {
				at += n
				continue
			}
			buf := make([]byte, min(p.Size-at, 5000))
			n, readAt, err := f.ReadAt(buf, int64(at))
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			if err := w.Write(p, at, buf[:n], readAt); err != nil {
				t.Fatal(err)
			}
			at += uint64(n)
			sent += n
		}
		f.Close()
	}
}

// sendTo copies a checkpoint until the receiver refuses something.
func sendTo(r *tree.CheckpointReader, w *tree.CheckpointWriter) error {
	for {
		p, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		at, err := w.Have(p)
		if err != nil {
			return err
		}
		f, err := r.Open(p.Name)
		if err != nil {
			return err
		}
		for buf := make([]byte, 64<<10); at < p.Size; {
			if n, err := sendHole(p, f, w, at); err != nil {
				f.Close()
				return err
			} else if n > 0 {
				at += n
				continue
			}
			n, readAt, err := f.ReadAt(buf[:min(p.Size-at, uint64(len(buf)))], int64(at))
			if err == nil || err == io.EOF {
				err = w.Write(p, at, buf[:n], readAt)
			}
			if err != nil {
				f.Close()
				return err
			}
			at += uint64(n)
		}
		f.Close()
	}
}

// sendHole sends a hole as raftlog/snapshot does.
func sendHole(p tree.Part, f tree.PartReader, w *tree.CheckpointWriter, at uint64) (n uint64, err error) {
	if p.Data == p.Size {
		return 0, nil
	}
	n, readAt, err := f.Hole(at)
	if n = min(n, p.Size-at); err != nil || n == 0 {
		return 0, err
	}
	return n, w.Hole(p, at, n, readAt)
}

// TestTransfer sends checkpoints to an empty replica while the sender applies
// on, in broken-off rounds, with a power cut of the receiver before and after
// installing. The receiver replays to the same digest (DESIGN §3, CONTRACT C3, C4).
func TestTransfer(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			transfer(t, seed)
		})
	}
}

// sendWhole sends a tree's checkpoint to another one, which then has all of it and has
// not installed it. It returns that, and the last entry that the contents may show.
func sendWhole(t *testing.T, sender, receiver *tree.Tree) (*tree.CheckpointWriter, uint64) {
	t.Helper()
	r, err := sender.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := receiver.Receive(r.Meta())
	if err != nil {
		t.Fatal(err)
	}
	send(t, r, w, func() bool { return true })
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return w, r.NewestIndex()
}

func transfer(t *testing.T, seed uint64) {
	const n = 600
	h := newHistory(t, seed+50, n)
	d := dice(seed)
	sender := openTree(t, disk.NewMem(1), "sender")
	h.replay(t, sender, 100)
	checkpoint(t, sender)
	h.replay(t, sender, 150)

	mem := disk.NewMem(seed)
	receiver := openTree(t, mem, "receiver")
	applied := uint64(150)
	for {
		r, err := sender.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		w, err := receiver.Receive(tree.Meta(r.Meta()))
		if err != nil {
			t.Fatal(err)
		}
		_, whole := send(t, r, w, func() bool {
			if applied < n-100 && d.one(3) {
				applied++
				h.replay(t, sender, applied)
				if d.one(40) {
					checkpoint(t, sender)
				}
			}
			return !d.one(150)
		})
		if whole {
			if err := w.Finish(); err != nil {
				t.Fatal(err)
			}
			index := r.Meta().Index
			r.Close()
			if d.one(2) { // finished, but never installed: the parts serve again
				receiver.Close()
				mem = mem.Crash(disk.Keep(d.below(3)))
				receiver = openTree(t, mem, "receiver")
				continue
			}
			if err := receiver.Install(w, applied); err != nil {
				t.Fatal(err)
			}
			if got, _ := receiver.Applied(); got != index {
				t.Fatalf("installed %d, shows %d", index, got)
			}
			break
		}
		r.Close()
		if d.one(2) {
			if err := w.Abort(); err != nil {
				t.Fatal(err)
			}
		} else {
			mem = mem.Crash(disk.Keep(d.below(3)))
			receiver.Close()
			receiver = openTree(t, mem, "receiver")
		}
	}
	if d.one(2) {
		mem = mem.Crash(disk.Keep(d.below(3)))
		receiver.Close()
		receiver = openTree(t, mem, "receiver")
	}
	if receiver.Ready() != (appliedBy(receiver) >= applied) {
		t.Fatalf("ready at %d, the sender had applied %d", appliedBy(receiver), applied)
	}
	h.replay(t, receiver, n)
	if err := receiver.Check(); err != nil {
		t.Fatal(err)
	}
	if digest(t, receiver) != h.digests[n] {
		t.Fatal("digest differs")
	}
}

func appliedBy(tr *tree.Tree) uint64 {
	index, _ := tr.Applied()
	return index
}

// newSender returns a tree with some history and a checkpoint.
func newSender(t *testing.T) *tree.Tree {
	h := newHistory(t, 7, 300)
	sender := openTree(t, disk.NewMem(1), "sender")
	h.replay(t, sender, 300)
	checkpoint(t, sender)
	return sender
}

// TestResumeSendsLittle: what arrived before a break is not sent again, unless
// it changed.
func TestResumeSendsLittle(t *testing.T) {
	sender := newSender(t)
	receiver := openTree(t, disk.NewMem(2), "receiver")
	round := func(stop int) int {
		r, err := sender.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		w, err := receiver.Receive(r.Meta())
		if err != nil {
			t.Fatal(err)
		}
		pieces := 0
		sent, _ := send(t, r, w, func() bool { pieces++; return pieces < stop })
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
		return sent
	}
	all := round(1 << 30)
	if again := round(1 << 30); again != 0 {
		t.Fatalf("the second round sent %d bytes of %d", again, all)
	}
	// A new checkpoint: its store goes, and what changed of the contents.
	checkpointAfter(t, sender, 301)
	if third := round(1 << 30); third == 0 || third > all {
		t.Fatalf("the third round sent %d bytes, the first %d", third, all)
	}
}

// TestReceiveFailedSync: of what a failed sync may have left out nothing counts as
// received, though a later sync of the same files succeeds.
func TestReceiveFailedSync(t *testing.T) {
	sender := newSender(t)
	mem := disk.NewMem(2)
	failing := false
	receiver := openTree(t, disk.Inject(mem, func(c disk.Call) error {
		if failing && c.Op == disk.OpSync {
			failing = false
			return syscall.EIO
		}
		return nil
	}), "receiver")
	defer receiver.Close()
	receive := func() (*tree.CheckpointWriter, int) {
		r, err := sender.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		w, err := receiver.Receive(r.Meta())
		if err != nil {
			t.Fatal(err)
		}
		sent, _ := send(t, r, w, func() bool { return true })
		return w, sent
	}
	w, all := receive()
	failing = true
	if err := w.Finish(); !errors.Is(err, disk.ErrNotDurable) {
		t.Fatalf("finished with a failed sync: %v", err)
	}
	if err := w.Abort(); !errors.Is(err, disk.ErrNotDurable) {
		t.Fatalf("aborted with a failed sync: %v", err)
	}
	if _, again := receive(); again != all {
		t.Fatalf("%d bytes were sent again of %d", again, all)
	}
}

func checkpointAfter(t *testing.T, tr *tree.Tree, index uint64) {
	t.Helper()
	if _, err := tr.Apply(index, 1, nil); err != nil {
		t.Fatal(err)
	}
	checkpoint(t, tr)
}

// TestInstallIsAtomic cuts the power before each call to the disk that
// installing makes: what comes back is the old state or the new one.
func TestInstallIsAtomic(t *testing.T) {
	h := newHistory(t, 3, 400)
	sender := openTree(t, disk.NewMem(1), "sender")
	h.replay(t, sender, 350)
	checkpoint(t, sender)

	mem := disk.NewMem(9)
	var mu sync.Mutex // the store deletes old files in a goroutine of its own
	var cuts []*disk.Mem
	cutting := false
	fsys := disk.Inject(mem, func(c disk.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if cutting && c.Op != disk.OpRead && c.Op != disk.OpStat {
			cuts = append(cuts, mem.CrashClone(disk.KeepSome), mem.CrashClone(disk.KeepNone))
		}
		return nil
	})
	receiver := openTree(t, fsys, "receiver")
	h.replay(t, receiver, 50)
	checkpoint(t, receiver)
	r, err := sender.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	w, err := receiver.Receive(r.Meta())
	if err != nil {
		t.Fatal(err)
	}
	send(t, r, w, func() bool { return true })
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	cut := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		cutting = on
	}
	cut(true)
	if err := receiver.Install(w, 350); err != nil {
		t.Fatal(err)
	}
	cut(false)
	receiver.Close()
	seen := map[uint64]int{}
	for i, c := range cuts {
		tr := openTree(t, c, "receiver")
		at := appliedBy(tr)
		seen[at]++
		if at != 50 && at != 350 {
			t.Fatalf("cut %d: restored at %d", i, at)
		}
		if i%7 == 0 {
			h.replay(t, tr, 400)
			if err := tr.Check(); err != nil {
				t.Fatalf("cut %d: %v", i, err)
			}
		}
		tr.Close()
	}
	if seen[50] == 0 || seen[350] == 0 {
		t.Fatalf("%d cuts, restored at %v", len(cuts), seen)
	}
}

// TestCheckpointOvertaken: a checkpoint that is being made, and waits for its place
// perhaps, while another one is installed is given up, and nothing comes of it.
func TestCheckpointOvertaken(t *testing.T) {
	sender := newSender(t)
	receiver := openTree(t, disk.NewMem(2), "receiver")
	if _, err := receiver.Apply(1, 1, nil); err != nil {
		t.Fatal(err)
	}
	w, _ := sendWhole(t, sender, receiver)
	finish, err := receiver.BeginCheckpoint(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Install(w, 300); err != nil {
		t.Fatal(err)
	}
	if oldest, err := finish(context.Background()); err != nil || oldest != 300 {
		t.Fatalf("the oldest checkpoint is %d, %v", oldest, err)
	}
	checkpointAfter(t, receiver, 301)
}

// TestCheckpointsKept: two stay, and the one being sent, which holds up neither the
// journal nor the records of SUMS.
func TestCheckpointsKept(t *testing.T) {
	tr := openTree(t, disk.NewMem(1), "replica")
	oldest := func(index uint64) uint64 {
		if _, err := tr.Apply(index, 1, nil); err != nil {
			t.Fatal(err)
		}
		finish, err := tr.BeginCheckpoint(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.BeginCheckpoint(nil); err == nil {
			t.Fatal("two checkpoints in the making")
		}
		o, err := finish(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if got := []uint64{oldest(1), oldest(2), oldest(3)}; got[0] != 1 || got[1] != 1 || got[2] != 2 {
		t.Fatalf("oldest kept: %v", got)
	}
	r, err := tr.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if got := []uint64{oldest(4), oldest(5), oldest(6)}; got[1] != 4 || got[2] != 5 {
		t.Fatalf("oldest needed while 3 is sent: %v", got)
	}
	if _, err := r.Next(); err != nil {
		t.Fatalf("the one being sent is gone: %v", err)
	}
	r.Close()
	if got := oldest(7); got != 6 {
		t.Fatalf("oldest kept: %d", got)
	}
}
