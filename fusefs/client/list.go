package client

import (
	"bytes"
	"cmp"
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// listMax bounds the names of a directory that is listed from memory: the whole
// listing is made under the cache's lock.
const listMax = 8192

// listed is one name at its place in a listing.
type listed struct {
	cookie uint64
	name   []byte
	ino    fsop.Ino
}

// list answers a ReadDir when all names of the directory are known, and what they
// stand for. Whoever removes a tree that this session made need not wait for the log
// at each of its directories.
func (c *cache) list(o *fsop.ReadDir) *fsop.Reply {
	r := c.usable(o.Ino)
	if r == nil || !r.whole() || r.known > listMax {
		return nil
	}
	all := c.listing(r)
	from, _ := slices.BinarySearchFunc(all, o.Cookie, func(l listed, cookie uint64) int {
		if l.cookie <= cookie {
			return -1
		}
		return 1
	})
	rep := &fsop.Reply{Index: r.attrAt, EOF: true}
	size := 0
	for _, l := range all[from:] {
		size += fsop.ListedBytes(l.name, o.Plus)
		// Names that share a cookie stay together.
		if last := len(rep.Entries) - 1; last >= 0 && size > int(o.MaxBytes) && rep.Entries[last].Cookie != l.cookie {
			rep.EOF = false
			break
		}
		child := c.usable(l.ino)
		if child == nil || child.attrAt == 0 {
			return nil
		}
		e := fsop.DirEntry{Ino: l.ino, Cookie: l.cookie, Type: uint8(child.attr.Mode & fsop.TypeMask >> 12), Name: l.name}
		if o.Plus {
			a := child.attr
			e.Attr = &a
		}
		rep.Entries = append(rep.Entries, e)
	}
	return rep
}

// listing returns a directory's names in the order of a listing.
func (c *cache) listing(r *record) []listed {
	if r.sorted != nil {
		return r.sorted
	}
	all := make([]listed, 0, r.known)
	for name, ch := range r.names {
		if ch.ino != 0 {
			n := []byte(name)
			all = append(all, listed{fsop.NameHash(&c.seed, n), n, ch.ino})
		}
	}
	slices.SortFunc(all, func(a, b listed) int {
		return cmp.Or(cmp.Compare(a.cookie, b.cookie), bytes.Compare(a.name, b.name))
	})
	r.sorted = all
	return all
}

func (c *cache) setSeed(seed [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seed = seed
}
