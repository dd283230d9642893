package client

import (
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// fence keeps the cache from answering for what an own mutation in flight may
// have changed already: somebody else can see the change before its answer
// arrives here.
type fence struct {
	inos []fsop.Ino
	dirs []fsop.Ino // in which the victims were looked up
	all  bool       // a victim is not known
}

// raise fences what op touches.
func (c *cache) raise(op fsop.Op) *fence {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &fence{}
	switch o := op.(type) {
	case *fsop.Create:
		f.inos = []fsop.Ino{o.Parent}
		if !o.Excl {
			f.victim(c, o.Parent, o.Name)
		}
	case *fsop.Tmpfile:
		f.inos = []fsop.Ino{o.Parent}
	case *fsop.Link:
		f.inos = []fsop.Ino{o.Ino, o.Parent}
	case *fsop.Unlink:
		f.inos = []fsop.Ino{o.Parent}
		f.victim(c, o.Parent, o.Name)
	case *fsop.Rename:
		f.inos = []fsop.Ino{o.Parent, o.NewParent}
		f.victim(c, o.Parent, o.Name)
		f.victim(c, o.NewParent, o.NewName)
	case *fsop.SetAttr:
		f.inos = []fsop.Ino{o.Ino}
	case *fsop.Write:
		f.inos = []fsop.Ino{o.Ino}
	case *fsop.Fallocate:
		f.inos = []fsop.Ino{o.Ino}
	case *fsop.SetXattr:
		f.inos = []fsop.Ino{o.Ino}
	case *fsop.RemoveXattr:
		f.inos = []fsop.Ino{o.Ino}
	}
	for _, ino := range f.inos {
		c.busy[ino]++
	}
	if f.all {
		c.busyAll++
	} else if len(f.dirs) > 0 {
		c.fences[f] = struct{}{}
	}
	return f
}

func (f *fence) victim(c *cache, dir fsop.Ino, name []byte) {
	f.dirs = append(f.dirs, dir)
	r := c.get(dir)
	if r == nil || c.busy[dir] > 0 { // what is in flight there may change the name
		f.all = true
		return
	}
	ch, ok := r.names[string(name)]
	switch {
	case !ok:
		f.all = true
	case ch.ino != 0:
		f.inos = append(f.inos, ch.ino)
	}
}

// widen makes the fence one around everything: the operation comes later than it
// seemed, and may find another victim.
func (c *cache) widen(f *fence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.widenLocked(f)
}

func (c *cache) widenLocked(f *fence) {
	if !f.all {
		f.all = true
		c.busyAll++
	}
	delete(c.fences, f)
}

// widenIn widens the fences of operations in flight that look up a victim in one
// of these directories, nil: in any. Others may change its names from here on.
func (c *cache) widenIn(dirs []fsop.Ino) {
	for f := range c.fences {
		if dirs == nil || slices.ContainsFunc(f.dirs, func(d fsop.Ino) bool { return slices.Contains(dirs, d) }) {
			c.widenLocked(f)
		}
	}
}

// lower lifts the fence when the answer is here: what the mutation changed is
// brought up to date, or forgotten where the answer does not tell.
func (c *cache) lower(f *fence, op fsop.Op, rep *fsop.Reply) {
	if f == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fences, f)
	for _, ino := range f.inos {
		if c.busy[ino]--; c.busy[ino] == 0 {
			delete(c.busy, ino)
		}
	}
	if f.all {
		c.busyAll--
	}
	if rep == nil { // no answer: everything touched may have changed
		c.forget(f)
		return
	}
	c.settle(f, op, rep)
}

func (c *cache) forget(f *fence) {
	if f.all {
		c.reset()
		return
	}
	for _, ino := range f.inos {
		c.remove(ino)
	}
}

// settle moves touched records to the answer's index.
func (c *cache) settle(f *fence, op fsop.Op, rep *fsop.Reply) {
	told := map[fsop.Ino]bool{}
	for i := range rep.Attrs {
		told[rep.Attrs[i].Ino] = true
	}
	for _, ino := range f.inos {
		r := c.get(ino)
		if r == nil {
			c.floor = max(c.floor, rep.Index) // an earlier look at it may still be on its way
			continue
		}
		r.floor = max(r.floor, rep.Index)
		if !told[ino] && rep.Errno == fsop.OK && r.attrAt < rep.Index {
			r.attrAt = 0
		}
	}
	if rep.Errno != fsop.OK {
		return
	}
	switch o := op.(type) {
	case *fsop.Create:
		c.setName(o.Parent, o.Name, rep.Attrs[0].Ino, rep.Index)
	case *fsop.Link:
		c.setName(o.Parent, o.Name, o.Ino, rep.Index)
	case *fsop.Unlink:
		c.setName(o.Parent, o.Name, 0, rep.Index)
	case *fsop.Rename:
		c.renamed(o, rep)
	case *fsop.SetXattr:
		c.dropXattrs(o.Ino, true)
	case *fsop.RemoveXattr:
		c.dropXattrs(o.Ino, true)
	case *fsop.Write: // security.capability may be gone
		c.dropXattrs(o.Ino, false)
	case *fsop.Fallocate:
		c.dropXattrs(o.Ino, false)
	case *fsop.SetAttr:
		c.dropXattrs(o.Ino, false)
	}
}

// dropXattrs forgets the attributes that are present, or with absent also which
// are not.
func (c *cache) dropXattrs(ino fsop.Ino, absent bool) {
	r := c.get(ino)
	if r == nil {
		return
	}
	for name, x := range r.xattrs {
		if absent || !x.absent {
			delete(r.xattrs, name)
		}
	}
}

// renamed moves the name. After an exchange, and where the rename may have done
// nothing because both names are links to one inode, the names are asked for
// again.
func (c *cache) renamed(o *fsop.Rename, rep *fsop.Reply) {
	from, to := c.get(o.Parent), c.get(o.NewParent)
	moved := &rep.Attrs[0]
	if o.Flags&fsop.RenameExchange != 0 || moved.Nlink > 1 && !moved.IsDir() {
		if from != nil {
			from.forgetChild(o.Name)
		}
		if to != nil {
			to.forgetChild(o.NewName)
		}
		return
	}
	c.setName(o.Parent, o.Name, 0, rep.Index)
	c.setName(o.NewParent, o.NewName, moved.Ino, rep.Index)
}
