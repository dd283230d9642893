package tree_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// damagedSender is a replica of which page 1 of inode 2 was changed in part after its
// checkpoint, and damaged since. replayed says whether it has passed its fence.
func damagedSender(t *testing.T, replayed bool, damage func(mem *disk.Mem), repair func(*newer, *tree.Tree) tree.Repair) (*newer, *tree.Tree) {
	t.Helper()
	n := newNewer(t, 5, 5)
	cfg := tree.Config{FS: n.mem, Dir: "replica", PendingPages: 2}
	var lazy lazyRepair
	if repair != nil {
		cfg.Repair = &lazy
	}
	last := uint64(len(n.h.entries))
	if !replayed {
		damage(n.mem)
	}
	tr, err := tree.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	if repair != nil {
		lazy.Repair = repair(n, tr)
	}
	tr.SetFence(last, 1)
	if replayed {
		n.h.replay(t, tr, last)
		damage(n.mem)
	}
	return n, tr
}

// lazyRepair is a tree.Repair that is made after its tree.
type lazyRepair struct{ tree.Repair }

func flipPage(mem *disk.Mem) {
	_ = mem.Rot(contentPath(2), pageBytes, pageBytes, func(p []byte) { p[4000] ^= 4 })
}

// damages are done to page 1 of inode 2, or to all from there on.
var damages = map[string]func(t *testing.T) func(*disk.Mem){
	"bits": func(*testing.T) func(*disk.Mem) { return flipPage },
	"zeroes": func(t *testing.T) func(*disk.Mem) {
		return func(mem *disk.Mem) {
			if err := mem.Rot(contentPath(2), pageBytes, pageBytes, func(p []byte) { clear(p) }); err != nil {
				t.Error(err)
			}
		}
	},
	"cut off": func(t *testing.T) func(*disk.Mem) {
		return func(mem *disk.Mem) {
			f, err := mem.OpenRW(contentPath(2), false)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if err := f.Truncate(pageBytes); err != nil {
				t.Error(err)
			}
		}
	},
}

// transferred sends a tree's checkpoint to a new replica, which it leaves before the
// replay.
func transferred(t *testing.T, sender *tree.Tree) (*tree.Tree, *disk.Mem) {
	t.Helper()
	mem := disk.NewMem(2)
	receiver := openTree(t, mem, "replica")
	t.Cleanup(func() { receiver.Close() })
	w, newest := sendWhole(t, sender, receiver)
	if err := receiver.Install(w, newest); err != nil {
		t.Fatal(err)
	}
	return receiver, mem
}

// pages reads all pages of inode 2, and tells which are refused. None may be wrong.
func (n *newer) pages(tr *tree.Tree) (refused []int) {
	n.Helper()
	n.h.replay(n.T, tr, uint64(len(n.h.entries)))
	for p := range newerPages {
		r, err := tr.Read(context.Background(), &fsop.Read{Ino: 2, Offset: uint64(p) * pageBytes, Length: pageBytes})
		switch {
		case err != nil:
			n.Fatal(err)
		case r.Errno == fsop.EIO:
			refused = append(refused, p)
		case !bytes.Equal(r.Data, n.want[p*pageBytes:(p+1)*pageBytes]):
			n.Errorf("page %d is wrong", p)
		}
	}
	return refused
}

// TestDamageIsNotSent damages a page of a replica that sends its checkpoint: entries
// that are replayed by the receiver change the page in part, and must not make it
// look good; neither if it loses power, nor for whom it sends it to in turn.
func TestDamageIsNotSent(t *testing.T) {
	for what, damage := range damages {
		for _, replayed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, replayed: %v", what, replayed), func(t *testing.T) {
				n, sender := damagedSender(t, replayed, damage(t), nil)
				want := []int{1}
				if what == "cut off" {
					want = []int{1, 2, 3}
				}
				receiver, mem := transferred(t, sender)
				third, _ := transferred(t, receiver)
				if got := n.pages(third); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("whoever got it from the receiver refuses pages %v, want %v", got, want)
				}
				mem = mem.CrashClone(disk.KeepSome)
				if got := n.pages(receiver); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("pages %v are refused, want %v", got, want)
				}
				again := openTree(t, mem, "replica")
				defer again.Close()
				if got := n.pages(again); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("after a power cut pages %v are refused, want %v", got, want)
				}
			})
		}
	}
}

