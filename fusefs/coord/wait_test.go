package coord_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Whatever an operation waits for, it has its EIO when the quorum wait has passed (C5).

const (
	quorumWait = 2 * time.Second
	margin     = time.Second // for the look at what is late, and a busy machine
)

// patient is a mount that works ahead of the log in a directory, with a file.
func patient(t *testing.T, w *world) (m *mount, dir, file fsop.Ino) {
	t.Helper()
	w.patient = quorumWait
	w.elect(0, false)
	m = w.mount("a", client.NewMemLedger())
	if w.orderly {
		dir = fsop.Root
	} else {
		dir = warm(t, m, "dir")
	}
	file = m.ok(&fsop.Create{Parent: dir, Name: []byte("f"), Mode: fsop.TypeFile | 0o644}).Attrs[0].Ino
	if err := m.Sync(t.Context(), file, 0); err != nil {
		t.Fatal(err)
	}
	return m, dir, file
}

// givesUp fails the test unless an operation fails in time.
func givesUp(t *testing.T, what string, call func() error) {
	t.Helper()
	start := time.Now()
	err := call()
	if err == nil {
		t.Errorf("%s succeeded", what)
	}
	if took := time.Since(start); took > quorumWait+margin {
		t.Errorf("%s took %v: %v", what, took, err)
	}
}

// TestCrowdGivesUpInTime has many more writes wait than have room to be under way.
func TestCrowdGivesUpInTime(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	m, _, file := patient(t, w)
	w.hold()
	data := make([]byte, 128<<10)
	var all sync.WaitGroup
	for i := range uint64(192) {
		all.Go(func() {
			givesUp(t, fmt.Sprint("write ", i), func() error {
				_, err := m.Call(t.Context(), &fsop.Request{Tag: 100 + i, Op: &fsop.Write{Ino: file, Offset: i << 17, Data: data}})
				m.Finish(100 + i)
				return err
			})
		})
	}
	all.Wait()
	w.goOn()
	m.ok(&fsop.Write{Ino: file, Data: data}) // nobody has kept any room
}

// TestSlowQuorumIsWaitedFor has writes wait for room for longer than the quorum wait,
// while the log takes some of them all the time.
func TestSlowQuorumIsWaitedFor(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	m, _, file := patient(t, w)
	w.hold()
	data := make([]byte, 128<<10)
	start := time.Now()
	var all sync.WaitGroup
	for i := range uint64(120) { // 29 at a time
		all.Go(func() {
			_, err := m.Call(t.Context(), &fsop.Request{Tag: 100 + i, Op: &fsop.Write{Ino: file, Offset: i << 17, Data: data}})
			m.Finish(100 + i)
			if err != nil {
				t.Errorf("write %d after %v: %v", i, time.Since(start), err)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for slow := time.NewTicker(quorumWait / 2); ; {
		select {
		case <-slow.C:
			w.release(w.inLimbo())
			continue
		case <-done:
		}
		slow.Stop()
		break
	}
	if took := time.Since(start); took < quorumWait {
		t.Errorf("it took only %v", took)
	}
	w.goOn()
}

// TestFullQueueGivesUpInTime waits for room in the queue.
func TestFullQueueGivesUpInTime(t *testing.T) {
	w := newWorld(t, 1)
	w.queue = 4
	m, _, file := patient(t, w)
	w.hold()
	for range w.queue {
		m.try(&fsop.Write{Ino: file, Append: true, Data: []byte("x")})
	}
	givesUp(t, "a write", func() error {
		_, err := m.Call(t.Context(), &fsop.Request{Op: &fsop.Write{Ino: file, Append: true, Data: []byte("!")}})
		return err
	})
	w.goOn()
	if err := m.Sync(t.Context(), file, 0); err != nil {
		t.Fatal(err)
	}
	if got := m.ok(&fsop.GetAttr{Ino: file}).Attrs[0].Size; got != uint64(w.queue) {
		t.Errorf("size %d, want %d", got, w.queue)
	}
}

// TestSyncGivesUpInTime has what was queued become durable late, and then nobody
// confirm what another mount may have written.
func TestSyncGivesUpInTime(t *testing.T) {
	w := newWorld(t, 1)
	m, _, file := patient(t, w)
	theirs := w.mount("b", client.NewMemLedger()).create("theirs")
	w.hold()
	m.try(&fsop.Write{Ino: file, Data: []byte("x")})
	deaf := make(chan struct{})
	defer close(deaf)
	time.AfterFunc(quorumWait*3/4, func() {
		w.mu.Lock()
		w.deaf = deaf
		w.mu.Unlock()
		w.goOn()
	})
	givesUp(t, "fsync", func() error { return m.Sync(t.Context(), theirs, 0) })
}

// TestRepeatedGivesUpInTime asks again for what an earlier process has answered ahead
// of the log.
func TestRepeatedGivesUpInTime(t *testing.T) {
	w := newWorld(t, 1)
	m, dir, _ := patient(t, w)
	w.hold()
	create := &fsop.Request{Tag: 9, Open: true, Op: &fsop.Create{Parent: dir, Name: []byte("g"), Mode: fsop.TypeFile | 0o644}}
	rep, ok := m.TryChange(create)
	if !ok {
		t.Fatal("not done ahead of the log")
	}
	made := rep.Attrs[0].Ino
	m.kill()
	next := w.mount("a", m.ledger)
	next.Resumed([]uint64{9})
	givesUp(t, "create", func() error {
		_, err := next.Call(t.Context(), create)
		return err
	})
	next.Finish(9)
	if open := m.ledger.OpenOf([]fsop.Ino{made}); len(open) > 0 {
		t.Error("the file counts as open, and nobody has it")
	}
	w.goOn()
	await(t, "it is made all the same", func() bool { return next.lookupIn(dir, "g") == made })
}

// TestLateRequestIsNotDone asks for a change on behalf of a request that has waited for
// too long already, while the log took nothing.
func TestLateRequestIsNotDone(t *testing.T) {
	w := newWorld(t, 1)
	w.orderly = true
	m, _, file := patient(t, w)
	w.hold()
	late := &fsop.Request{Op: &fsop.Write{Ino: file, Data: []byte("late")}, Deadline: m.Deadline()}
	givesUp(t, "a write", func() error {
		_, err := m.Call(t.Context(), &fsop.Request{Op: &fsop.Write{Ino: file, Data: []byte("before")}})
		return err
	})
	late.Deadline = min(late.Deadline, m.Deadline()-quorumWait)
	if _, err := m.Call(t.Context(), late); fsop.CodeOf(err) != fsop.NoQuorum {
		t.Errorf("%v", err)
	}
	w.goOn()
	await(t, "what was asked for before is done", func() bool { return m.ok(&fsop.GetAttr{Ino: file}).Attrs[0].Size == 6 })
	if got := m.ok(&fsop.Read{Ino: file, Length: 6}).Data; string(got) != "before" {
		t.Errorf("it has %q", got)
	}
}
