package tree

import (
	"container/list"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// handles keeps content files open, the most recently used ones, for all
// trees of a process.
type handles struct {
	max int

	mu   sync.Mutex
	open map[fileKey]*handle
	lru  list.List // of *handle, most recently used first
}

type fileKey struct {
	owner *content
	ino   fsop.Ino
}

// handle is an open content file. It is closed when it has left the table and
// nobody uses it.
type handle struct {
	disk.File
	set  *handles
	key  fileKey
	refs int
	elem *list.Element // nil when it has left the table
}

func newHandles(max int) *handles {
	return &handles{max: max, open: make(map[fileKey]*handle)}
}

// get returns the file's handle, opening it if needed. It is to be released.
func (s *handles) get(key fileKey, open func() (disk.File, error)) (*handle, error) {
	s.mu.Lock()
	if h := s.use(key); h != nil {
		s.mu.Unlock()
		return h, nil
	}
	s.mu.Unlock()
	f, err := open()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.use(key); h != nil {
		f.Close()
		return h, nil
	}
	h := &handle{File: f, set: s, key: key, refs: 1}
	h.elem = s.lru.PushFront(h)
	s.open[key] = h
	for s.lru.Len() > s.max {
		s.remove(s.lru.Back().Value.(*handle))
	}
	return h, nil
}

func (s *handles) use(key fileKey) *handle {
	h := s.open[key]
	if h != nil {
		h.refs++
		s.lru.MoveToFront(h.elem)
	}
	return h
}

func (h *handle) release() {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	h.refs--
	h.closeUnused()
}

func (h *handle) closeUnused() {
	if h.refs == 0 && h.elem == nil {
		h.File.Close() // synced through a handle of its own, when it matters
	}
}

func (s *handles) remove(h *handle) {
	s.lru.Remove(h.elem)
	h.elem = nil
	delete(s.open, h.key)
	h.closeUnused()
}

// drop forgets one file.
func (s *handles) drop(key fileKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.open[key]; h != nil {
		s.remove(h)
	}
}

// dropAll forgets all files of an owner.
func (s *handles) dropAll(owner *content) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, h := range s.open {
		if key.owner == owner {
			s.remove(h)
		}
	}
}
