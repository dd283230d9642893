package tree_test

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// machine applies entries of its own making.
type machine struct {
	*testing.T
	t     *tree.Tree
	index uint64
}

func newMachine(t *testing.T) *machine {
	return &machine{T: t, t: openTree(t, disk.NewMem(1), "replica")}
}

func (m *machine) apply(items ...fsop.Item) []tree.Result {
	m.Helper()
	m.index++
	res, err := m.t.Apply(m.index, 1, &fsop.Entry{Stamp: fsop.Time{Sec: 100}, Items: items})
	if err != nil {
		m.Fatal(err)
	}
	return res
}

func (m *machine) open(nonce byte) uint64 {
	m.Helper()
	return m.apply(fsop.Item{Op: &fsop.OpenSession{Nonce: [16]byte{nonce}, Name: []byte("node/mount")}})[0].Reply.Session
}

func numbered(session, seq, ack uint64, op fsop.Op) fsop.Item {
	return fsop.Item{Session: session, Seq: seq, Ack: ack, Op: op}
}

// TestExactlyOnce walks through what a session's stream may meet (CONTRACT B4).
func TestExactlyOnce(t *testing.T) {
	m := newMachine(t)
	s := m.open(1)
	if again := m.open(1); again != s {
		t.Fatalf("the same nonce opened %d and %d", s, again)
	}
	appendX := func(n uint64) fsop.Op { return &fsop.Write{Ino: 2, Append: true, Data: []byte("x")} }
	first := m.apply(numbered(s, 1, 0, mk(root, "f", fsop.TypeFile)))[0]
	m.apply(numbered(s, 2, 0, appendX(2)))
	retry := m.apply(numbered(s, 1, 0, mk(root, "f", fsop.TypeFile)))[0]
	if retry.Status != tree.Duplicate || !reflect.DeepEqual(retry.Reply, first.Reply) {
		t.Fatalf("retry: %+v, first %+v", retry, first)
	}
	stored, err := m.t.Replay(s, 1)
	if err != nil || !reflect.DeepEqual(stored, first.Reply) {
		t.Fatalf("replay: %+v", stored)
	}
	// In one entry: the second of two equal items is a duplicate; a gap leaves
	// what follows it unconsumed.
	res := m.apply(numbered(s, 3, 1, appendX(3)), numbered(s, 3, 1, appendX(3)), numbered(s, 5, 1, appendX(5)), numbered(s, 4, 2, appendX(4)))
	var got []tree.Status
	for _, r := range res {
		got = append(got, r.Status)
	}
	if !slices.Equal(got, []tree.Status{tree.Applied, tree.Duplicate, tree.Gap, tree.Applied}) {
		t.Fatalf("statuses %v", got)
	}
	if a := read(t, m.t, &fsop.GetAttr{Ino: 2}).Attrs[0]; a.Size != 3 {
		t.Fatalf("three appends made %d bytes", a.Size)
	}
	if rep, err := m.t.Replay(s, 2); rep != nil || err != nil {
		t.Fatal("an acknowledged reply is still there")
	}
	if r := m.apply(numbered(s, 2, 0, appendX(2)))[0]; r.Status != tree.Duplicate || r.Reply != nil {
		t.Fatalf("acknowledged duplicate: %+v", r)
	}
	if r := m.apply(numbered(s, 5, 9, appendX(5)))[0]; r.Status != tree.Gap {
		t.Fatalf("acknowledges what was not given: %+v", r)
	}
	// An errno consumes the number, and is what a retry gets.
	m.apply(numbered(s, 5, 2, rm(root, "none")))
	if r := m.apply(numbered(s, 5, 2, rm(root, "none")))[0]; r.Status != tree.Duplicate || r.Reply.Errno != fsop.ENOENT {
		t.Fatalf("retry of an errno: %+v", r)
	}
}

func TestWindow(t *testing.T) {
	m := newMachine(t)
	s := m.open(1)
	for seq := uint64(1); seq <= fsop.WindowMax; seq++ {
		if r := m.apply(numbered(s, seq, 0, &fsop.Nop{}))[0]; r.Status != tree.Applied {
			t.Fatalf("%d: %+v", seq, r)
		}
	}
	const next = fsop.WindowMax + 1
	if r := m.apply(numbered(s, next, 0, &fsop.Nop{}))[0]; r.Status != tree.Gap {
		t.Fatalf("beyond the window: %+v", r)
	}
	for _, seq := range []uint64{1, 2, fsop.WindowMax} {
		if rep, err := m.t.Replay(s, seq); rep == nil || err != nil {
			t.Fatalf("reply %d is lost", seq)
		}
	}
	if r := m.apply(numbered(s, next, 1, &fsop.Nop{}))[0]; r.Status != tree.Applied {
		t.Fatalf("after an acknowledgement: %+v", r)
	}
}

