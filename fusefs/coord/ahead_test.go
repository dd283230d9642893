package coord_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// warm makes m a session that works ahead of the log in a directory of its own.
func warm(t *testing.T, m *mount, name string) fsop.Ino {
	t.Helper()
	dir := m.ok(&fsop.Create{Parent: fsop.Root, Name: []byte(name), Mode: fsop.TypeDir | 0o755, Excl: true}).Attrs[0].Ino
	for i := range 200 {
		file := &fsop.Create{Parent: dir, Name: []byte("warm"), Mode: fsop.TypeFile | 0o644, Excl: true}
		if _, ok := m.TryChange(&fsop.Request{Op: file}); ok {
			m.ok(&fsop.Unlink{Parent: dir, Name: []byte("warm")})
			return dir
		}
		m.ok(file)
		m.ok(&fsop.Unlink{Parent: dir, Name: []byte("warm")})
		if i > 3 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	t.Fatal("the session does not work ahead of the log")
	return 0
}

// try answers an operation from memory, or fails the test.
func (m *mount) try(op fsop.Op) *fsop.Reply {
	m.w.t.Helper()
	ask := m.TryChange
	if op.Kind().Query() {
		ask = m.TryCall
	}
	rep, ok := ask(&fsop.Request{Op: op})
	if !ok || rep.Errno != fsop.OK {
		m.w.t.Fatalf("%T is not done ahead of the log: %+v", op, rep)
	}
	return rep
}

// TestAheadOfTheLog does the common operations while nothing is committed, and
// then compares what was told with what came of it.
func TestAheadOfTheLog(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	dir := warm(t, a, "dir")
	w.hold()
	name := func(s string) []byte { return []byte(s) }
	f := a.try(&fsop.Create{Parent: dir, Name: name("f"), Mode: fsop.TypeFile | 0o644, UID: 7, GID: 8}).Attrs[0].Ino
	a.try(&fsop.Write{Ino: f, Data: bytes.Repeat([]byte("x"), 5000)})
	a.try(&fsop.Write{Ino: f, Append: true, Data: []byte("end")})
	a.try(&fsop.SetAttr{Ino: f, Valid: fsop.SetMode | fsop.SetMtime, Mode: 0o600, Mtime: fsop.Time{Sec: 5}})
	a.try(&fsop.SetAttr{Ino: f, Valid: fsop.SetSize, Size: 3000})
	sub := a.try(&fsop.Create{Parent: dir, Name: name("sub"), Mode: fsop.TypeDir | 0o2755, GID: 9}).Attrs[0].Ino
	a.try(&fsop.Create{Parent: sub, Name: name("l"), Mode: fsop.TypeLink | 0o777, Target: name("../f")})
	a.try(&fsop.Link{Ino: f, Parent: sub, Name: name("hard")})
	g := a.try(&fsop.Create{Parent: sub, Name: name("g"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	a.try(&fsop.Write{Ino: g, Data: []byte("g")})
	a.try(&fsop.Rename{Parent: sub, Name: name("g"), NewParent: dir, NewName: name("g2")})
	h := a.try(&fsop.Create{Parent: dir, Name: name("h"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	a.try(&fsop.Rename{Parent: dir, Name: name("h"), NewParent: dir, NewName: name("g2")})
	a.try(&fsop.Unlink{Parent: sub, Name: name("l")})
	gone := a.try(&fsop.Create{Parent: dir, Name: name("gone"), Mode: fsop.TypeDir | 0o755}).Attrs[0].Ino
	a.try(&fsop.Unlink{Parent: dir, Name: name("gone"), Dir: true})
	told := map[fsop.Ino]fsop.Attr{}
	for _, ino := range []fsop.Ino{dir, f, sub, g, h, gone} {
		told[ino] = a.try(&fsop.GetAttr{Ino: ino}).Attrs[0]
	}
	if w.inLimbo() > 1 {
		t.Errorf("%d entries for one burst", w.inLimbo())
	}
	w.goOn()
	if err := a.Sync(context.Background(), f, 0); err != nil {
		t.Fatal(err)
	}
	for ino, want := range told {
		rep := b.do(&fsop.GetAttr{Ino: ino})
		if rep.Errno == fsop.ESTALE && want.Nlink == 0 {
			continue // reaped
		}
		if got := rep.Attrs[0]; got != want {
			t.Errorf("inode %d: told %+v, is %+v", ino, want, got)
		}
	}
	if got := b.lookupIn(dir, "g2"); got != h {
		t.Errorf("g2 is inode %d, want %d", got, h)
	}
	w.settle()
}

// TestStatsAhead: what is answered ahead of the log counts against its own bound, not
// against that of the mutations that somebody waits for.
func TestStatsAhead(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	dir := warm(t, a, "dir")
	f := a.try(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	if err := a.Sync(context.Background(), f, 0); err != nil {
		t.Fatal(err)
	}
	w.hold()
	const ops = 300
	for range ops {
		a.try(&fsop.Write{Ino: f, Append: true, Data: []byte("ten bytes.")})
	}
	numbered, answered := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(answered)
		durable := &fsop.Request{Op: &fsop.Write{Ino: f, Data: []byte("x")}, Durable: true, Numbered: func() { close(numbered) }}
		if _, err := a.Call(context.Background(), durable); err != nil {
			t.Error(err)
		}
	}()
	<-numbered
	st := a.Stats()
	if st.AheadOps != ops || st.AheadBytes < 10*ops || st.AheadOps > st.AheadOpsMost || st.AheadBytes > st.AheadBytesMost {
		t.Errorf("%d operations were answered ahead of the log: %+v", ops, st)
	}
	if st.Mutations != 1 || st.MutationsMost == 0 {
		t.Errorf("somebody waits for one mutation: %+v", st)
	}
	w.goOn()
	<-answered
	if st := a.Stats(); st.Mutations != 0 || st.AheadOps != 0 || st.AheadBytes != 0 {
		t.Errorf("everything has its answer: %+v", st)
	}
}

func (m *mount) lookupIn(dir fsop.Ino, name string) fsop.Ino {
	m.w.t.Helper()
	rep := m.do(&fsop.Lookup{Parent: dir, Name: []byte(name)})
	if rep.Errno != fsop.OK {
		return 0
	}
	return rep.Attrs[0].Ino
}

// TestOthersSeeWhatIsAhead has another mount look at what is not in the log yet:
// it waits and then sees it (B5, B6).
func TestOthersSeeWhatIsAhead(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	dir := warm(t, a, "dir")
	for i := range 100 {
		name := fmt.Sprint("f", i)
		f := a.ok(&fsop.Create{Parent: dir, Name: []byte(name), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
		a.ok(&fsop.Write{Ino: f, Data: []byte(name)})
		if got := b.lookupIn(dir, name); got != f {
			t.Fatalf("%s is %d there, %d here", name, got, f)
		}
		if got := b.ok(&fsop.Read{Ino: f, Length: 100}).Data; string(got) != name {
			t.Fatalf("read %q from %s", got, name)
		}
		b.ok(&fsop.Write{Ino: f, Append: true, Data: []byte("!")})
		if got := a.ok(&fsop.GetAttr{Ino: f}).Attrs[0].Size; got != uint64(len(name)+1) {
			t.Fatalf("size %d of %s", got, name)
		}
		if i%3 == 0 {
			b.ok(&fsop.Unlink{Parent: dir, Name: []byte(name)})
			if a.lookupIn(dir, name) != 0 {
				t.Fatalf("%s is still there", name)
			}
		}
	}
}

// TestAheadOverElections works ahead of the log while leaders change and lose
// what they had proposed: nothing that was answered is lost (B4, B6).
func TestAheadOverElections(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	dir := warm(t, a, "dir")
	for round := range 12 {
		f := a.ok(&fsop.Create{Parent: dir, Name: []byte(fmt.Sprint("f", round)), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
		var want []byte
		w.hold()
		for i := range 40 {
			rec := fmt.Appendf(nil, "%d.%d;", round, i)
			if _, ok := a.TryChange(&fsop.Request{Op: &fsop.Write{Ino: f, Append: true, Data: rec}}); ok {
				want = append(want, rec...)
			}
		}
		time.Sleep(time.Duration(round%4) * 3 * time.Millisecond)
		w.elect((round+1)%3, round%2 == 0)
		if got := b.ok(&fsop.Read{Ino: f, Length: 1 << 16}).Data; !bytes.Equal(got, want) {
			t.Fatalf("round %d: read %q, want %q", round, got, want)
		}
	}
	if s := a.Status(); s.Lost != 0 {
		t.Errorf("the session was lost: %+v", s)
	}
}

// TestQueryWhileTheQueueArrives has a query read the state before the client that
// worked ahead has told a new coordinator of it, and be answered after that.
func TestQueryWhileTheQueueArrives(t *testing.T) {
	w := newWorld(t, 2)
	var hold atomic.Bool
	attach, read, arrived := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.mangle = func(m *fsop.Message) {
		if m.Attach != nil && string(m.Attach.Name) == "a" && hold.Load() {
			<-attach
		}
	}
	var once sync.Once
	w.space = func() {
		once.Do(func() {
			close(read)
			<-arrived
		})
	}
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	dir := warm(t, a, "dir")
	w.operate(true, &fsop.SetLimits{Inodes: 100})
	w.hold()
	a.try(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644})
	hold.Store(true)
	w.elect(1, false)
	w.settle()
	free := make(chan uint64)
	go func() { free <- b.ok(&fsop.StatFSQuery{}).FS.InodesFree }()
	<-read
	close(attach)
	if err := a.Sync(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	close(arrived)
	want := b.ok(&fsop.StatFSQuery{}).FS.InodesFree
	if got := <-free; got != want {
		t.Errorf("%d inodes are free, want %d", got, want)
	}
}

// TestQueueOutlivesItsProcess kills a serving process that has answered what the
// log does not have: the next one sends it, and a repeated request gets the answer
// that it had.
func TestQueueOutlivesItsProcess(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	ledger := client.NewMemLedger()
	a := w.mount("a", ledger)
	dir := warm(t, a, "dir")
	w.hold()
	create := &fsop.Request{Tag: 9, Op: &fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644, Excl: true}}
	rep, ok := a.TryChange(create)
	if !ok {
		t.Fatal("not done ahead of the log")
	}
	f := rep.Attrs[0].Ino
	a.try(&fsop.Write{Ino: f, Data: []byte("data")})
	a.kill()
	w.elect(0, false)
	next := w.mount("a", ledger)
	next.Resumed([]uint64{9})
	rep, err := next.Call(context.Background(), create)
	if err != nil || rep.Errno != fsop.OK || rep.Attrs[0].Ino != f {
		t.Fatalf("repeated: %+v %v, want inode %d", rep, err, f)
	}
	next.Finish(9)
	if got := next.ok(&fsop.Read{Ino: f, Length: 10}).Data; string(got) != "data" {
		t.Errorf("read %q", got)
	}
	if s := next.Status(); s.Lost != 0 {
		t.Errorf("the session was lost: %+v", s)
	}
	if err := next.Sync(context.Background(), 0, 0); err != nil {
		t.Error(err)
	}
	if q := ledger.Queued(); len(q) != 0 {
		t.Errorf("%d operations are still queued", len(q))
	}
}

// TestLargeRequestBesideABurst does the second operation of a kernel request after
// another client has tried to do thousands: its number has a place all the same.
func TestLargeRequestBesideABurst(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	dir := warm(t, a, "dir")
	f := a.ok(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	piece := func(sub uint32) {
		t.Helper()
		rep, err := a.Call(context.Background(), &fsop.Request{Tag: 5, Sub: sub, Durable: true, Op: &fsop.Write{Ino: f, Append: true, Data: []byte("piece")}})
		if err != nil || rep.Errno != fsop.OK {
			t.Fatalf("piece %d: %+v %v", sub, rep, err)
		}
	}
	piece(0)
	const burst = 3 * fsop.WindowMax
	begun, all := make(chan int, burst), make(chan error, 1)
	go func() {
		for i := range burst {
			tag := uint64(100 + i)
			rep, err := a.Call(context.Background(), &fsop.Request{Tag: tag, Op: &fsop.Create{Parent: dir, Name: fmt.Append(nil, i), Mode: fsop.TypeFile | 0o644}})
			if err != nil || rep.Errno != fsop.OK {
				all <- fmt.Errorf("create %d: %+v %w", i, rep, err)
				return
			}
			a.Finish(tag)
			begun <- i
		}
		all <- nil
	}()
	for range 100 {
		<-begun
	}
	time.Sleep(50 * time.Millisecond) // for as many more as there may be
	piece(1)
	a.Finish(5)
	if err := <-all; err != nil {
		t.Fatal(err)
	}
}

// TestWaitingBehindAFullWindow does an operation that waits for its answer behind as
// many as the window holds: it is sent when the window has moved on, with nothing
// else to send.
func TestWaitingBehindAFullWindow(t *testing.T) {
	w := newWorld(t, 1)
	var counting atomic.Bool
	left, allSent := fsop.WindowMax, make(chan struct{})
	w.mangle = func(m *fsop.Message) {
		if m.Stream == nil || !counting.Load() {
			return
		}
		if left -= len(m.Stream.Ops); left == 0 {
			close(allSent)
		}
	}
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	dir := warm(t, a, "dir")
	f := a.ok(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	if err := a.Sync(t.Context(), f, 0); err != nil {
		t.Fatal(err)
	}
	w.hold()
	counting.Store(true)
	for range fsop.WindowMax {
		a.try(&fsop.Write{Ino: f, Append: true, Data: []byte("x")})
	}
	<-allSent
	w.clock.stop() // sending does not linger any more: only what moves the window sends
	done, numbered := make(chan error), make(chan struct{})
	go func() {
		_, err := a.Call(t.Context(), &fsop.Request{
			Durable: true, Op: &fsop.Write{Ino: f, Append: true, Data: []byte("x")}, Numbered: func() { close(numbered) },
		})
		done <- err
	}()
	<-numbered // it finds the window full
	w.goOn()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("not sent after 5 s")
	}
}

// TestCreateOpensWhatIsAhead opens a file with a create that another mount has
// grown ahead of the log: it shows the size that it has (B5).
func TestCreateOpensWhatIsAhead(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	dir := warm(t, a, "dir")
	open := &fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}
	for i := range 20 {
		f := a.ok(open).Attrs[0].Ino
		b.ok(&fsop.GetAttr{Ino: dir})
		a.ok(&fsop.SetAttr{Ino: f, Valid: fsop.SetMode, Mode: 0o600}) // held alone again
		if err := a.Sync(t.Context(), f, 0); err != nil {
			t.Fatal(err)
		}
		w.hold()
		a.try(&fsop.Write{Ino: f, Append: true, Data: []byte("more")})
		time.AfterFunc(20*time.Millisecond, w.goOn)
		if got, want := b.ok(open).Attrs[0].Size, uint64(4*(i+1)); got != want {
			t.Fatalf("round %d: opened with size %d, want %d", i, got, want)
		}
	}
}

// TestNothingIsDeferredForLong has the log take nothing for more than a second: what
// comes then waits for it (B6), until what was answered is there.
func TestNothingIsDeferredForLong(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	dir := warm(t, a, "dir")
	f := a.ok(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	if err := a.Sync(t.Context(), f, 0); err != nil {
		t.Fatal(err)
	}
	write := &fsop.Request{Op: &fsop.Write{Ino: f, Append: true, Data: []byte("x")}}
	w.hold()
	a.try(write.Op)
	w.clock.extra.Add(int64(1100 * time.Millisecond)) // its term lasts longer
	if _, ok := a.TryChange(write); ok {
		t.Fatal("answered ahead of the log, behind an operation that has waited for more than a second")
	}
	if rep := a.ok(&fsop.GetAttr{Ino: f}); rep.Attrs[0].Size != 1 {
		t.Errorf("size %d", rep.Attrs[0].Size)
	}
	done := make(chan error)
	go func() {
		_, err := a.Call(t.Context(), write)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("answered while the log takes nothing: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	w.goOn()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(t.Context(), f, 0); err != nil {
		t.Fatal(err)
	}
	a.try(write.Op)
	if rep := a.ok(&fsop.GetAttr{Ino: f}); rep.Attrs[0].Size != 3 {
		t.Errorf("size %d", rep.Attrs[0].Size)
	}
}

// TestOwnStatFS asks how full the volume is right after work that the log does not
// have yet: it counts.
func TestOwnStatFS(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	dir := warm(t, a, "dir")
	w.operate(true, &fsop.SetLimits{Inodes: 100})
	if err := a.Sync(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	await(t, "nothing is to be reaped", func() bool { return w.orphans() == 0 })
	before := a.ok(&fsop.StatFSQuery{}).FS.InodesFree
	w.hold()
	a.try(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644})
	time.AfterFunc(50*time.Millisecond, w.goOn)
	if got := a.ok(&fsop.StatFSQuery{}).FS.InodesFree; got != before-1 {
		t.Errorf("%d inodes are free after one of %d was made", got, before)
	}
}

// TestLostForWantOfSpace has no room for what was answered ahead of the log: who has the
// file open is told that, once. What else was lost behind it was for the same reason.
func TestLostForWantOfSpace(t *testing.T) {
	w := newWorld(t, 1)
	var full atomic.Bool
	w.refuse = func(op fsop.Op) fsop.Errno {
		if o, ok := op.(*fsop.Ahead); ok && full.Load() {
			if _, write := o.Op.(*fsop.Write); write {
				return fsop.ENOSPC
			}
		}
		return fsop.OK
	}
	w.elect(0, false)
	ledger := client.NewMemLedger()
	m := w.mount("a", ledger)
	dir := warm(t, m, "dir")
	file := func(name string, handles ...uint64) fsop.Ino {
		f := m.try(&fsop.Create{Parent: dir, Name: []byte(name), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
		for _, handle := range handles {
			if err := ledger.Open(handle, f); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	f, other := file("f", 5, 6), file("other")
	full.Store(true)
	m.try(&fsop.Write{Ino: f, Data: []byte("no room")})
	m.try(&fsop.SetAttr{Ino: other, Valid: fsop.SetMode, Mode: 0o600})
	lost := func(what string, err error) {
		t.Helper()
		var l *fsop.LostError
		if !errors.As(err, &l) || l.Errno != fsop.ENOSPC || fsop.CodeOf(err) != fsop.Uncertain {
			t.Errorf("%s: %v", what, err)
		}
	}
	lost("fsync", m.Sync(t.Context(), f, 5))
	lost("close of another handle", m.Owed(6))
	if err := ledger.Open(7, other); err != nil {
		t.Fatal(err)
	}
	lost("close by the next that opens what was lost behind it", m.Owed(7))
	for _, handle := range []uint64{5, 6, 7} {
		if err := m.Owed(handle); err != nil {
			t.Errorf("handle %d is told twice: %v", handle, err)
		}
	}
	full.Store(false)
	m.ok(&fsop.Write{Ino: f, Data: []byte("room")})
	if err := m.Sync(t.Context(), f, 5); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// TestCausesOfALoss joins them: EIO stays.
func TestCausesOfALoss(t *testing.T) {
	l := client.NewMemLedger()
	for ino, whys := range map[fsop.Ino][]fsop.Errno{
		5: {fsop.ENOSPC, fsop.ENOSPC}, 6: {fsop.ENOSPC, fsop.EIO}, 7: {fsop.EIO, fsop.ENOSPC},
	} {
		if err := l.Open(uint64(ino), ino); err != nil {
			t.Fatal(err)
		}
		for _, why := range whys {
			l.Owe(ino, why)
		}
		want := fsop.EIO
		if ino == 5 {
			want = fsop.ENOSPC
		}
		if got := l.Paid(uint64(ino)); got != want {
			t.Errorf("%v: told %v", whys, got)
		}
	}
}
