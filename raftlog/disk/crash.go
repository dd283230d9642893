package disk

import (
	"maps"
	"slices"
)

// Keep says what of the data that was not synced a power cut leaves.
type Keep int

const (
	// KeepSome leaves a random part: each sector as it was after one of the
	// writes since the last sync, sizes and holes as after one of the changes,
	// names with any of the changes that do not depend on a lost one.
	KeepSome Keep = iota
	// KeepNone leaves what was synced and nothing else.
	KeepNone
	// KeepAll leaves everything, as if the last moment had been enough to sync it.
	KeepAll
)

// survivors returns the contents of the file after a power cut.
func (f *inode) survivors(r *random, keep Keep) content {
	switch keep {
	case KeepNone:
		return f.dur.clone()
	case KeepAll:
		clear(f.owned) // the clone shares the pages
		return f.cur.clone()
	}
	s := survival{
		content: f.dur.clone(),
		owned:   make(map[int64]bool),
		stopped: make(map[int64]bool),
		rand:    r,
		eighths: r.below(9),
		sized:   r.below(len(f.pending) + 1),
	}
	for i, c := range f.pending {
		s.change(i, c)
	}
	s.content.free(s.content.size, endOfFile, s.owned)
	return s.content
}

// survival decides what becomes of each change. Changes of size and holes
// survive up to a point (they go through a journal); sectors are torn from each
// other, but in each one writes survive up to a point too, because they went
// through one page.
type survival struct {
	content
	owned   map[int64]bool
	stopped map[int64]bool // sectors that take no more writes
	rand    *random
	eighths int
	sized   int // how many changes count for sizes and holes
}

func (s *survival) change(i int, c change) {
	counts := i < s.sized
	if counts {
		s.size = c.size
	}
	switch {
	case c.kind == changeWrite:
		s.write(c)
	case c.kind == changeFree && counts:
		s.free(c.off, c.off+c.n, s.owned)
		maps.DeleteFunc(s.stopped, func(sector int64, _ bool) bool { return c.covers(sector) })
	case c.kind == changeFree:
		// Writes after it went to new blocks, which nothing refers to.
		last := min((c.off+c.n-1)/SectorSize, s.lastSector())
		for sector := c.off / SectorSize; sector <= last; sector++ {
			s.stopped[sector] = true
		}
	}
}

// lastSector bounds the sectors that a lost hole can protect: there are no
// surviving bytes past the pages.
func (s *survival) lastSector() int64 {
	end := s.size
	for i := range s.pages {
		end = max(end, (i+1)*pageSize)
	}
	return end / SectorSize
}

func (s *survival) write(c change) {
	for data, off := c.data, c.off; len(data) > 0; {
		n := min(len(data), int(SectorSize-off%SectorSize))
		sector := off / SectorSize
		if !s.stopped[sector] && s.rand.chance(s.eighths) {
			s.content.write(data[:n], off, s.owned)
		} else {
			s.stopped[sector] = true
		}
		data, off = data[n:], off+int64(n)
	}
}

func (c change) covers(sector int64) bool {
	return c.off <= sector*SectorSize && (sector+1)*SectorSize <= c.off+c.n
}

// survivingNames returns the changes of names that a power cut leaves.
func (m *Mem) survivingNames(r *random, keep Keep) []nameChange {
	switch keep {
	case KeepNone:
		return nil
	case KeepAll:
		return m.pending
	}
	var kept []nameChange
	lost := make(map[entry]bool)
	eighths := r.below(9)
	for _, c := range m.pending {
		if r.chance(eighths) && !c.touches(lost) {
			kept = append(kept, c)
		} else {
			c.mark(lost)
		}
	}
	return kept
}

// CrashClone returns a new disk with what a power cut at this moment would leave
// on this one, which goes on. No file of the new one is open or locked.
func (m *Mem) CrashClone(keep Keep) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashed(keep)
}

// Crash cuts the power: every later call on this disk and on its open files
// fails with ErrPowerOff. It returns the disk as it is after power came back.
func (m *Mem) Crash(keep Keep) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	after := m.crashed(keep)
	m.off = true
	return after
}

// ProcessDied ends every open file and lock, as the death of the process that holds
// them does: calls on them fail with io/fs.ErrClosed. What was not synced stays in
// the page cache: whoever opens the file sees it, a power cut may take it.
func (m *Mem) ProcessDied() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f := range m.open {
		f.close()
	}
	clear(m.locked)
}

func (m *Mem) crashed(keep Keep) *Mem {
	r := &random{m.rand.next()}
	after := NewMem(m.rand.next())
	after.capacity, after.maxInodes, after.clock = m.capacity, m.maxInodes, m.clock
	names := durableNames(m, m.survivingNames(r, keep))
	after.root = after.rebuild(m.root, names, r, keep, make(map[*inode]*inode))
	return after
}

// durableNames returns the names of every directory with the changes applied.
func durableNames(m *Mem, changes []nameChange) func(*inode) map[string]*inode {
	edited := make(map[*inode]map[string]*inode)
	for _, c := range changes {
		for _, e := range c.edits {
			if edited[e.dir] == nil {
				edited[e.dir] = maps.Clone(e.dir.durable)
			}
			e.set(edited[e.dir])
		}
	}
	return func(dir *inode) map[string]*inode {
		if names := edited[dir]; names != nil {
			return names
		}
		return dir.durable
	}
}

// rebuild copies the tree below an inode in the order of names, so that the
// random numbers fall the same way each time.
func (m *Mem) rebuild(old *inode, names func(*inode) map[string]*inode, r *random, keep Keep, done map[*inode]*inode) *inode {
	if n := done[old]; n != nil {
		return n
	}
	var fresh *inode
	if old.isDir {
		fresh = newDir()
	} else {
		fresh = newFile()
		fresh.dur = old.survivors(r, keep)
		fresh.cur = fresh.dur.clone()
		m.used += int64(len(fresh.cur.pages))
	}
	fresh.modified = old.modified
	done[old] = fresh
	m.inodes++
	if !old.isDir {
		return fresh
	}
	children := names(old)
	for _, name := range slices.Sorted(maps.Keys(children)) {
		child := m.rebuild(children[name], names, r, keep, done)
		child.links++
		fresh.children[name], fresh.durable[name] = child, child
	}
	return fresh
}