func TestEpochsAndEviction(t *testing.T) {
	m := newMachine(t)
	s, other := m.open(1), m.open(2)
	m.apply(numbered(s, 1, 0, mk(root, "f", fsop.TypeFile)))
	m.apply(fsop.Item{Op: &fsop.AttachSession{Session: s, Epoch: 3}})
	old := numbered(s, 2, 0, &fsop.Nop{})
	if r := m.apply(old)[0]; r.Status != tree.Fenced {
		t.Fatalf("an old epoch: %+v", r)
	}
	if r := m.apply(fsop.Item{Op: &fsop.AttachSession{Session: s, Epoch: 2}})[0]; r.Reply.Errno != fsop.ESTALE {
		t.Fatalf("attach by an older epoch: %+v", r.Reply)
	}
	now := old
	now.Epoch = 3
	if r := m.apply(now)[0]; r.Status != tree.Applied {
		t.Fatalf("the present epoch: %+v", r)
	}
	lock := fsop.LockRange{Kind: fsop.Posix, Type: fsop.LockWrite, Owner: 1, End: math.MaxUint64}
	now.Seq, now.Op = 3, &fsop.Lock{Ino: 2, Lock: lock}
	m.apply(now)
	if i, _ := m.t.Session(s); !slices.Equal(i.Locked, []fsop.Ino{2}) || i.LastSeq != 3 || i.Epoch != 3 {
		t.Fatalf("session: %+v", i)
	}
	if _, found := m.t.Conflict(2, other, lock); !found {
		t.Fatal("no conflict with a lock that is held")
	}
	r := m.apply(fsop.Item{Op: &fsop.EvictSession{Session: s}})[0]
	if !slices.Equal(r.Touched, []fsop.Ino{2}) {
		t.Fatalf("eviction touched %v", r.Touched)
	}
	if _, found := m.t.Conflict(2, other, lock); found {
		t.Fatal("the lock of an evicted session is in the way")
	}
	now.Seq = 4
	if r := m.apply(now)[0]; r.Status != tree.Fenced {
		t.Fatalf("after eviction: %+v", r)
	}
	if rep, err := m.t.Replay(s, 3); rep != nil || err != nil {
		t.Fatal("an evicted session's replies are there")
	}
	if again := m.open(1); again == s {
		t.Fatal("a session number was reused")
	}
	if all := m.t.Sessions(); len(all) != 2 || all[0].ID != other {
		t.Fatalf("sessions: %+v", all)
	}
}

// TestLockRanges compares the locks of one inode with a table of bytes
// (CONTRACT B8).
func TestLockRanges(t *testing.T) {
	m := newMachine(t)
	s, other := m.open(1), m.open(2)
	m.apply(numbered(s, 1, 0, mk(root, "f", fsop.TypeFile)))
	type owner struct{ session, id uint64 }
	var table [64]map[owner]fsop.LockType
	for i := range table {
		table[i] = make(map[owner]fsop.LockType)
	}
	seqs := map[uint64]uint64{s: 1, other: 0}
	d := dice(1)
	for range 4000 {
		o := owner{[]uint64{s, other}[d.below(2)], d.below(2)}
		l := fsop.LockRange{Kind: fsop.Posix, Type: fsop.LockType(1 + d.below(3)), Owner: o.id, Start: d.below(60)}
		l.End = min(63, l.Start+d.below(12))
		free := true
		for i := l.Start; i <= l.End; i++ {
			for who, typ := range table[i] {
				if who != o && l.Type != fsop.LockUnlock && (typ == fsop.LockWrite || l.Type == fsop.LockWrite) {
					free = false
				}
			}
		}
		seqs[o.session]++
		if _, found := m.t.Conflict(2, o.session, l); found == free {
			t.Fatalf("Conflict(%+v) says %v", l, found)
		}
		r := m.apply(numbered(o.session, seqs[o.session], seqs[o.session]-1, &fsop.Lock{Ino: 2, Lock: l}))[0]
		if want := map[bool]fsop.Errno{true: 0, false: fsop.EAGAIN}[free]; r.Reply.Errno != want {
			t.Fatalf("%+v by %+v: %v, want %v", l, o, r.Reply.Errno, want)
		}
		if !free {
			continue
		}
		for i := l.Start; i <= l.End; i++ {
			if delete(table[i], o); l.Type != fsop.LockUnlock {
				table[i][o] = l.Type
			}
		}
	}
}

