package kill

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// load is everything that happens on the two mounts.
type load struct {
	mounts [2]string
	board  *Board
	pause  time.Duration
	hands  []*hand
	open   []*keptOpen // over all rounds
	// readers read through each mount when a round is verified.
	readers []*hand
}

// round is the load between two points at which it is verified.
type round struct {
	*load
	dir      string // below both mounts
	stopping atomic.Bool
	working  sync.WaitGroup
	records  sync.Map // writer → records that were appended

	mu   sync.Mutex
	errs []error

	bulks map[string]*bulk // by writer; complete once the crew is there
}

func newLoad(mounts [2]string, board *Board, pause time.Duration) *load {
	return &load{mounts: mounts, board: board, pause: pause}
}

// hand adds a hand that works through a mount.
func (l *load) hand(name string, mount int) *hand {
	n := len(l.hands)
	h := &hand{
		name: fmt.Sprintf("%s-%d", name, mount+1), mount: l.mounts[mount], slot: &l.board.slots[n],
		rand: rand.New(rand.NewPCG(uint64(n), uint64(now()))), pause: l.pause,
	}
	h.slot.used.Store(1)
	l.hands = append(l.hands, h)
	return h
}

// verifier is a hand that works only while the others rest: nobody waits for it.
func (l *load) verifier(name string, mount int) *hand {
	h := l.hand(name, mount)
	h.slot.used.Store(0)
	h.pause = 0
	return h
}

// pair is a hand on each mount.
func (l *load) pair(name string) [2]*hand { return [2]*hand{l.hand(name, 0), l.hand(name, 1)} }

// work is one thread of a round: it is called until the round ends, or it
// fails.
type work func(n int) error

// crew is all that a load does in each round, with the hands that do it.
func (l *load) crew() func(r *round) []work {
	var crew []func(r *round) work
	for m := range l.mounts {
		for file := range 2 {
			h := l.hand(fmt.Sprintf("append-%d", file), m)
			crew = append(crew, func(r *round) work { return appender(r, h, file) })
		}
		for name, w := range map[string]func(*round, *hand, *hand) work{"rename": renamer, "link": linker, "mkdir": dirMaker, "list": lister, "bulk": bulkWriter} {
			h, other := l.hand(name, m), l.hand(name+"-check", 1-m)
			crew = append(crew, func(r *round) work { return w(r, h, other) })
		}
	}
	for name, w := range map[string]func(*round, [2]*hand) work{"create-race": createRace, "rename-race": renameRace} {
		both := l.pair(name)
		crew = append(crew, func(r *round) work { return w(r, both) })
	}
	for m := range l.mounts {
		l.readers = append(l.readers, l.verifier("verify", m))
		k := &keptOpen{load: l, h: l.hand("open", m), other: l.hand("open-check", 1-m)}
		l.open = append(l.open, k)
		crew = append(crew, func(*round) work { return k.step })
	}
	return func(r *round) (all []work) {
		for _, c := range crew {
			all = append(all, c(r))
		}
		return all
	}
}

// begin starts a round in a new folder.
func (l *load) begin(n int, crew func(*round) []work) (*round, error) {
	r := &round{load: l, dir: fmt.Sprintf("round-%03d", n)}
	if err := unix.Mkdir(l.mounts[0]+"/"+r.dir, 0o755); err != nil {
		return nil, fmt.Errorf("mkdir %s: %w", r.dir, err)
	}
	for _, w := range crew(r) {
		r.working.Go(func() {
			for n := 0; !r.stopping.Load(); n++ {
				if err := w(n); err != nil {
					r.fail(err)
					return
				}
			}
		})
	}
	return r, nil
}

func (r *round) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *round) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}

// end waits for all hands and verifies what they leave.
func (r *round) end() error {
	r.stopping.Store(true)
	r.working.Wait()
	if err := r.failed(); err != nil {
		return err
	}
	for _, m := range r.mounts {
		r.verifyRecords(m)
	}
	r.verifyBulks()
	return r.failed()
}

// path is a name in the round's folder.
func (r *round) path(format string, args ...any) string {
	return r.dir + "/" + fmt.Sprintf(format, args...)
}
