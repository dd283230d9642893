package coord_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

var (
	worldSeeds = flag.Int("worlds", 12, "seeds of the random world to try")
	worldAhead = flag.Bool("ahead", false, "let the sessions of the random world work ahead of the log")
)

// TestLinearizable has sessions work on the same few files, as mount owners have
// them (with -ahead also ahead of the log), while leaders change and connections
// break, and looks for one order that explains all answers (B4, B5).
func TestLinearizable(t *testing.T) {
	for seed := range *worldSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			w.orderly = !*worldAhead
			h := runWorld(t, w, uint64(seed), 400*time.Millisecond)
			if res := porcupine.CheckEventsTimeout(filesModel, h.events(), 30*time.Second); res != porcupine.Ok {
				t.Fatalf("the history is %v", res)
			}
			if h.lost != 0 {
				t.Errorf("%d sessions were lost", h.lost)
			}
			t.Logf("%d operations, %d of them ahead of the log", len(h.ops), h.ahead.Load())
		})
	}
}

// A step is what one operation asked; an outcome what it was answered.
type (
	step struct {
		kind string // size, append, create, unlink, lookup
		key  string // the file or the name
	}
	outcome struct {
		errno fsop.Errno
		size  uint64
		known bool // false: no answer, it may have happened
	}
)

// fileState is a name's presence, or a file's size.
type fileState struct {
	there bool
	size  uint64
}

// filesModel explains one file or name at a time.
var filesModel = porcupine.Model{
	PartitionEvent: partition,
	Init:           func() any { return fileState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(fileState), input.(step), output.(outcome)
		return s.step(in, out)
	},
}

func (s fileState) step(in step, out outcome) (bool, any) {
	next, want := s, outcome{known: true}
	switch in.kind {
	case "size":
		want.size = s.size
	case "append":
		want.size, next.size = s.size+1, s.size+1
	case "create":
		if s.there {
			want.errno = fsop.EEXIST
		}
		next.there = true
	case "unlink":
		if !s.there {
			want.errno = fsop.ENOENT
		}
		next.there = false
	case "lookup":
		if !s.there {
			want.errno = fsop.ENOENT
		}
	}
	return !out.known || out == want, next
}

func partition(events []porcupine.Event) [][]porcupine.Event {
	keys := map[int]string{}
	parts := map[string][]porcupine.Event{}
	for _, e := range events {
		if e.Kind == porcupine.CallEvent {
			keys[e.Id] = e.Value.(step).key
		}
		parts[keys[e.Id]] = append(parts[keys[e.Id]], e)
	}
	var all [][]porcupine.Event
	for _, p := range parts {
		all = append(all, p)
	}
	return all
}

// history is what was asked and answered, in the order of time.
type history struct {
	mu    sync.Mutex
	list  []porcupine.Event
	ops   []step
	ahead atomic.Int64
	lost  uint64 // sessions
}

func (h *history) called(client int, s step) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := len(h.ops)
	h.ops = append(h.ops, s)
	h.list = append(h.list, porcupine.Event{ClientId: client, Kind: porcupine.CallEvent, Value: s, Id: id})
	return id
}

func (h *history) returned(client, id int, out outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, porcupine.Event{ClientId: client, Kind: porcupine.ReturnEvent, Value: out, Id: id})
}

func (h *history) events() []porcupine.Event { return h.list }

// runWorld lets three sessions with two users each work for a while.
func runWorld(t *testing.T, w *world, seed uint64, long time.Duration) *history {
	w.elect(0, false)
	h := &history{}
	const sessions = 3
	ms := make([]atomic.Pointer[mount], sessions)
	ledgers := make([]client.Ledger, sessions)
	for i := range ms {
		ledgers[i] = client.NewMemLedger()
		w.near = func() uint64 { return uint64(i)%uint64(len(w.replicas)) + 1 }
		ms[i].Store(w.mount(fmt.Sprint("m", i), ledgers[i]))
	}
	dir := ms[0].Load().ok(&fsop.Create{Parent: fsop.Root, Name: []byte("dir"), Mode: fsop.TypeDir | 0o755}).Attrs[0].Ino
	var files []fsop.Ino
	for i := range 2 {
		op := &fsop.Create{Parent: dir, Name: fmt.Append(nil, "file", i), Mode: fsop.TypeFile | 0o644}
		files = append(files, ms[0].Load().ok(op).Attrs[0].Ino)
	}
	stop := make(chan struct{})
	var users sync.WaitGroup
	for i := range sessions * 2 {
		users.Go(func() {
			u := user{h: h, id: i, rng: rand.New(rand.NewPCG(seed, uint64(i))), dir: dir, files: files}
			for {
				select {
				case <-stop:
					return
				default:
					u.act(ms[i%sessions].Load())
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	for end := time.Now().Add(long); time.Now().Before(end); {
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		switch rng.IntN(4) {
		case 0:
			w.hold()
			time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
			w.elect(rng.IntN(3), rng.IntN(2) == 0)
		case 1:
			w.cut(rng.IntN(8))
		case 2:
			w.hold()
			time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
			w.goOn()
		}
	}
	w.goOn()
	close(stop)
	users.Wait()
	for i := range ms {
		h.lost += ms[i].Load().Status().Lost
	}
	w.settle()
	return h
}

// user is one thread of an application.
type user struct {
	h     *history
	id    int
	rng   *rand.Rand
	dir   fsop.Ino
	files []fsop.Ino
}

func (u *user) act(m *mount) {
	n := u.rng.IntN(3)
	// Mostly the own one, so that leases stay where they are for a while.
	if u.rng.IntN(4) > 0 {
		n = u.id % 3
	}
	name := fmt.Sprint("name", n)
	file := n % len(u.files)
	switch u.rng.IntN(6) {
	case 0:
		u.ask(m, step{"size", fmt.Sprint(file)}, &fsop.GetAttr{Ino: u.files[file]})
	case 1, 2:
		u.ask(m, step{"append", fmt.Sprint(file)}, &fsop.Write{Ino: u.files[file], Append: true, Data: []byte("x")})
	case 3:
		u.ask(m, step{"create", name}, &fsop.Create{Parent: u.dir, Name: []byte(name), Mode: fsop.TypeFile | 0o644, Excl: true})
	case 4:
		u.ask(m, step{"unlink", name}, &fsop.Unlink{Parent: u.dir, Name: []byte(name)})
	case 5:
		u.ask(m, step{"lookup", name}, &fsop.Lookup{Parent: u.dir, Name: []byte(name)})
	}
}

func (u *user) ask(m *mount, s step, op fsop.Op) {
	id := u.h.called(u.id, s)
	out := outcome{known: true}
	var rep *fsop.Reply
	var ok bool
	if op.Kind().Query() {
		rep, ok = m.TryCall(&fsop.Request{Op: op})
	} else if rep, ok = m.TryChange(&fsop.Request{Op: op}); ok {
		u.h.ahead.Add(1)
	}
	if !ok {
		var err error
		if rep, err = m.Call(context.Background(), &fsop.Request{Op: op}); err != nil {
			u.h.returned(u.id, id, outcome{})
			return
		}
	}
	out.errno = rep.Errno
	if rep.Errno == fsop.OK && (s.kind == "size" || s.kind == "append") {
		out.size = rep.Attrs[0].Size
	}
	u.h.returned(u.id, id, out)
}
