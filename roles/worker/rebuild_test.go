package worker

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/snapshot"
	"tak-os.org/tak-replicated/raftlog/transport"
	"tak-os.org/tak-replicated/raftlog/wallclock"
)

// loneTree is a machine without a coordinator: entries go straight to the tree.
type loneTree struct{ *machine }

func (m loneTree) Apply(entries []raftlog.Entry) error {
	for _, e := range entries {
		var entry *fsop.Entry
		if len(e.Data) > 0 {
			var err error
			if entry, err = fsop.DecodeEntry(e.Data); err != nil {
				return err
			}
		}
		if _, err := m.Tree.Apply(e.Index, e.Term, entry); err != nil {
			return err
		}
	}
	return nil
}

func (loneTree) Lead(uint64)           {}
func (loneTree) Follow(uint64, uint64) {}

// trees is a group of trees with their logs, on disks and a network in memory.
type trees struct {
	t       *testing.T
	net     *transport.MemNetwork
	members []raftlog.Member
	limits  raftlog.Limits
	rate    int64
	nodes   map[uint64]*treeNode
	seq     uint64 // of session 1
}

type treeNode struct {
	tree  *tree.Tree
	group *raftlog.Group
	ended chan struct{}
	err   error // why the group ended
}

func newTrees(t *testing.T, limits raftlog.Limits, rate int64) *trees {
	r := &trees{
		t: t, net: transport.NewMemNetwork(rand.New(rand.NewPCG(1, 2))), limits: limits, rate: rate, nodes: map[uint64]*treeNode{},
	}
	for id := uint64(1); id <= 3; id++ {
		r.members = append(r.members, raftlog.Member{ID: id, Replica: string('a' + rune(id)), Incarnation: 1})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var pump sync.WaitGroup
	pump.Go(func() {
		for ctx.Err() == nil {
			if r.net.Step() == 0 {
				time.Sleep(200 * time.Microsecond)
			}
		}
	})
	t.Cleanup(func() { cancel(); pump.Wait(); r.net.Wait() })
	return r
}

// start makes a member and runs it until the test ends.
func (r *trees) start(id uint64) {
	r.t.Helper()
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	fs, m := disk.NewMem(id), r.members[id-1]
	tr, err := tree.Open(tree.Config{FS: fs, Dir: "tree", Log: zap.NewNop()})
	must(err)
	net := r.net.Node(id)
	cfg := raftlog.Config{
		FS: fs, Dir: path.Join("log"), Machine: loneTree{newMachine(tr, nil)}, Transport: net, Clock: wallclock.Clock{},
		Expect: raftlog.Identity{Volume: "v", Replica: m.Replica, Incarnation: 1, Member: id},
		Rand:   rand.NewPCG(id, 1), Log: zap.NewNop(), Limits: r.limits, Rebuilds: snapshot.NewLimits(r.rate, 1),
	}
	must(raftlog.Bootstrap(cfg, r.members))
	n := &treeNode{tree: tr, ended: make(chan struct{})}
	n.group, err = raftlog.Open(cfg)
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	net.Attach(ctx, n.group)
	go func() {
		defer close(n.ended)
		n.err = n.group.Run(ctx)
	}()
	r.nodes[id] = n
	r.t.Cleanup(func() { cancel(); <-n.ended; tr.Close() })
}

// await polls until ok, and fails when a member's log ends before that.
func (r *trees) await(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		for id, n := range r.nodes {
			select {
			case <-n.ended:
				r.t.Fatalf("member %d ended while it was waited until %s: %v", id, what, n.err)
			default:
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// leader is the member that leads, nil for none.
func (r *trees) leader() (*treeNode, raftlog.Status) {
	for _, n := range r.nodes {
		if s := n.group.Status(); s.Role == raftlog.RoleLeader {
			return n, s
		}
	}
	return nil, raftlog.Status{}
}

// apply logs an item, again after each election, until a leader says that it was applied.
func (r *trees) apply(item fsop.Item, applied func(*tree.Tree) bool) {
	r.t.Helper()
	data, term := fsop.AppendEntry(nil, &fsop.Entry{Items: []fsop.Item{item}}), uint64(0)
	r.await("an operation is applied", func() bool {
		n, s := r.leader()
		if n == nil || applied(n.tree) {
			return n != nil
		}
		if s.Term != term && n.group.Propose(s.Term, data) == nil {
			term = s.Term
		}
		return false
	})
}

// openSession opens session 1.
func (r *trees) openSession() {
	r.t.Helper()
	r.apply(fsop.Item{Op: &fsop.OpenSession{Nonce: [16]byte{1}, Name: []byte("test")}}, func(t *tree.Tree) bool {
		_, ok := t.Session(1)
		return ok
	})
}

// do logs an operation of session 1.
func (r *trees) do(op fsop.Op) {
	r.t.Helper()
	r.seq++
	r.apply(fsop.Item{Session: 1, Seq: r.seq, Ack: r.seq - 1, Op: op}, func(t *tree.Tree) bool {
		s, ok := t.Session(1)
		return ok && s.LastSeq >= r.seq
	})
}

// rebuilding reports whether some bytes of a checkpoint are on their way to a member.
func (r *trees) rebuilding(id uint64) bool {
	_, s := r.leader()
	for _, m := range s.Members {
		if m.ID == id && m.Rebuild != nil && m.Rebuild.Bytes > 0 {
			return true
		}
	}
	return false
}

// TestRebuildOutlivesJournal: while a member gets a checkpoint, at a bounded rate,
// more is written than the journal holds. The sender's journal goes on, and the
// member gets a newer checkpoint's changes until the journal reaches back to what
// it has (C2, C4).
func TestRebuildOutlivesJournal(t *testing.T) {
	const (
		files    = 64
		fileSize = 128 << 10
	)
	r := newTrees(t, raftlog.Limits{SegmentBytes: 1 << 20, JournalBytes: 16 << 20}, 3<<20)
	r.start(1)
	r.start(2)
	r.openSession()
	data := make([]byte, fileSize)
	writeAll := func(round int) {
		for i := range files {
			for at := range data {
				data[at] = byte(at>>8) + byte(round*files+i)
			}
			r.do(&fsop.Write{Ino: fsop.Root + 1 + fsop.Ino(i), Data: data})
		}
	}
	for i := range files {
		r.do(&fsop.Create{Parent: fsop.Root, Name: []byte{'f', byte('0' + i)}, Mode: fsop.TypeFile | 0o644, Excl: true})
	}
	for round := 0; ; round++ {
		writeAll(round)
		if _, s := r.leader(); s.JournalFirst > 2 {
			break
		}
	}
	r.start(3)
	r.await("something is sent", func() bool { return r.rebuilding(3) })
	for round := range 5 {
		writeAll(100 + round)
	}
	r.await("the member has caught up", func() bool {
		n, _ := r.leader()
		return n != nil && r.nodes[3].group.Applied() == n.group.Applied() && r.nodes[3].tree.Ready()
	})
	r.await("the digests are equal", func() bool {
		n, _ := r.leader()
		if n == nil {
			return false
		}
		want, err := n.tree.Digest()
		got, err3 := r.nodes[3].tree.Digest()
		return err == nil && err3 == nil && got == want
	})
	if err := r.nodes[3].tree.Check(); err != nil {
		t.Fatal(err)
	}
	got, err := r.nodes[3].tree.Read(t.Context(), &fsop.Read{Ino: fsop.Root + files, Length: fileSize})
	if err != nil || !bytes.Equal(got.Data, data) {
		t.Fatalf("the last file has %d other bytes, %v", len(got.Data), err)
	}
}
