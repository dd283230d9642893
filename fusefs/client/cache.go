package client

import (
	"slices"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// DefaultCacheInodes is how many inodes a session knows.
const DefaultCacheInodes = 96 << 10

// namesPerDir bounds the names remembered of one directory.
const namesPerDir = 64 << 10

// cache holds what the session's leases let it answer. A record is there only
// while its inode is leased. Everything in it carries the log index whose state
// it shows: an older reply never overwrites a newer one, and what was dropped
// for room leaves its index behind as a floor.
//
// Replies and recalls are applied by the connection's one reading goroutine in
// the order in which the coordinator decided them; lookups may come from any.
type cache struct {
	mu      sync.Mutex
	half    int                    // how many inodes each of hot and cold has at most
	hot     map[fsop.Ino]*record   // used since the last turn
	cold    map[fsop.Ino]*record   // used before; dropped at the next turn
	floor   uint64                 // replies older than this may not be cached
	lastID  uint64                 // of a record
	busyAll int                    // own mutations in flight whose victims are unknown
	busy    map[fsop.Ino]int       // own mutations in flight by inode
	fences  map[*fence]struct{}    // those of them whose victims are known
	dirty   map[fsop.Ino]dirtiness // what was answered ahead of the log and is not applied
	small   small                  // contents of small files
	seed    [16]byte               // of the cookies of names
}

// record is what is known of one leased inode.
type record struct {
	id        uint64 // of the lease: another one each time that it is granted
	attr      fsop.Attr
	attrAt    uint64   // index, 0: attributes unknown
	floor     uint64   // nothing older may be stored: the grant's index, or a later own mutation's
	dir       fsop.Ino // where it was looked up last, 0: not known
	names     map[string]child
	known     uint64   // names that are there; all of them when it equals attr.Entries
	sorted    []listed // those, as a listing has them; nil: not known
	xattrs    map[string]xattr
	target    []byte
	hasTarget bool
	exclusive bool // nobody else has a lease
}

// child is one name in a directory: an inode, or 0 for a name that is absent.
type child struct {
	ino fsop.Ino
	at  uint64
}

type xattr struct {
	value  []byte
	absent bool
}

func newCache(inodes int) *cache {
	c := &cache{half: max(1, inodes/2)}
	c.reset()
	c.busy, c.dirty = map[fsop.Ino]int{}, map[fsop.Ino]dirtiness{}
	c.fences = map[*fence]struct{}{}
	return c
}

// reset forgets every lease; mutations in flight stay fenced.
func (c *cache) reset() {
	for _, half := range []map[fsop.Ino]*record{c.hot, c.cold} {
		for _, r := range half {
			c.leave(r)
		}
	}
	c.hot, c.cold = map[fsop.Ino]*record{}, map[fsop.Ino]*record{}
	c.widenIn(nil)
}

// remove forgets the lease on an inode.
func (c *cache) remove(ino fsop.Ino) {
	for _, half := range []map[fsop.Ino]*record{c.hot, c.cold} {
		if r := half[ino]; r != nil {
			c.leave(r)
			delete(half, ino)
		}
	}
}

// leave keeps in mind how new a record was that is forgotten: an answer that is
// older may still be on its way.
func (c *cache) leave(r *record) { c.floor = max(c.floor, r.attrAt, r.floor) }

// clear forgets every lease.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset()
}

// get returns a leased inode's record, and moves it among the used ones.
func (c *cache) get(ino fsop.Ino) *record {
	if r := c.hot[ino]; r != nil {
		return r
	}
	r := c.cold[ino]
	if r != nil {
		delete(c.cold, ino)
		c.put(ino, r)
	}
	return r
}

