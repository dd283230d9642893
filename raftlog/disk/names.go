package disk

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
)

// entry is a place for a name in a directory.
type entry struct {
	dir  *inode
	name string
}

// edit puts a child at an entry, or removes what is there if child is nil.
type edit struct {
	entry
	child *inode
}

func (e edit) set(names map[string]*inode) {
	if e.child == nil {
		delete(names, e.name)
	} else {
		names[e.name] = e.child
	}
}

// nameChange is one call that changed names and is not yet durable. Its edits
// survive together or not at all.
type nameChange struct{ edits []edit }

func (c nameChange) touches(entries map[entry]bool) bool {
	for _, e := range c.edits {
		if entries[e.entry] {
			return true
		}
	}
	return false
}

func (c nameChange) mark(entries map[entry]bool) {
	for _, e := range c.edits {
		entries[e.entry] = true
	}
}

func (c nameChange) commit() {
	for _, e := range c.edits {
		e.set(e.dir.durable)
	}
}

// maxPendingNames bounds the changes of names that are held back.
const maxPendingNames = 4096

// change edits names for callers and remembers it for the next sync.
func (m *Mem) change(edits ...edit) {
	for _, e := range edits {
		if old := e.dir.children[e.name]; old != nil {
			old.links--
			m.release(old)
		}
		e.set(e.dir.children)
		if e.child != nil {
			e.child.links++
		}
		e.dir.modified = m.tick()
	}
	m.pending = append(m.pending, nameChange{edits})
	if len(m.pending) > maxPendingNames {
		half := len(m.pending) / 2
		for _, c := range m.pending[:half] {
			c.commit()
		}
		m.pending = append([]nameChange(nil), m.pending[half:]...)
	}
}

// syncNames makes the names of a directory durable, and with them the earlier
// changes that they depend on.
func (m *Mem) syncNames(dir *inode) {
	needed := make(map[entry]bool)
	commit := make([]bool, len(m.pending))
	for i := len(m.pending) - 1; i >= 0; i-- {
		c := m.pending[i]
		commit[i] = c.touches(needed)
		for _, e := range c.edits {
			commit[i] = commit[i] || e.dir == dir
		}
		if commit[i] {
			c.mark(needed)
		}
	}
	var rest []nameChange
	for i, c := range m.pending {
		if commit[i] {
			c.commit()
		} else {
			rest = append(rest, c)
		}
	}
	m.pending = rest
}

// namesFailed leaves some of what a failed sync of a directory should have made
// durable; the rest is forgotten, though callers go on to see it. Like a failed
// journal it takes the other directories with it.
func (m *Mem) namesFailed() {
	for _, c := range m.survivingNames(&m.rand, KeepSome) {
		c.commit()
	}
	m.pending = nil
}

// walk finds the directory that holds the last element of a path, and that
// element, which is empty for the root.
func (m *Mem) walk(op, name string) (entry, error) {
	dir := m.root
	rest := strings.TrimPrefix(path.Clean("/"+name), "/")
	for {
		first, more, deeper := strings.Cut(rest, "/")
		if !deeper {
			return entry{dir, rest}, nil
		}
		next := dir.children[first]
		if next == nil {
			return entry{}, &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
		}
		if !next.isDir {
			return entry{}, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		dir, rest = next, more
	}
}

// find returns the inode at a path.
func (m *Mem) find(op, name string) (*inode, error) {
	at, err := m.walk(op, name)
	if err != nil {
		return nil, err
	}
	n := m.root
	if at.name != "" {
		n = at.dir.children[at.name]
	}
	if n == nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
	}
	return n, nil
}

// removeTree removes names below a directory, deepest first.
func (m *Mem) removeTree(dir *inode) {
	for _, name := range slices.Sorted(maps.Keys(dir.children)) {
		child := dir.children[name]
		if child.isDir {
			m.removeTree(child)
		}
		m.change(edit{entry{dir, name}, nil})
	}
}

// within tells whether n is dir or lies below it.
func within(n, dir *inode) bool {
	if n == dir {
		return true
	}
	for _, child := range dir.children {
		if child.isDir && within(n, child) {
			return true
		}
	}
	return false
}