// TestFlock: whole files, converted in place, no relation to byte ranges.
func TestFlock(t *testing.T) {
	m := newMachine(t)
	s := m.open(1)
	m.apply(numbered(s, 1, 0, mk(root, "f", fsop.TypeFile)))
	seq := uint64(1)
	try := func(kind fsop.LockKind, typ fsop.LockType, owner uint64) fsop.Errno {
		seq++
		op := &fsop.Lock{Ino: 2, Lock: fsop.LockRange{Kind: kind, Type: typ, Owner: owner, Start: 5, End: 5}}
		return m.apply(numbered(s, seq, seq-1, op))[0].Reply.Errno
	}
	for i, step := range []struct {
		kind  fsop.LockKind
		typ   fsop.LockType
		owner uint64
		want  fsop.Errno
	}{
		{fsop.Flock, fsop.LockRead, 1, 0},
		{fsop.Flock, fsop.LockRead, 2, 0},
		{fsop.Flock, fsop.LockWrite, 1, fsop.EAGAIN},
		{fsop.Posix, fsop.LockWrite, 3, 0},
		{fsop.Flock, fsop.LockUnlock, 2, 0},
		{fsop.Flock, fsop.LockWrite, 1, 0},
		{fsop.Flock, fsop.LockRead, 2, fsop.EAGAIN},
		{fsop.Flock, fsop.LockUnlock, 1, 0},
		{fsop.Flock, fsop.LockRead, 2, 0},
	} {
		if got := try(step.kind, step.typ, step.owner); got != step.want {
			t.Fatalf("step %d: %v, want %v", i, got, step.want)
		}
	}
}

// TestStamps: every item has a time of its own, not before the entry's and
// after every earlier one.
func TestStamps(t *testing.T) {
	m := newMachine(t)
	s := m.open(1)
	res := m.apply(numbered(s, 1, 0, mk(root, "a", fsop.TypeFile)), numbered(s, 2, 0, mk(root, "b", fsop.TypeFile)))
	a, b := res[0].Reply.Attrs[0].Ctime, res[1].Reply.Attrs[0].Ctime
	if !a.Before(b) || a.Before(fsop.Time{Sec: 100}) || m.t.LastStamp() != b {
		t.Fatalf("stamps %v, %v, last %v", a, b, m.t.LastStamp())
	}
}

// TestRootIsDated: the root directory of a new volume is as old as the volume's
// first session, and a volume that is older keeps what it has.
func TestRootIsDated(t *testing.T) {
	tr := openTree(t, disk.NewMem(1), "replica")
	stamp := fsop.Time{Sec: 1_700_000_000}
	apply := func(op fsop.Op) {
		t.Helper()
		index, _ := tr.Applied()
		stamp.Sec++
		if _, err := tr.Apply(index+1, 1, &fsop.Entry{Stamp: stamp, Items: []fsop.Item{{Op: op}}}); err != nil {
			t.Fatal(err)
		}
	}
	root := func() fsop.Attr { return read(t, tr, &fsop.GetAttr{Ino: fsop.Root}).Attrs[0] }
	apply(&fsop.OpenSession{Nonce: [16]byte{1}})
	if a := root(); a.Ctime != stamp || a.Mtime != stamp || a.Atime != stamp {
		t.Errorf("dated %v, %v, %v, not %v", a.Atime, a.Mtime, a.Ctime, stamp)
	}
	first := root()
	apply(&fsop.OpenSession{Nonce: [16]byte{2}})
	if a := root(); a != first {
		t.Errorf("a later session changed the root directory: %+v, was %+v", a, first)
	}
}

// TestReplayThatFails: that an answer does not read does not say that there is none.
func TestReplayThatFails(t *testing.T) {
	tr := openTree(t, disk.NewMem(1), "replica")
	if rep, err := tr.Replay(1, 1); rep != nil || err != nil {
		t.Errorf("without a session: %v %v", rep, err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := tr.Replay(1, 1); rep != nil || err == nil {
		t.Errorf("of a closed tree: %v %v", rep, err)
	}
}