func (c *cache) put(ino fsop.Ino, r *record) {
	if len(c.hot) >= c.half {
		kept := map[fsop.Ino]*record{}
		for ino, old := range c.cold {
			if c.dirty[ino].ops > 0 {
				kept[ino] = old // shows what nothing else shows yet
				continue
			}
			c.leave(old)
		}
		c.cold, c.hot = c.hot, kept
	}
	if r.id == 0 {
		c.lastID++
		r.id = c.lastID
	}
	c.hot[ino] = r
}

// usable returns the record if it may be answered from now.
func (c *cache) usable(ino fsop.Ino) *record {
	if c.busyAll > 0 || c.busy[ino] > 0 {
		return nil
	}
	return c.get(ino)
}

// answer answers a query from memory, or returns nil.
func (c *cache) answer(op fsop.Op) *fsop.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := op.(type) {
	case *fsop.Lookup:
		return c.lookup(o)
	case *fsop.GetAttr:
		if r := c.usable(o.Ino); r != nil && r.attrAt > 0 {
			return attrReply(r)
		}
	case *fsop.GetXattr:
		if r := c.usable(o.Ino); r != nil {
			if r.attrAt > 0 && r.attr.Xattrs == 0 {
				return &fsop.Reply{Errno: fsop.ENODATA, Index: r.attrAt}
			}
			if x, ok := r.xattrs[string(o.Name)]; ok {
				if x.absent {
					return &fsop.Reply{Errno: fsop.ENODATA}
				}
				return &fsop.Reply{Data: x.value}
			}
		}
	case *fsop.ListXattr:
		if r := c.usable(o.Ino); r != nil && r.attrAt > 0 && r.attr.Xattrs == 0 {
			return &fsop.Reply{Index: r.attrAt}
		}
	case *fsop.Read:
		return c.read(o)
	case *fsop.ReadDir:
		return c.list(o)
	case *fsop.ReadLink:
		if r := c.usable(o.Ino); r != nil && r.hasTarget {
			return &fsop.Reply{Data: r.target}
		}
	}
	return nil
}

func (c *cache) lookup(o *fsop.Lookup) *fsop.Reply {
	dir := c.usable(o.Parent)
	if dir == nil || isDots(o.Name) {
		return nil
	}
	ch, ok := dir.names[string(o.Name)]
	if !ok && !dir.complete(o.Name) {
		return nil
	}
	if ch.ino == 0 {
		return &fsop.Reply{Errno: fsop.ENOENT}
	}
	if r := c.usable(ch.ino); r != nil && r.attrAt > 0 {
		r.dir = o.Parent
		return attrReply(r)
	}
	return nil
}

// complete reports whether every name in the directory is known, so that
// another one is not there. Names that the filesystem refuses have their own
// answers.
func (r *record) complete(name []byte) bool { return r.whole() && len(name) <= fsop.NameMax }

// whole reports whether every name in the directory is known.
func (r *record) whole() bool {
	return r.attrAt > 0 && r.attr.IsDir() && r.attr.Entries == r.known
}

// isDots reports whether a name is no entry of a directory: it is not counted
// among them, and the directory that it leads to has another name.
func isDots(name []byte) bool { return string(name) == "." || string(name) == ".." }

// setChild remembers a name.
func (r *record) setChild(name []byte, ch child) {
	if r.names == nil || len(r.names) >= namesPerDir {
		r.names, r.known = map[string]child{}, 0
	}
	r.forgetChild(name)
	r.sorted = nil
	if ch.ino != 0 {
		r.known++
	}
	r.names[string(name)] = ch
}

func (r *record) forgetChild(name []byte) {
	if r.names[string(name)].ino != 0 {
		r.known--
		r.sorted = nil
	}
	delete(r.names, string(name))
}

func attrReply(r *record) *fsop.Reply {
	return &fsop.Reply{Attrs: []fsop.Attr{r.attr}, Index: r.attrAt}
}

// open answers an Open from memory if the inode is leased and has a name.
// opened is called before another goroutine can see a recall of it.
func (c *cache) open(ino fsop.Ino, opened func() error) *fsop.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.usable(ino)
	if r == nil || r.attrAt == 0 || r.attr.Nlink == 0 {
		return nil
	}
	if opened() != nil {
		return nil // asked again, with a place for the error
	}
	return attrReply(r)
}