// TestWholeIsSent: what is not damaged is not told as damaged, in the midst of a
// replay neither.
func TestWholeIsSent(t *testing.T) {
	for _, replayed := range []bool{true, false} {
		n, sender := damagedSender(t, replayed, func(*disk.Mem) {}, nil)
		receiver, _ := transferred(t, sender)
		if got := n.pages(receiver); got != nil {
			t.Errorf("replayed: %v: pages %v are refused", replayed, got)
		}
		if err := receiver.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestWholeIsSentInAReplay kills a replica at random and lets it send its checkpoint
// when it has replayed a part: whoever receives it comes to the same state.
func TestWholeIsSentInAReplay(t *testing.T) {
	const n = 200
	for seed := range uint64(20) {
		h := newHistory(t, seed+900, n)
		d := dice(seed)
		mem := disk.NewMem(seed)
		tr := openTree(t, mem, "replica")
		at := 60 + d.below(n-60)
		for i := uint64(1); i <= at; i++ {
			h.replay(t, tr, i)
			if i == at/2 {
				checkpoint(t, tr)
			}
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		mem = mem.Crash(disk.Keep(d.below(3)))
		sender, err := tree.Open(tree.Config{FS: mem, Dir: "replica", PendingPages: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()
		sender.SetFence(at, 1)
		h.replay(t, sender, at/2+d.below(at-at/2))
		receiver, _ := transferred(t, sender)
		h.replay(t, receiver, n)
		if err := receiver.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if digest(t, receiver) != h.digests[n] {
			t.Errorf("seed %d: digest differs", seed)
		}
	}
}

// mender has the right bytes of page 1.
type mender struct {
	tr    *tree.Tree
	data  []byte
	calls int
}

func (m *mender) Fetch(fsop.Ino, uint64, func([]byte, uint64) bool) ([]byte, error) {
	return nil, fmt.Errorf("nobody is asked")
}

func (m *mender) Damaged(ino fsop.Ino, page uint64) bool {
	m.calls++
	done, err := m.tr.Mend(ino, page, m.data, 0)
	return done && err == nil
}

// TestDamageIsMendedToBeSent: if another replica has the page, the receiver gets it
// whole.
func TestDamageIsMendedToBeSent(t *testing.T) {
	var m *mender
	n, sender := damagedSender(t, true, flipPage, func(n *newer, tr *tree.Tree) tree.Repair {
		m = &mender{tr: tr, data: n.want[pageBytes : 2*pageBytes]}
		return m
	})
	receiver, _ := transferred(t, sender)
	if got := n.pages(receiver); got != nil || m.calls != 1 {
		t.Errorf("pages %v are refused; mended %d times", got, m.calls)
	}
}

// TestDamageIsAskedForAgain: a later round asks for what was damaged.
func TestDamageIsAskedForAgain(t *testing.T) {
	n, sender := damagedSender(t, true, flipPage, nil)
	receiver := openTree(t, disk.NewMem(2), "replica")
	defer receiver.Close()
	r, err := sender.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	w, err := receiver.Receive(r.Meta())
	if err != nil {
		t.Fatal(err)
	}
	send(t, r, w, func() bool { return true })
	if got := w.Damaged(); len(got) != 1 || got[0] != (tree.BadPage{Ino: 2, Page: 1}) {
		t.Errorf("told as damaged: %v", got)
	}
	r.Close()
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	flipPage(n.mem) // back
	if r, err = sender.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if w, err = receiver.Receive(r.Meta()); err != nil {
		t.Fatal(err)
	}
	if sent, _ := send(t, r, w, func() bool { return true }); sent < 3*pageBytes || sent > 3*pageBytes+200 {
		t.Errorf("%d bytes were sent again", sent)
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := receiver.Install(w, r.NewestIndex()); err != nil {
		t.Fatal(err)
	}
	if got := n.pages(receiver); got != nil {
		t.Errorf("pages %v are refused", got)
	}
}
