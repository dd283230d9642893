package client

import (
	"bytes"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// What an operation will have done is told here by plain code, for the common
// operations on inodes that the session holds exclusively. It must say exactly
// what fusefs/tree will: where it can't, it says nothing, and the operation waits
// for its answer.

// plan is the outcome of an operation that has not been logged.
type plan struct {
	reply *fsop.Reply
	names []nameChange
	// target of a new symbolic link
	target []byte
}

// nameChange is a name that leads elsewhere: to an inode, or nowhere.
type nameChange struct {
	dir  fsop.Ino
	name []byte
	ino  fsop.Ino
}

// predict tells the outcome of a.Op at the time now or a little later, which it
// sets in a; nil when it can't be told.
func (c *cache) predict(a *fsop.Ahead, now fsop.Time) *plan {
	switch o := a.Op.(type) {
	case *fsop.Create:
		return c.predictCreate(a, o, now)
	case *fsop.Write:
		return c.predictWrite(a, o, now)
	case *fsop.SetAttr:
		return c.predictSetAttr(a, o, now)
	case *fsop.Link:
		return c.predictLink(a, o, now)
	case *fsop.Unlink:
		return c.predictUnlink(a, o, now)
	case *fsop.Rename:
		return c.predictRename(a, o, now)
	}
	return nil
}

// mine returns the record of an inode that is held exclusively, with attributes.
func (c *cache) mine(ino fsop.Ino) *record {
	if r := c.usable(ino); r != nil && r.exclusive && r.attrAt > 0 {
		return r
	}
	return nil
}

// dir is mine for a directory in which names can be made.
func (c *cache) dir(ino fsop.Ino) *record {
	if r := c.mine(ino); r != nil && r.attr.IsDir() && r.attr.Nlink > 0 {
		return r
	}
	return nil
}

// absent reports whether it is known that a name is not there.
func (r *record) absent(name []byte) bool {
	if ch, ok := r.names[string(name)]; ok {
		return ch.ino == 0
	}
	return r.complete(name)
}

// plain reports whether a name can be an entry.
func plain(name []byte) bool {
	return len(name) > 0 && len(name) <= fsop.NameMax && string(name) != "." && string(name) != ".." && !bytes.ContainsAny(name, "/\x00")
}

// stamp makes the operation's time come after every change of what it touches.
func stamp(a *fsop.Ahead, now fsop.Time, touched ...*fsop.Attr) {
	for _, t := range touched {
		if !t.Ctime.Before(now) {
			now = t.Ctime.Next()
		}
	}
	a.Stamp = now
}

func modified(a *fsop.Attr, now fsop.Time) { a.Mtime, a.Ctime = now, now }

func (c *cache) predictCreate(a *fsop.Ahead, o *fsop.Create, now fsop.Time) *plan {
	r := c.dir(o.Parent)
	kind := o.Mode & fsop.TypeMask
	if r == nil || a.Ino == 0 || !plain(o.Name) || !r.absent(o.Name) || !creatable(kind, o) {
		return nil
	}
	dir := r.attr
	stamp(a, now, &dir)
	n := fsop.Attr{
		Ino: a.Ino, Mode: o.Mode & (fsop.TypeMask | fsop.ModePerm), Nlink: 1, UID: o.UID, GID: o.GID,
		Atime: a.Stamp, Mtime: a.Stamp, Ctime: a.Stamp,
	}
	if dir.Mode&fsop.ModeSetGID != 0 {
		n.GID = dir.GID
		if kind == fsop.TypeDir {
			n.Mode |= fsop.ModeSetGID
		}
	}
	p := &plan{names: []nameChange{{o.Parent, o.Name, a.Ino}}}
	switch kind {
	case fsop.TypeDir:
		n.Nlink, n.Size, n.Blocks = 2, dirSize, dirSize/512
		dir.Nlink++
	case fsop.TypeLink:
		n.Size = uint64(len(o.Target))
		p.target = o.Target
	case fsop.TypeChar, fsop.TypeBlock:
		n.Rdev = o.Rdev
	}
	dir.Entries++
	modified(&dir, a.Stamp)
	p.reply = &fsop.Reply{Attrs: []fsop.Attr{n, dir}}
	return p
}

// dirSize is the size that every directory shows, in bytes.
const dirSize = 4096

func creatable(kind uint32, o *fsop.Create) bool {
	switch kind {
	case fsop.TypeFile, fsop.TypeDir, fsop.TypeFifo, fsop.TypeSocket, fsop.TypeChar, fsop.TypeBlock:
		return true
	case fsop.TypeLink:
		return len(o.Target) > 0 && len(o.Target) <= fsop.TargetMax && bytes.IndexByte(o.Target, 0) < 0
	}
	return false
}

// file is mine for a regular file whose allocated pages are at its start.
func (c *cache) file(ino fsop.Ino) *record {
	if r := c.mine(ino); r != nil && r.attr.Mode&fsop.TypeMask == fsop.TypeFile && !r.attr.Holes {
		return r
	}
	return nil
}

const (
	pageSize      = 4096
	blocksPerPage = pageSize / 512
)

func pagesFor(size uint64) uint64 { return (size + pageSize - 1) / pageSize }

// killPriv clears the set-id bits; false when a capability may have to go too.
func killPriv(a *fsop.Attr) bool {
	if a.IsDir() {
		return true
	}
	a.Mode &^= fsop.ModeSetUID
	if a.Mode&fsop.ModeGroupEx != 0 {
		a.Mode &^= fsop.ModeSetGID
	}
	return a.Xattrs == 0
}

// predictWrite also gives an append its place: nobody else can move the end.
func (c *cache) predictWrite(a *fsop.Ahead, o *fsop.Write, now fsop.Time) *plan {
	r := c.file(o.Ino)
	if r == nil || len(o.Data) == 0 || len(o.Data) > fsop.DataMax {
		return nil
	}
	n := r.attr
	off := o.Offset
	if o.Append {
		off = n.Size
	}
	end := off + uint64(len(o.Data))
	dense := n.Blocks / blocksPerPage
	if off > fsop.FileSizeMax || end > fsop.FileSizeMax || off/pageSize > dense {
		return nil
	}
	if o.KillPriv && !killPriv(&n) {
		return nil
	}
	if o.Append {
		w := *o
		w.Append, w.Offset = false, off
		a.Op = &w
	}
	stamp(a, now, &r.attr)
	n.Blocks = max(dense, pagesFor(end)) * blocksPerPage
	n.Size = max(n.Size, end)
	modified(&n, a.Stamp)
	return &plan{reply: &fsop.Reply{Attrs: []fsop.Attr{n}, Offset: off, Count: uint32(len(o.Data))}}
}

func (c *cache) predictSetAttr(a *fsop.Ahead, o *fsop.SetAttr, now fsop.Time) *plan {
	r := c.mine(o.Ino)
	if r == nil || o.Valid == 0 {
		return nil
	}
	n := r.attr
	stamp(a, now, &n)
	if o.Valid&fsop.SetSize != 0 {
		if c.file(o.Ino) == nil || o.Size > fsop.FileSizeMax {
			return nil
		}
		if o.Size <= n.Size {
			n.Blocks = min(n.Blocks, pagesFor(o.Size)*blocksPerPage)
		}
		n.Size, n.Mtime = o.Size, a.Stamp
	}
	chown := o.Valid&(fsop.SetUID|fsop.SetGID) != 0
	if (o.Valid&fsop.KillPriv != 0 || chown && o.Valid&fsop.SetMode == 0) && !killPriv(&n) {
		return nil
	}
	if o.Valid&fsop.SetMode != 0 {
		n.Mode = n.Mode&fsop.TypeMask | o.Mode&fsop.ModePerm
	}
	if o.Valid&fsop.SetUID != 0 {
		n.UID = o.UID
	}
	if o.Valid&fsop.SetGID != 0 {
		n.GID = o.GID
	}
	setTimes(&n, o, a.Stamp)
	n.Ctime = a.Stamp
	return &plan{reply: &fsop.Reply{Attrs: []fsop.Attr{n}}}
}

func setTimes(n *fsop.Attr, o *fsop.SetAttr, now fsop.Time) {
	switch {
	case o.Valid&fsop.SetAtimeNow != 0:
		n.Atime = now
	case o.Valid&fsop.SetAtime != 0:
		n.Atime = o.Atime
	}
	switch {
	case o.Valid&fsop.SetMtimeNow != 0:
		n.Mtime = now
	case o.Valid&fsop.SetMtime != 0:
		n.Mtime = o.Mtime
	}
}

func (c *cache) predictLink(a *fsop.Ahead, o *fsop.Link, now fsop.Time) *plan {
	r, f := c.dir(o.Parent), c.mine(o.Ino)
	if r == nil || f == nil || !plain(o.Name) || !r.absent(o.Name) {
		return nil
	}
	if f.attr.IsDir() || f.attr.Nlink == 0 || f.attr.Nlink >= fsop.LinkMax {
		return nil
	}
	dir, n := r.attr, f.attr
	stamp(a, now, &dir, &n)
	n.Nlink++
	n.Ctime = a.Stamp
	dir.Entries++
	modified(&dir, a.Stamp)
	return &plan{
		reply: &fsop.Reply{Attrs: []fsop.Attr{n, dir}},
		names: []nameChange{{o.Parent, o.Name, o.Ino}},
	}
}

// child returns the record behind a name that is there.
func (c *cache) child(dir *record, name []byte) *record {
	ch := dir.names[string(name)]
	if ch.ino == 0 {
		return nil
	}
	return c.mine(ch.ino)
}

func (c *cache) predictUnlink(a *fsop.Ahead, o *fsop.Unlink, now fsop.Time) *plan {
	r := c.dir(o.Parent)
	if r == nil {
		return nil
	}
	f := c.child(r, o.Name)
	if f == nil || f.attr.IsDir() != o.Dir || f.attr.Entries > 0 || f == r {
		return nil
	}
	dir, n := r.attr, f.attr
	stamp(a, now, &dir, &n)
	if n.IsDir() {
		n.Nlink = 0
		dir.Nlink--
	} else {
		n.Nlink--
	}
	n.Ctime = a.Stamp
	dir.Entries--
	modified(&dir, a.Stamp)
	return &plan{
		reply: &fsop.Reply{Attrs: []fsop.Attr{n, dir}},
		names: []nameChange{{o.Parent, o.Name, 0}},
	}
}

// predictRename moves a file. Directories stay where they are until the log has
// moved them: every mount has to forget their old names first.
func (c *cache) predictRename(a *fsop.Ahead, o *fsop.Rename, now fsop.Time) *plan {
	from, to := c.dir(o.Parent), c.dir(o.NewParent)
	if from == nil || to == nil || o.Flags&^fsop.RenameNoReplace != 0 || !plain(o.NewName) {
		return nil
	}
	f := c.child(from, o.Name)
	if f == nil || f.attr.IsDir() {
		return nil
	}
	n, src, dst := f.attr, from.attr, to.attr
	touched := []*fsop.Attr{&n, &src, &dst}
	var victim *fsop.Attr
	if !to.absent(o.NewName) {
		v := c.child(to, o.NewName)
		if v == nil || v == f || v.attr.IsDir() || o.Flags != 0 {
			return nil
		}
		old := v.attr
		victim = &old
		touched = append(touched, victim)
	}
	stamp(a, now, touched...)
	modified(&src, a.Stamp)
	modified(&dst, a.Stamp)
	n.Ctime = a.Stamp
	r := &fsop.Reply{Attrs: []fsop.Attr{n, src}}
	if from != to {
		if victim == nil {
			dst.Entries++
		}
		r.Attrs[1].Entries--
		r.Attrs = append(r.Attrs, dst)
	} else if victim != nil {
		r.Attrs[1].Entries--
	}
	if victim != nil {
		victim.Nlink--
		victim.Ctime = a.Stamp
		r.Attrs = append(r.Attrs, *victim)
	}
	return &plan{reply: r, names: []nameChange{{o.Parent, o.Name, 0}, {o.NewParent, o.NewName, n.Ino}}}
}

// changed tells when the inodes that an operation names changed last.
func (c *cache) changed(op fsop.Op) (times []fsop.Time) {
	for _, ino := range fsop.Names(op) {
		if r := c.get(ino); r != nil {
			times = append(times, r.attr.Ctime)
		}
	}
	return times
}

// commit makes the plan what the cache shows, before the log does: the inodes
// are dirty until operation seq has been applied.
func (c *cache) commit(p *plan, seq uint64) (touched []fsop.Ino) {
	for i := range p.reply.Attrs {
		a := &p.reply.Attrs[i]
		r := c.get(a.Ino)
		if r == nil { // new: nobody else can know it
			r = &record{exclusive: true}
			if p.target != nil {
				r.target, r.hasTarget = p.target, true
			}
			c.put(a.Ino, r)
		}
		r.attr, r.attrAt = *a, max(r.attrAt, 1)
		touched = append(touched, a.Ino)
		c.touch(a.Ino, seq)
	}
	for _, n := range p.names {
		if r := c.get(n.dir); r != nil {
			r.setChild(n.name, child{ino: n.ino})
		}
	}
	return touched
}

func (c *cache) touch(ino fsop.Ino, seq uint64) {
	d := c.dirty[ino]
	d.ops++
	d.last = seq
	c.dirty[ino] = d
}

// soil makes inodes dirty until operation seq has been applied.
func (c *cache) soil(inos []fsop.Ino, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ino := range inos {
		c.touch(ino, seq)
	}
}

// applied notes that one operation ahead of the log on these inodes was applied,
// at index or before.
func (c *cache) applied(touched []fsop.Ino, index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ino := range touched {
		d := c.dirty[ino]
		if d.ops--; d.ops > 0 {
			c.dirty[ino] = d
			continue
		}
		delete(c.dirty, ino)
		r := c.get(ino)
		if r == nil {
			c.floor = max(c.floor, index)
			continue
		}
		r.floor = max(r.floor, index)
		if r.attrAt > 0 {
			r.attrAt = max(r.attrAt, index)
		}
	}
}

// lastDirty returns the last operation ahead of the log on any of the inodes, 0
// when there is none.
func (c *cache) lastDirty(inos []fsop.Ino) (seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ino := range inos {
		seq = max(seq, c.dirty[ino].last)
	}
	return seq
}

// share ends the exclusive leases on inos: from here on nothing new is answered
// ahead of the log there.
func (c *cache) share(inos []fsop.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ino := range inos {
		if r := c.get(ino); r != nil {
			r.exclusive = false
		}
	}
}

// dirtiness counts the operations ahead of the log that touch an inode.
type dirtiness struct {
	ops  int
	last uint64 // the number of the last of them
}