// drop gives up the leases on inos.
func (c *cache) drop(inos []fsop.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ino := range inos {
		c.remove(ino)
	}
	c.widenIn(inos)
}

// learn stores what a reply shows.
func (c *cache) learn(op fsop.Op, rep *fsop.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rep.Leased && rep.Index >= c.floor {
		for _, ino := range fsop.Covers(op, rep) {
			r := c.get(ino)
			if r == nil {
				r = &record{floor: rep.Index}
				c.put(ino, r)
			}
			r.exclusive = r.exclusive || rep.Exclusive
		}
	}
	for i := range rep.Attrs {
		c.setAttr(&rep.Attrs[i], rep.Index)
	}
	switch o := op.(type) {
	case *fsop.Lookup:
		switch rep.Errno {
		case fsop.OK:
			c.setName(o.Parent, o.Name, rep.Attrs[0].Ino, rep.Index)
		case fsop.ENOENT:
			c.setName(o.Parent, o.Name, 0, rep.Index)
		}
	case *fsop.ReadDir:
		for i := range rep.Entries {
			if e := &rep.Entries[i]; e.Attr != nil {
				c.setAttr(e.Attr, rep.Index)
				c.setName(o.Ino, e.Name, e.Ino, rep.Index)
			}
		}
	case *fsop.ReadLink:
		if r := c.get(o.Ino); r != nil && rep.Errno == fsop.OK {
			r.target, r.hasTarget = rep.Data, true
		}
	case *fsop.GetXattr:
		c.setXattr(o, rep)
	case *fsop.ReadMany:
		c.small.put(rep)
	}
}

func (c *cache) setAttr(a *fsop.Attr, at uint64) {
	if r := c.get(a.Ino); r != nil && at >= r.attrAt && at >= r.floor && c.dirty[a.Ino].ops == 0 {
		r.attr, r.attrAt = *a, at
	}
}

func (c *cache) setName(dir fsop.Ino, name []byte, ino fsop.Ino, at uint64) {
	r := c.get(dir)
	if r == nil || at < r.floor || c.dirty[dir].ops > 0 || isDots(name) {
		return
	}
	if old, ok := r.names[string(name)]; ok && at < old.at {
		return
	}
	r.setChild(name, child{ino, at})
	if known := c.get(ino); known != nil {
		known.dir = dir
	}
}

// setXattr remembers small values; a query of the wrong size class answers
// itself elsewhere.
func (c *cache) setXattr(o *fsop.GetXattr, rep *fsop.Reply) {
	r := c.get(o.Ino)
	if r == nil || rep.Index < r.floor || len(rep.Data) > 256 || len(r.xattrs) > 64 {
		return
	}
	if rep.Errno != fsop.OK && rep.Errno != fsop.ENODATA {
		return
	}
	if r.xattrs == nil {
		r.xattrs = map[string]xattr{}
	}
	r.xattrs[string(o.Name)] = xattr{rep.Data, rep.Errno == fsop.ENODATA}
}

// dropUnless gives up the leases on those of inos that open does not list and
// nothing in flight touches, and returns the others.
func (c *cache) dropUnless(inos []fsop.Ino, open func([]fsop.Ino) []fsop.Ino) []fsop.Ino {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := open(inos) // under the lock: an open that is answered from here is recorded under it
	for _, ino := range inos {
		switch {
		case slices.Contains(kept, ino):
		case c.busyAll > 0 || c.busy[ino] > 0 || c.dirty[ino].ops > 0:
			kept = append(kept, ino)
		default:
			c.remove(ino)
		}
	}
	return kept
}

// isDirty reports whether something answered ahead of the log touches the inode.
func (c *cache) isDirty(ino fsop.Ino) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dirty[ino].ops > 0
}
