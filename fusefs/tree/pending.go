package tree

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// A page that is changed in part is not changed on the disk at once. It waits in
// memory until its checksum is durable (see pagesums.go), so that a replay can
// tell newer bytes from damaged ones. Whoever reads contents gets pending pages in
// the place of those on the disk.

// pendingDefault is how many pages of a tree are pending at most between two
// entries, if its Config does not say.
const pendingDefault = 128

// pendingPages are pages of content files that the disk does not have yet. The
// bytes of one change under its inode's content lock; mu guards the table.
type pendingPages struct {
	count atomic.Int64
	mu    sync.RWMutex
	files map[fsop.Ino]map[uint64]*[pageSize]byte
}

// get returns a pending page, nil when it is not.
func (s *pendingPages) get(ino fsop.Ino, page uint64) *[pageSize]byte {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.files[ino][page]
}

func (s *pendingPages) put(ino fsop.Ino, page uint64, p *[pageSize]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file := s.files[ino]
	if file == nil {
		if s.files == nil {
			s.files = make(map[fsop.Ino]map[uint64]*[pageSize]byte)
		}
		file = make(map[uint64]*[pageSize]byte)
		s.files[ino] = file
	}
	if file[page] == nil {
		s.count.Add(1)
	}
	file[page] = p
}

// drop forgets the pages [p0, p1) of a file.
func (s *pendingPages) drop(ino fsop.Ino, p0, p1 uint64) {
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	file := s.files[ino]
	before := len(file)
	maps.DeleteFunc(file, func(p uint64, _ *[pageSize]byte) bool { return p >= p0 && p < p1 })
	s.count.Add(int64(len(file) - before))
	if len(file) == 0 {
		delete(s.files, ino)
	}
}

// patch puts pending pages over bytes that were read from the disk at off.
func (s *pendingPages) patch(ino fsop.Ino, p []byte, off uint64) {
	if s.count.Load() == 0 {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	file := s.files[ino]
	if len(file) == 0 {
		return
	}
	end := off + uint64(len(p))
	for page, p1 := pagesOf(off, end); page < p1; page++ {
		if have := file[page]; have != nil {
			lo, hi := max(off, page*pageSize), min(end, (page+1)*pageSize)
			copy(p[lo-off:hi-off], have[lo-page*pageSize:])
		}
	}
}

// list returns which pages are pending, in order.
func (s *pendingPages) list() []BadPage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []BadPage
	for ino, file := range s.files {
		for page := range file {
			all = append(all, BadPage{ino, page})
		}
	}
	slices.SortFunc(all, func(a, b BadPage) int {
		return cmp.Or(cmp.Compare(a.Ino, b.Ino), cmp.Compare(a.Page, b.Page))
	})
	return all
}

// alter returns the page that an entry is going to change in part, as it is before,
// and puts it among the pending ones. good is false while a replay can't know
// whether the page is damaged: its checksum must go on not to fit. The caller holds
// the content lock. A damaged page that no other replica has stops the replica: a
// checksum that fits would make the damage look good.
func (x *tx) alter(n *inode, page uint64) (p *[pageSize]byte, good bool) {
	c := x.t.content
	p = c.pending.get(n.ino, page)
	if p == nil {
		p = new([pageSize]byte)
		if err := c.fromDisk(n.ino, p[:], page*pageSize); err != nil {
			stop(fmt.Sprintf("read contents of inode %d", n.ino), err)
		}
	}
	switch {
	case pageSum(p[:]) == x.sum(n.ino, page), x.lenient(n.ino, page):
		good = true
	case x.t.Ready():
		if !x.fetched(n, page, p[:]) {
			stop(fmt.Sprintf("inode %d page %d", n.ino, page), errDamaged)
		}
		good = true
	}
	c.pending.put(n.ino, page, p)
	return p, good
}

// alteredSum is the checksum of a page that alter returned, after its change.
func alteredSum(p *[pageSize]byte, good bool) uint32 {
	if good {
		return pageSum(p[:])
	}
	return spoiled(p[:])
}

// settlePending keeps the number of pending pages in its bounds.
func (t *Tree) settlePending() error {
	most := t.cfg.PendingPages
	if most == 0 {
		most = pendingDefault
	}
	if t.content.pending.count.Load() <= int64(most) {
		return nil
	}
	return t.writePending()
}

// writePending writes the pending pages to their files, after it has made their
// checksums durable. The applier calls it between two entries.
func (t *Tree) writePending() error {
	pages := t.content.pending.list()
	if len(pages) == 0 {
		return nil
	}
	if err := t.recordPending(pages); err != nil {
		return fmt.Errorf("record checksums: %w", err)
	}
	for _, p := range pages {
		if err := t.writePendingPage(p); err != nil {
			return fmt.Errorf("write contents of inode %d: %w", p.Ino, err)
		}
	}
	return nil
}

func (t *Tree) writePendingPage(p BadPage) error {
	stripe := &t.stripes[uint64(p.Ino)%stripeCount]
	stripe.Lock()
	defer stripe.Unlock()
	data := t.content.pending.get(p.Ino, p.Page)
	if data == nil {
		return nil
	}
	h, err := t.content.forWriting(p.Ino)
	if err != nil {
		return err
	}
	defer h.release()
	if _, err := h.WriteAt(data[:], int64(p.Page*pageSize)); err != nil {
		return err
	}
	t.content.pending.drop(p.Ino, p.Page, p.Page+1)
	return nil
}

// recordPending makes durable which checksums pages have by now. One that does not
// fit stays without: nobody knows what the page ought to be.
func (t *Tree) recordPending(pages []BadPage) error {
	sums := t.sums.Load()
	if sums == nil || t.g.applied <= sums.since {
		return nil
	}
	var recs []pageRecord
	err := t.reading(nil, func(v view) {
		for _, p := range pages {
			data := t.content.pending.get(p.Ino, p.Page)
			if sum := v.sum(p.Ino, p.Page); data != nil && pageSum(data[:]) == sum {
				recs = append(recs, pageRecord{t.g.applied, p.Ino, p.Page, sum})
			}
		}
	})
	if err != nil {
		return err
	}
	return sums.add(recs)
}
