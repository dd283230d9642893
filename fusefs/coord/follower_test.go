package coord_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// nearWorld is a world of three with replica 1 as coordinator, a mount that reads
// from replica 2, and a file on which it has a lease.
func nearWorld(t *testing.T) (w *world, m *mount, ino fsop.Ino, data []byte) {
	w = newWorld(t, 3)
	w.near = func() uint64 { return 2 }
	w.elect(0, false)
	m = w.mount("a", client.NewMemLedger())
	ino = m.create("x")
	data = bytes.Repeat([]byte("contents "), 20<<10)
	m.ok(&fsop.Write{Ino: ino, Data: data})
	return w, m, ino, data
}

// readUntil reads until a count has grown, and returns what was read then.
func (m *mount) readUntil(ino fsop.Ino, count func() int64) []byte {
	m.w.t.Helper()
	from := count()
	for deadline := time.Now().Add(20 * time.Second); ; {
		data := bytes.Clone(m.ok(&fsop.Read{Ino: ino, Length: 64}).Data)
		if count() > from {
			return data
		}
		if time.Now().After(deadline) {
			m.w.t.Fatal("the replica was not asked, or not used")
		}
		<-m.w.clock.After(time.Millisecond)
	}
}

// TestReadFromFollower reads contents from a replica that follows, and what was
// written since from the coordinator while that one has not applied it.
func TestReadFromFollower(t *testing.T) {
	w, m, ino, data := nearWorld(t)
	w.settle()
	if got := m.readUntil(ino, w.seenBy.answered.Load); !bytes.Equal(got, data[:64]) {
		t.Fatalf("read %q", got)
	}
	w.replicas[1].stuck.Store(true)
	changed := bytes.Repeat([]byte("!"), 64)
	m.ok(&fsop.Write{Ino: ino, Data: changed})
	if got := m.readUntil(ino, w.seenBy.left.Load); !bytes.Equal(got, changed) {
		t.Fatalf("read %q after writing something else", got)
	}
	w.replicas[1].stuck.Store(false)
	w.settle()
	if got := m.readUntil(ino, w.seenBy.answered.Load); !bytes.Equal(got, changed) {
		t.Fatalf("read %q when everything was applied", got)
	}
}

// TestFollowerAfterElection reads from the next coordinator what the replica that
// follows it has not seen, and then from that one.
func TestFollowerAfterElection(t *testing.T) {
	w, m, ino, _ := nearWorld(t)
	w.settle()
	m.readUntil(ino, w.seenBy.answered.Load)
	w.replicas[1].stuck.Store(true)
	w.elect(2, false)
	other := w.mount("b", client.NewMemLedger())
	changed := bytes.Repeat([]byte("?"), 64)
	other.ok(&fsop.Write{Ino: ino, Data: changed})
	for range 20 {
		if got := m.ok(&fsop.Read{Ino: ino, Length: 64}).Data; !bytes.Equal(got, changed) {
			t.Fatalf("read %q after another mount had written something else", got)
		}
	}
	w.replicas[1].stuck.Store(false)
	w.settle()
	m.readUntil(ino, w.seenBy.answered.Load)
}

// asker is a connection that only asks a replica that follows.
type asker struct {
	link    *coord.Link
	answers chan *fsop.Answer
}

func (a *asker) ReplyParts(_ uint64, _ func(), parts ...[]byte) {
	ans, err := fsop.DecodeAnswer(bytes.Join(parts, nil))
	if err != nil {
		panic(err)
	}
	a.answers <- ans
}
func (*asker) Push([]byte) {}
func (*asker) Close()      {}

func (a *asker) ask(f *fsop.FollowerRead) *fsop.Answer {
	a.link.Request(99, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageFollowerRead, Follower: f}))
	return <-a.answers
}

// TestFollowerRefuses refuses whoever has no token, another coordinator's reader,
// what is not applied, and everything but contents.
func TestFollowerRefuses(t *testing.T) {
	w := newWorld(t, 1) // only its log and clock are used
	tr, err := tree.Open(tree.Config{FS: disk.NewMem(7), Dir: "/replica", Log: w.log})
	if err != nil {
		t.Fatal(err)
	}
	tr.SetFence(0, 1)
	c := coord.New(coord.Config{
		Log: w.replicas[0], Tree: tr, Clock: w.clock, Logger: w.log, Spawn: func(f func()) { go f() },
		Authorize: func(token []byte) error {
			if string(token) != "secret" {
				return errors.New("another token")
			}
			return nil
		},
	})
	a := &asker{answers: make(chan *fsop.Answer, 1)}
	a.link = c.Open(a, "test")
	read := &fsop.Read{Ino: fsop.Root, Length: 1}
	good := fsop.FollowerRead{Token: []byte("secret"), Term: 5, Op: read}
	if ans := a.ask(&good); ans.Failure == nil || ans.Failure.Code != fsop.NotCoordinator {
		t.Fatalf("before anybody leads: %+v", ans)
	}
	c.Follow(5, 0)
	if ans := a.ask(&good); ans.Failure == nil || ans.Failure.Code != fsop.NotCoordinator {
		t.Fatalf("while nobody leads: %+v", ans)
	}
	c.Follow(5, 3)
	if ans := a.ask(&good); ans.Reply == nil || ans.Reply.Errno != fsop.EISDIR {
		t.Fatalf("%+v", ans)
	}
	for name, bad := range map[string]struct {
		code   fsop.Code
		change func(f *fsop.FollowerRead)
	}{
		"token":         {fsop.Denied, func(f *fsop.FollowerRead) { f.Token = []byte("guess") }},
		"no token":      {fsop.Denied, func(f *fsop.FollowerRead) { f.Token = nil }},
		"earlier term":  {fsop.NotCoordinator, func(f *fsop.FollowerRead) { f.Term = 4 }},
		"later term":    {fsop.NotCoordinator, func(f *fsop.FollowerRead) { f.Term = 6 }},
		"not applied":   {fsop.Busy, func(f *fsop.FollowerRead) { f.Index = 1 }},
		"another query": {fsop.Malformed, func(f *fsop.FollowerRead) { f.Op = &fsop.GetAttr{Ino: fsop.Root} }},
		"a mutation":    {fsop.Malformed, func(f *fsop.FollowerRead) { f.Op = &fsop.Unlink{Parent: fsop.Root, Name: []byte("x")} }},
	} {
		f := good
		bad.change(&f)
		if ans := a.ask(&f); ans.Failure == nil || ans.Failure.Code != bad.code {
			t.Errorf("%s: %+v", name, ans)
		}
	}
}
