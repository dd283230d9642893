package coord_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

func TestWriteAndReadBack(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	b := w.mount("b", client.NewMemLedger())
	ino := a.create("x")
	a.ok(&fsop.Write{Ino: ino, Data: []byte("hello")})
	if got := b.ok(&fsop.Read{Ino: b.lookup("x"), Length: 100}).Data; !bytes.Equal(got, []byte("hello")) {
		t.Errorf("read %q", got)
	}
	w.settle()
}

// TestEveryChangeIsSeen has two mounts take turns: what one has completed the
// other sees, though each caches everything it may (B5).
func TestEveryChangeIsSeen(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	m := []*mount{w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())}
	for i := range 200 {
		me, you := m[i%2], m[(i+1)%2]
		name := fmt.Sprint("f", i/4)
		you.lookup(name) // caches presence or absence
		switch i % 4 {
		case 0:
			me.create(name)
		case 1:
			me.ok(&fsop.Write{Ino: me.lookup(name), Data: []byte("data")})
		case 2:
			me.ok(&fsop.Rename{Parent: fsop.Root, Name: []byte(name), NewParent: fsop.Root, NewName: []byte("moved")})
		case 3:
			me.ok(&fsop.Unlink{Parent: fsop.Root, Name: []byte("moved")})
		}
		mine, yours := me.lookup(name), you.lookup(name)
		if want := i%4 < 2; (yours != 0) != want || mine != yours {
			t.Fatalf("step %d: %s is %d here and %d there", i, name, mine, yours)
		}
		if yours != 0 {
			if a := you.ok(&fsop.GetAttr{Ino: yours}).Attrs[0]; (a.Size == 4) != (i%4 == 1) {
				t.Fatalf("step %d: size %d", i, a.Size)
			}
		}
	}
}

// TestCacheAnswersUnderLease shows that the cache is used at all.
func TestCacheAnswersUnderLease(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	m := w.mount("a", client.NewMemLedger())
	ino := m.create("x")
	for _, op := range []fsop.Op{
		&fsop.Lookup{Parent: fsop.Root, Name: []byte("x")},
		&fsop.Lookup{Parent: fsop.Root, Name: []byte("absent")},
		&fsop.GetAttr{Ino: ino},
		&fsop.GetXattr{Ino: ino, Name: []byte("security.capability")},
	} {
		m.do(op)
		if _, ok := m.TryCall(&fsop.Request{Op: op}); !ok {
			t.Errorf("%T is not answered from memory", op)
		}
	}
}

