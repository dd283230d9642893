package store

import (
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactor lets at most limit compactions run at once over all stores of a
// process. Unlike pebble's own scheduler it has no ticker: a store that was
// refused is asked again when a compaction ends.
type compactor struct {
	mu       sync.Mutex
	idle     sync.Cond // signalled when a member's call has ended
	limit    int
	running  int
	granting bool // a goroutine is in grant
	again    bool // and has to look once more
	members  []*member
}

func newCompactor(limit int) *compactor {
	c := &compactor{limit: limit}
	c.idle.L = &c.mu
	return c
}

func (c *compactor) member() *member { return &member{c: c} }

// member is one store's side of the compactor.
type member struct {
	c *compactor
	// The rest is guarded by c.mu.
	db      pebble.DBForCompaction
	running int
	waiting bool // was refused and not asked since
	calling bool // a call into db is going on
}

var (
	_ pebble.CompactionScheduler   = (*member)(nil)
	_ pebble.CompactionGrantHandle = (*member)(nil)
)

// Register implements pebble.CompactionScheduler.
func (m *member) Register(_ int, db pebble.DBForCompaction) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.db = db
	m.c.members = append(m.c.members, m)
}

// Unregister implements pebble.CompactionScheduler.
func (m *member) Unregister() {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.c.members = slices.DeleteFunc(m.c.members, func(o *member) bool { return o == m })
	for m.calling {
		m.c.idle.Wait()
	}
}

// TrySchedule implements pebble.CompactionScheduler.
func (m *member) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if !slices.Contains(m.c.members, m) || !m.free() {
		m.waiting = true
		return false, nil
	}
	m.start()
	return true, m
}

func (m *member) free() bool {
	return m.c.running < m.c.limit && m.running < m.db.GetAllowedWithoutPermission()
}

func (m *member) start() {
	m.c.running++
	m.running++
}

func (m *member) end() {
	m.c.running--
	m.running--
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler: what
// a store may run is always one.
func (m *member) UpdateGetAllowedWithoutPermission() {}

// Started implements pebble.CompactionGrantHandle.
func (m *member) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (m *member) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (m *member) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements pebble.CompactionGrantHandle: what ended makes room for one
// that waits.
func (m *member) Done() {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	m.end()
	c.again = true
	if c.granting {
		return
	}
	c.granting = true
	for c.again {
		c.again = false
		c.grant()
	}
	c.granting = false
}

// grant offers room to those who were refused, the longest-served last. It
// is called with c.mu held and gives it up around calls into a store.
func (c *compactor) grant() {
	for _, m := range slices.Clone(c.members) {
		if c.running >= c.limit {
			return
		}
		if !m.waiting || !slices.Contains(c.members, m) || !m.free() {
			continue
		}
		m.calling = true
		m.start()
		c.mu.Unlock()
		waiting, _ := m.db.GetWaitingCompaction()
		accepted := waiting && m.db.Schedule(m)
		c.mu.Lock()
		m.calling = false
		c.idle.Broadcast()
		if !accepted {
			m.end()
			m.waiting = false
			continue
		}
		// To the end of the queue, if it is still there.
		if i := slices.Index(c.members, m); i >= 0 {
			c.members = append(slices.Delete(c.members, i, i+1), m)
		}
	}
}
