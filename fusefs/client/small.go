package client

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Programs often open the files of a directory one after another. When a second
// small file of a directory is read, more of them come with it, so that one
// question serves many.

const (
	smallBytes  = 8 << 20 // contents remembered at once
	aheadFirst  = 8       // files with the second one; four times as many with each further
	siblingsMax = 8192    // names of a directory that is read ahead in
)

// small remembers contents that were read ahead. They are good as long as a lease
// shows the same attributes: nothing changes a file's contents and not its ctime.
type small struct {
	files map[fsop.Ino]smallFile
	bytes int

	dir     fsop.Ino // of the file that was asked for last
	next    int      // how many to ask for when another one there is, 0: just that
	reading bool     // ahead
}

type smallFile struct {
	attr fsop.Attr
	data []byte
}

// put takes the answer to a ReadMany.
func (s *small) put(rep *fsop.Reply) {
	if s.files == nil || s.bytes > smallBytes {
		s.files, s.bytes = map[fsop.Ino]smallFile{}, 0
	}
	eachSmall(rep, func(a *fsop.Attr, data []byte) {
		s.drop(a.Ino)
		s.files[a.Ino] = smallFile{*a, bytes.Clone(data)}
		s.bytes += len(data)
	})
}

func (s *small) drop(ino fsop.Ino) {
	s.bytes -= len(s.files[ino].data)
	delete(s.files, ino)
}

// eachSmall takes the answer to a ReadMany apart, as far as it is whole.
func eachSmall(rep *fsop.Reply, use func(a *fsop.Attr, data []byte)) {
	data := rep.Data
	for i := range rep.Attrs {
		a := &rep.Attrs[i]
		if a.Size > uint64(len(data)) {
			return
		}
		use(a, data[:a.Size:a.Size])
		data = data[a.Size:]
	}
}

// read answers from what was read ahead, or that a file ends before the offset.
// What was read whole is in the kernel's page cache from then on.
func (c *cache) read(o *fsop.Read) *fsop.Reply {
	r := c.usable(o.Ino)
	if r == nil || r.attrAt == 0 || r.attr.Mode&fsop.TypeMask != fsop.TypeFile {
		return nil
	}
	if o.Offset >= r.attr.Size {
		return &fsop.Reply{Index: r.attrAt}
	}
	f, ok := c.small.files[o.Ino]
	if !ok || f.attr != r.attr {
		return nil
	}
	rep := piece(f.data, o)
	if len(rep.Data) == len(f.data) {
		c.small.drop(o.Ino)
	}
	rep.Index = r.attrAt
	return rep
}

func piece(data []byte, o *fsop.Read) *fsop.Reply {
	from := min(o.Offset, uint64(len(data)))
	to := min(from+uint64(o.Length), uint64(len(data)))
	return &fsop.Reply{Data: data[from:to:to]}
}

// readAhead answers a read of a small file along with others of its directory;
// nil when it is to be asked for by itself.
func (s *Session) readAhead(ctx context.Context, req *fsop.Request, deadline time.Duration) *fsop.Reply {
	o, ok := req.Op.(*fsop.Read)
	if !ok || o.Offset >= fsop.SmallMax || !s.leased() {
		return nil
	}
	inos := s.cache.beginAhead(o.Ino)
	if inos == nil {
		return nil
	}
	defer s.cache.endAhead()
	op := &fsop.ReadMany{Inos: inos}
	rep := s.readNear(ctx, op, inos...)
	if rep != nil {
		s.cache.keepSmall(rep)
	} else {
		var err error
		if rep, err = s.query(ctx, &fsop.Request{Op: op}, deadline); err != nil {
			return nil
		}
	}
	if rep.Errno != fsop.OK || len(rep.Attrs) == 0 || rep.Attrs[0].Ino != o.Ino {
		return nil
	}
	var own *fsop.Reply
	eachSmall(rep, func(a *fsop.Attr, data []byte) {
		if a.Ino == o.Ino {
			own = piece(data, o)
			own.Index = rep.Index
		}
	})
	return own
}

// keepSmall remembers contents that were read ahead.
func (c *cache) keepSmall(rep *fsop.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.small.put(rep)
}

// beginAhead lists the small files to read along with one, that one first; nil
// for none. Only one caller reads ahead at a time.
func (c *cache) beginAhead(ino fsop.Ino) []fsop.Ino {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.small
	r := c.usable(ino)
	if r == nil || !r.small() || r.dir == 0 || s.reading {
		return nil
	}
	if s.dir != r.dir {
		s.dir, s.next = r.dir, 0
	}
	n := s.next
	s.next = min(max(4*n, aheadFirst), fsop.ReadManyMax)
	if n == 0 {
		return nil
	}
	inos := c.siblings(ino, r.dir, n)
	s.reading = inos != nil
	return inos
}

func (c *cache) endAhead() {
	c.mu.Lock()
	c.small.reading = false
	c.mu.Unlock()
}

// siblings returns ino and small files beside it that were not read ahead yet,
// those that were created after it first.
func (c *cache) siblings(ino, dir fsop.Ino, n int) []fsop.Ino {
	d := c.get(dir)
	if d == nil || len(d.names) > siblingsMax {
		return nil
	}
	var inos []fsop.Ino
	for _, ch := range d.names {
		if ch.ino == 0 || ch.ino == ino {
			continue
		}
		r := c.usable(ch.ino)
		if r != nil && r.small() && c.small.files[ch.ino].attr != r.attr {
			inos = append(inos, ch.ino)
		}
	}
	slices.SortFunc(inos, func(a, b fsop.Ino) int { return cmp.Compare(a-ino, b-ino) }) // wraps around
	inos = slices.Compact(inos)
	return append([]fsop.Ino{ino}, inos[:min(n-1, len(inos))]...)
}

// small reports whether an inode is a file whose contents ReadMany gives.
func (r *record) small() bool {
	return r.attrAt > 0 && r.attr.Mode&fsop.TypeMask == fsop.TypeFile && r.attr.Size > 0 && r.attr.Size <= fsop.SmallMax
}