// TestOnceOverElections appends from two mounts while leaders change and lose
// or keep what was in flight; each record is there exactly once (B4).
func TestOnceOverElections(t *testing.T) {
	w := newWorld(t, 3)
	w.elect(0, false)
	mounts := []*mount{w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())}
	ino := mounts[0].create("log")
	const records, threads = 40, 4
	var wg sync.WaitGroup
	for n, m := range mounts {
		for th := range threads {
			wg.Go(func() {
				for i := range records {
					m.ok(&fsop.Write{Ino: ino, Append: true, Data: fmt.Appendf(nil, "%d-%d-%02d;", n, th, i)})
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	elections := 0
	for running := true; running; elections++ {
		w.hold()
		for i := 0; i < 100 && w.inLimbo() == 0; i++ {
			time.Sleep(time.Millisecond)
		}
		w.elect(elections%3, elections%2 == 0)
		select {
		case <-done:
			running = false
		case <-time.After(60 * time.Millisecond):
		}
		if elections > 300 {
			t.Fatal("no progress over 300 elections")
		}
	}
	data := mounts[0].ok(&fsop.Read{Ino: ino, Length: fsop.DataMax}).Data
	if want := 2 * threads * records * 7; len(data) != want {
		t.Errorf("%d bytes, want %d", len(data), want)
	}
	for n := range mounts {
		for th := range threads {
			for i := range records {
				if rec := fmt.Appendf(nil, "%d-%d-%02d;", n, th, i); bytes.Count(data, rec) != 1 {
					t.Errorf("%s is there %d times", rec, bytes.Count(data, rec))
				}
			}
		}
	}
	t.Logf("%d elections", elections)
}

// TestLocksExclude waits for a lock that another mount holds.
func TestLocksExclude(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	ino := a.create("x")
	lock := func(ty fsop.LockType) fsop.LockRange {
		return fsop.LockRange{Kind: fsop.Flock, Type: ty, Owner: 1, End: 1<<64 - 1}
	}
	a.ok(&fsop.Lock{Ino: ino, Lock: lock(fsop.LockWrite)})
	if rep := b.do(&fsop.Lock{Ino: ino, Lock: lock(fsop.LockRead)}); rep.Errno != fsop.EAGAIN {
		t.Fatalf("second lock: %v", rep.Errno)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Call(ctx, &fsop.Request{Op: &fsop.WaitLock{Ino: ino, Lock: lock(fsop.LockRead)}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("wait for a held lock: %v", err)
	}
	got := make(chan struct{})
	go func() {
		defer close(got)
		b.ok(&fsop.WaitLock{Ino: ino, Lock: lock(fsop.LockRead)})
		b.ok(&fsop.Lock{Ino: ino, Lock: lock(fsop.LockRead)})
	}()
	a.ok(&fsop.Lock{Ino: ino, Lock: lock(fsop.LockUnlock)})
	<-got

	// A session that is gone loses its locks to a waiter once its term has passed.
	b.kill()
	w.clock.extra.Add(int64(4 * time.Second))
	a.ok(&fsop.WaitLock{Ino: ino, Lock: lock(fsop.LockWrite)})
	a.ok(&fsop.Lock{Ino: ino, Lock: lock(fsop.LockWrite)})
}

// TestHolderThatIsGoneDelaysOnlyForItsTerm recalls from a client that does not
// answer any more.
func TestHolderThatIsGoneDelaysOnlyForItsTerm(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	ino := a.create("x")
	b.lookup("x")
	b.kill()
	start := time.Now()
	a.ok(&fsop.SetAttr{Ino: ino, Valid: fsop.SetMode, Mode: 0o600})
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("waited %v for a holder that is gone", d)
	}
}

// TestReplacedServerGoesOn kills a serving process with operations in flight;
// the next one repeats what the kernel repeats, under the same numbers.
func TestReplacedServerGoesOn(t *testing.T) {
	w := newWorld(t, 2)
	w.elect(0, false)
	ledger := client.NewMemLedger()
	m := w.mount("a", ledger)
	ino := m.create("x")
	w.hold()
	for tag := uint64(1); tag <= 3; tag++ {
		go m.Call(context.Background(), &fsop.Request{
			Op:  &fsop.Write{Ino: ino, Append: true, Data: fmt.Appendf(nil, "%d;", tag)},
			Tag: tag,
		})
	}
	for w.inLimbo() == 0 || len(ledger.Pending()) < 3 {
		time.Sleep(time.Millisecond)
	}
	m.kill()
	w.elect(1, true) // some of them were committed after all
	again := w.mount("a", ledger)
	again.Resumed([]uint64{1, 3}) // the answer to 2 is taken as given
	for _, tag := range []uint64{3, 1} {
		rep, err := again.Call(context.Background(), &fsop.Request{
			Op:  &fsop.Write{Ino: ino, Append: true, Data: fmt.Appendf(nil, "%d;", tag)},
			Tag: tag,
		})
		if err != nil || rep.Errno != fsop.OK {
			t.Fatalf("repeating %d: %v %v", tag, rep, err)
		}
		again.Finish(tag)
	}
	again.ok(&fsop.Write{Ino: ino, Append: true, Data: []byte("4;")})
	data := again.ok(&fsop.Read{Ino: ino, Length: 100}).Data
	for _, rec := range []string{"1;", "3;", "4;"} {
		if bytes.Count(data, []byte(rec)) != 1 {
			t.Errorf("%s is there %d times in %q", rec, bytes.Count(data, []byte(rec)), data)
		}
	}
	if left := ledger.Pending(); len(left) != 0 {
		t.Errorf("the ledger still has %v", left)
	}
}

// TestReplacedServerIsNotAskedForAll replaces the server of a mount in the middle of
// requests that do less when they come again: one number had been applied and one had
// not, and nobody asks for either.
func TestReplacedServerIsNotAskedForAll(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	w.elect(0, false)
	ledger := client.NewMemLedger()
	m := w.mount("a", ledger)
	ino := m.create("x")
	write := func(m *mount, tag uint64, sub uint32) {
		t.Helper()
		rep, err := m.Call(context.Background(), &fsop.Request{Tag: tag, Sub: sub, Op: &fsop.Write{Ino: ino, Append: true, Data: []byte("1;")}})
		if err != nil || rep.Errno != fsop.OK {
			t.Fatalf("write %d: %v %v", tag, rep, err)
		}
	}
	write(m, 7, 0)
	write(m, 7, 1)
	m.kill()
	if err := ledger.Begin(8, 0, ledger.LastSeq()+1); err != nil { // recorded, and not sent
		t.Fatal(err)
	}
	again := w.mount("a", ledger)
	again.Resumed([]uint64{7, 8})
	write(again, 7, 0)
	again.Finish(7)
	again.Finish(8)
	for tag := uint64(100); tag < 700; tag++ { // more than may be behind one that is not finished
		write(again, tag, 0)
		again.Finish(tag)
	}
	if left := ledger.Pending(); len(left) != 0 {
		t.Errorf("the ledger still has %v", left)
	}
}

// TestReplacedServerKnowsWhatCameBeforeItsSession replaces the server of a session
// whose first operation was asked for before it was open: the next process must not
// use that number again, or it is told the answer to the other operation.
func TestReplacedServerKnowsWhatCameBeforeItsSession(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	ledger := client.NewMemLedger()
	m := w.mount("a", ledger)
	create := func(m *mount, tag uint64, name string) {
		rep, err := m.Call(context.Background(), &fsop.Request{Tag: tag, Op: &fsop.Create{Parent: fsop.Root, Name: []byte(name), Mode: fsop.TypeFile | 0o644, Excl: true}})
		if err != nil || rep.Errno != fsop.OK {
			t.Errorf("create %s: %v %v", name, rep, err)
		}
		m.Finish(tag)
	}
	made := make(chan struct{})
	go func() { defer close(made); create(m, 1, "x") }()
	await(t, "an operation before there is a coordinator", func() bool { return ledger.LastSeq() == 1 })
	w.elect(0, false)
	<-made
	m.kill()
	again := w.mount("a", ledger)
	again.Resumed(nil)
	create(again, 2, "y")
	if x, y := again.lookup("x"), again.lookup("y"); x == 0 || y == 0 || x == y {
		t.Errorf("x is inode %d, y %d", x, y)
	}
}

// TestReplacedServerIsNotFencedByTheOldOne kills a serving process whose
// operation waits in the coordinator and is proposed only after the epoch of its
// session has ended: it is refused there, and must not be taken for the same
// operation of the next process.
func TestReplacedServerIsNotFencedByTheOldOne(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	w.elect(0, false)
	ledger := client.NewMemLedger()
	a, b := w.mount("a", ledger), w.mount("b", client.NewMemLedger())
	a.create("x")
	b.lookup("x")
	w.hold()
	// a's rename waits for this one, which may change the same name.
	go b.Call(context.Background(), &fsop.Request{Op: &fsop.Create{Parent: fsop.Root, Name: []byte("x"), Mode: fsop.TypeFile | 0o644, Excl: true}})
	await(t, "b's operation is proposed", func() bool { return w.inLimbo() == 1 })
	rename := &fsop.Request{Op: &fsop.Rename{Parent: fsop.Root, Name: []byte("x"), NewParent: fsop.Root, NewName: []byte("z")}, Tag: 7}
	go a.Call(context.Background(), rename)
	await(t, "a's operation waits", func() bool { return w.replicas[0].coord.Queued() == 1 })
	a.kill()
	again := w.mount("a", ledger)
	await(t, "the next process attaches", func() bool { return w.inLimbo() == 2 })
	w.release(1)
	await(t, "a's operation is proposed behind that", func() bool { return w.inLimbo() == 2 })
	w.goOn()
	again.Resumed([]uint64{7})
	rep, err := again.Call(context.Background(), rename)
	if err != nil || rep.Errno != fsop.OK {
		t.Fatalf("the operation is repeated: %v %v", rep, err)
	}
	if s := again.Status(); s.Lost != 0 {
		t.Errorf("the session was lost: %+v", s)
	}
	if again.lookup("x") != 0 || again.lookup("z") == 0 {
		t.Error("the file was not renamed")
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// TestOrphansAreReaped keeps an unlinked file as long as another mount has it
// open, and no longer.
func TestOrphansAreReaped(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	ino := a.create("x")
	if _, err := b.Call(context.Background(), &fsop.Request{Op: &fsop.Open{Ino: ino}, Tag: 77, Open: true}); err != nil {
		t.Fatal(err)
	}
	a.ok(&fsop.Unlink{Parent: fsop.Root, Name: []byte("x")})
	w.clock.extra.Add(int64(2 * time.Second))
	time.Sleep(100 * time.Millisecond)
	b.ok(&fsop.Write{Ino: ino, Data: []byte("still here")})
	b.ledger.Close(77)
	deadline := time.Now().Add(10 * time.Second)
	for len(w.replicas[0].tree.Orphans(0, 10)) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the orphan was not reaped")
		}
		w.clock.extra.Add(int64(100 * time.Millisecond))
		time.Sleep(10 * time.Millisecond)
	}
}

// TestNamesWaitForTheirOwn has a mount remove a name while another one's write
// is in flight, and cache something: it does not wait for that write, of which
// there is always another one, but it does wait for what changes the same name.
func TestNamesWaitForTheirOwn(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	file := a.create("file")
	b.create("gone")
	a.ok(&fsop.GetAttr{Ino: file})
	w.hold()
	call := func(m *mount, op fsop.Op) { go m.Call(context.Background(), &fsop.Request{Op: op}) }
	call(a, &fsop.Write{Ino: file, Data: []byte("data")})
	await(t, "the write is proposed", func() bool { return w.inLimbo() == 1 })
	call(b, &fsop.Unlink{Parent: fsop.Root, Name: []byte("gone")})
	await(t, "the removal is proposed", func() bool { return w.inLimbo() == 2 })
	call(a, &fsop.Rename{Parent: fsop.Root, Name: []byte("file"), NewParent: fsop.Root, NewName: []byte("gone")})
	await(t, "the rename waits for it", func() bool { return w.replicas[0].coord.Queued() == 1 })
	w.release(2)
	await(t, "the rename is proposed", func() bool { return w.inLimbo() == 1 })
	w.goOn()
	await(t, "the rename is applied", func() bool { return b.lookup("gone") == file })
}

// TestEvictedSessionLeavesNothingInFlight ends a session whose operation is
// proposed behind the end: nothing waits for its outcome.
func TestEvictedSessionLeavesNothingInFlight(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	w.elect(0, false)
	a, b := w.mount("a", client.NewMemLedger()), w.mount("b", client.NewMemLedger())
	b.create("x")
	a.lookup("x")
	w.hold()
	call := func(m *mount, op fsop.Op) { go m.Call(context.Background(), &fsop.Request{Op: op}) }
	call(b, &fsop.Create{Parent: fsop.Root, Name: []byte("y"), Mode: fsop.TypeFile | 0o644})
	await(t, "an operation is proposed", func() bool { return w.inLimbo() == 1 })
	call(a, &fsop.Unlink{Parent: fsop.Root, Name: []byte("y")})
	await(t, "another one waits for it", func() bool { return w.replicas[0].coord.Queued() == 1 })
	go a.Detach(context.Background())
	await(t, "the session's end is proposed", func() bool { return w.inLimbo() == 2 })
	w.release(1)
	await(t, "its operation is proposed behind that", func() bool { return w.inLimbo() == 2 })
	w.goOn()
	await(t, "nothing is in flight", func() bool { return w.replicas[0].coord.InFlight() == 0 })
	b.ok(&fsop.Unlink{Parent: fsop.Root, Name: []byte("y")})
}

// TestFullLogIsTriedAgain has the log refuse an entry for want of room while the
// replica goes on leading.
func TestFullLogIsTriedAgain(t *testing.T) {
	w := newWorld(t, 1)
	w.elect(0, false)
	a := w.mount("a", client.NewMemLedger())
	a.create("x")
	w.mu.Lock()
	w.full = 3
	w.mu.Unlock()
	a.create("y")
}
