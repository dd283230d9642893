package client

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// What the kernel keeps by itself it may keep because a lease covers it. The
// kernel is told how long; and when the session gives up a lease, it waits until
// the kernel has forgotten before it says so.

// Keep returns for how long op may be answered with what rep shows without
// asking the session again: 0 unless memory would answer the same now. It counts
// on [Config.Linger] seeing every answer that was given on its word.
func (s *Session) Keep(op fsop.Op, rep *fsop.Reply) time.Duration {
	s.mu.Lock()
	expires := s.mu.expires
	s.mu.Unlock()
	left := expires - s.cfg.Clock.Mono()
	if left <= 0 || !s.cache.shows(op, rep) {
		return 0
	}
	return left
}

// Lease returns which lease the session holds on an inode, 0 if none. One that
// was given up and granted again is another.
func (s *Session) Lease(ino fsop.Ino) uint64 {
	if !s.leased() {
		return 0
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	if r := s.cache.get(ino); r != nil {
		return r.id
	}
	return 0
}

// shows reports whether memory holds under leases what a successful reply shows.
// Of a rename that is only that the directory of the new name is leased (of an
// exchange, both).
func (c *cache) shows(op fsop.Op, rep *fsop.Reply) bool {
	if rep.Errno != fsop.OK {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := op.(type) {
	case *fsop.GetAttr, *fsop.SetAttr:
		return c.showsAttr(&rep.Attrs[0])
	case *fsop.Lookup:
		return c.showsName(o.Parent, o.Name, &rep.Attrs[0])
	case *fsop.Create:
		return c.showsName(o.Parent, o.Name, &rep.Attrs[0])
	case *fsop.Link:
		return c.showsName(o.Parent, o.Name, &rep.Attrs[0])
	case *fsop.ReadDir:
		for i := range rep.Entries {
			if e := &rep.Entries[i]; e.Attr == nil || !c.showsName(o.Ino, e.Name, e.Attr) {
				return false
			}
		}
		return true
	case *fsop.Rename:
		return c.get(o.NewParent) != nil && (o.Flags&fsop.RenameExchange == 0 || c.get(o.Parent) != nil)
	}
	return false
}

func (c *cache) showsName(dir fsop.Ino, name []byte, a *fsop.Attr) bool {
	r := c.usable(dir)
	return r != nil && r.names[string(name)].ino == a.Ino && c.showsAttr(a)
}

func (c *cache) showsAttr(a *fsop.Attr) bool {
	r := c.usable(a.Ino)
	return r != nil && r.attrAt > 0 && r.attr == *a
}

// linger is how long the kernel may still answer by itself.
func (s *Session) linger(inos []fsop.Ino) time.Duration {
	if s.cfg.Linger == nil {
		return 0
	}
	return s.cfg.Linger(inos)
}

// settled runs then once the kernel has forgotten what it was told of inos.
func (s *Session) settled(inos []fsop.Ino, then func()) {
	wait := s.linger(inos)
	if wait == 0 {
		then()
		return
	}
	s.cfg.Spawn(func() {
		<-s.cfg.Clock.After(wait)
		if s.cfg.Forget != nil {
			s.cfg.Forget(inos)
		}
		then()
	})
}
