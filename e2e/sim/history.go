package sim

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is what the threads asked and were told.
type history struct {
	mu   sync.Mutex
	now  int64 // counts calls and returns
	ops  []*record
	lost map[uint64]bool  // sessions whose end is in it
	ends map[uint64]int64 // when the log had ended a session
	// seen is when a mutation of a session that was answered was called.
	seen  map[uint64]int64
	syncs []*syncing
	// locked are the areas in which a session asked for locks.
	locked map[uint64]map[int]bool
}

// record is one operation. Times are in calls and returns of all threads, so
// that what was over before something else began has lower ones.
type record struct {
	area      int
	call, ret int64
	at, until time.Duration
	in        input
	out       output

	mount *simClient
	asked uint64 // the session when it was asked
	ahead number // of what was answered ahead of the log
}

func newHistory() *history {
	return &history{lost: map[uint64]bool{}, ends: map[uint64]int64{}, seen: map[uint64]int64{}, locked: map[uint64]map[int]bool{}}
}

func (h *history) begin(area int, in input, cl *simClient, at time.Duration) *record {
	asked := cl.sessionID()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	r := &record{area: area, call: h.now, in: in, at: at, mount: cl, asked: asked}
	h.lockedLocked(r)
	return r
}

// end records an answer.
func (h *history) end(r *record, in input, out output, at time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	r.in, r.out, r.ret, r.until = in, out, h.now, at
	h.ops = append(h.ops, r)
	if in.session != 0 && in.kind.mutation() && r.ahead.seq == 0 { // nobody else took part in the others
		h.seen[in.session] = max(h.seen[in.session], r.call)
	}
	h.lockedLocked(r)
}

// unknown records that it never had an answer: it may happen at any time, also
// never, which is the same as after everything else.
func (h *history) unknown(r *record, in input, at time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	if in.session == 0 {
		in.session = r.asked // a lock goes with it, if it was taken
	}
	r.in, r.out, r.ret, r.until = in, output{unknown: true}, math.MaxInt64-1, at
	h.ops = append(h.ops, r)
	h.lockedLocked(r)
}

func (h *history) lockedLocked(r *record) {
	if r.in.kind != doLock {
		return
	}
	for _, session := range []uint64{r.asked, r.in.session} {
		if h.locked[session] == nil {
			h.locked[session] = map[int]bool{}
		}
		h.locked[session][r.area] = true
	}
}

// sessionLost records the end of a session, which lies between its last answered
// mutation and now, or is open if nobody was told.
func (h *history) sessionLost(session uint64, told bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if session == 0 || h.lost[session] {
		return
	}
	h.lost[session] = true
	h.now++
	ret := h.now
	if !told {
		ret = math.MaxInt64 - 1
	}
	h.ends[session] = h.now
	for area := range h.locked[session] {
		h.ops = append(h.ops, &record{area: area, call: max(h.seen[session], 1), ret: ret, in: input{kind: doEvict, session: session}})
	}
}

// checkTime is how long a history may take to check.
const checkTime = 8 * time.Second

// check says which area has no order in which everything fits.
func (h *history) check(counts *Counts, small bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for area := range areas {
		ops := h.until(area, math.MaxInt64)
		counts.AddN("operations checked", len(ops))
		switch porcupine.CheckOperationsTimeout(model(small), ops, checkTime) {
		case porcupine.Illegal:
			return fmt.Errorf("history of area %d is not linearizable:\n%s", area, h.evidence(area, small))
		case porcupine.Unknown:
			counts.Add("history not decided in time")
		}
	}
	return nil
}

// until is what had happened in an area at a time: what had no answer then may
// not have happened yet.
func (h *history) until(area int, end int64) (ops []porcupine.Operation) {
	for _, r := range h.ops {
		if r.area != area || r.call > end {
			continue
		}
		op := porcupine.Operation{Input: &r.in, Output: &r.out, Call: r.call, Return: r.ret}
		if r.ret > end {
			if !r.in.kind.mutation() {
				continue
			}
			op.Output, op.Return = &output{unknown: true}, math.MaxInt64-1
		}
		ops = append(ops, op)
	}
	return ops
}

// evidence finds the answer from which on no order fits, and lists what came before
// and has to do with it.
func (h *history) evidence(area int, small bool) string {
	fits := func(end int) bool {
		return porcupine.CheckOperationsTimeout(model(small), h.until(area, int64(end)), checkTime) != porcupine.Illegal
	}
	end := int64(sort.Search(int(h.now), func(end int) bool { return !fits(end) }))
	var ops []*record
	for _, r := range h.ops {
		if r.area == area && r.call <= end {
			ops = append(ops, r)
		}
	}
	slices.SortFunc(ops, func(a, b *record) int { return int(a.call - b.call) })
	var b strings.Builder
	for _, r := range ops[max(0, len(ops)-60):] {
		mark := ' '
		if r.ret == end {
			mark = '!'
		}
		fmt.Fprintf(&b, "%c [%5d %5d] %9v %9v  %v → %v\n", mark, r.call, min(r.ret, 99999), r.at, r.until, &r.in, &r.out)
	}
	return b.String()
}

// digest stands for everything that was asked, told and done, in its order.
func (w *world) digest() (sum [32]byte) {
	h := sha256.New()
	for _, r := range w.history.ops {
		fmt.Fprintln(h, r.area, r.call, r.ret, r.at, r.until, &r.in, &r.out)
	}
	fmt.Fprintln(h, w.mu.trace.String(), w.now())
	return [32]byte(h.Sum(nil))
}

// The cells of a file: each is of one write, so that it is known whose a byte is.
const (
	cellSize = 1500
	cellsMax = 12
)

func cellBytes(id uint32) []byte {
	b := make([]byte, cellSize)
	if id == 0 {
		return b
	}
	for i := range b {
		b[i] = byte(id>>(8*(i%4))) ^ byte(i/4%2*0x55)
	}
	return b
}

func bytesOf(ids []uint32) []byte {
	var b []byte
	for _, id := range ids {
		b = append(b, cellBytes(id)...)
	}
	return b
}

// cellsOf tells which write each cell is of.
func cellsOf(data []byte) (ids []uint32, err error) {
	if len(data)%cellSize != 0 {
		return nil, fmt.Errorf("%d bytes are no whole cells", len(data))
	}
	for i := 0; i < len(data); i += cellSize {
		c := data[i : i+cellSize]
		id := uint32(c[0]) | uint32(c[1])<<8 | uint32(c[2])<<16 | uint32(c[3])<<24
		if string(c) != string(cellBytes(id)) {
			return nil, fmt.Errorf("cell %d is torn", i/cellSize)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
