package disk

import "maps"

const pageSize = 4096

type page [pageSize]byte

// zeroPage stands for every allocated page that was never written.
var zeroPage = new(page)

// content is the bytes of a file: pages by number, absent ones are holes. Pages
// may be shared between contents; who changes one has to own it.
type content struct {
	size  int64
	pages map[int64]*page
}

func newContent() content { return content{pages: make(map[int64]*page)} }

func (c *content) clone() content { return content{size: c.size, pages: maps.Clone(c.pages)} }

// read fills b from off; what lies past the last page reads as zeroes.
func (c *content) read(b []byte, off int64) {
	for len(b) > 0 {
		n := min(len(b), int(pageSize-off%pageSize))
		if p := c.pages[off/pageSize]; p != nil {
			copy(b[:n], p[off%pageSize:])
		} else {
			clear(b[:n])
		}
		b, off = b[n:], off+int64(n)
	}
}

// own returns page i for writing, copied unless owned says that nobody else has it.
func (c *content) own(i int64, owned map[int64]bool) *page {
	p := c.pages[i]
	if p != nil && owned[i] {
		return p
	}
	fresh := new(page)
	if p != nil {
		*fresh = *p
	}
	c.pages[i], owned[i] = fresh, true
	return fresh
}

// write puts b at off. It does not change the size.
func (c *content) write(b []byte, off int64, owned map[int64]bool) {
	for len(b) > 0 {
		n := min(len(b), int(pageSize-off%pageSize))
		copy(c.own(off/pageSize, owned)[off%pageSize:], b[:n])
		b, off = b[n:], off+int64(n)
	}
}

// free makes [from, to) a hole: whole pages go, the edges become zeroes.
func (c *content) free(from, to int64, owned map[int64]bool) {
	for i := range c.pages {
		start, end := i*pageSize, (i+1)*pageSize
		if end <= from || start >= to {
			continue
		}
		if from <= start && end <= to {
			delete(c.pages, i)
			delete(owned, i)
			continue
		}
		p := c.own(i, owned)
		clear(p[max(from-start, 0):min(to-start, pageSize)])
	}
}
