package kernel

import (
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// parentsMax bounds how many directories' places are remembered.
const parentsMax = 64 << 10

// place is a name in a directory; an empty name stands for one that is not known.
type place struct {
	parent fsop.Ino
	name   string
}

// parents remembers where the kernel was last told that directories are. It is a
// hint: a directory that another node moved meanwhile is at its old place until it
// is looked up again, which every use of its path does; what is not remembered has
// to be asked for, or is not waited for (alias.go).
type parents struct {
	mu sync.Mutex
	of map[fsop.Ino]place
	at map[place]fsop.Ino // the reverse, of what has a name
	// leaving has the places that the kernel is being told to forget.
	leaving map[place]chan struct{}
}

// learn notes that the kernel is told of a directory in a place.
func (p *parents) learn(dir fsop.Ino, at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.of[dir]; ok && (was == at || was.parent == at.parent && at.name == "") {
		return
	}
	p.put(dir, at)
}

// stays learns a directory's place, unless the kernel knows it in another directory.
func (p *parents) stays(dir fsop.Ino, at place) bool {
	p.mu.Lock()
	was := p.of[dir]
	p.mu.Unlock()
	if was.name != "" && was.parent != at.parent {
		return false
	}
	p.learn(dir, at)
	return true
}

func (p *parents) put(dir fsop.Ino, at place) {
	if p.of == nil {
		p.of, p.at = map[fsop.Ino]place{}, map[place]fsop.Ino{}
	}
	p.remove(dir)
	p.remove(p.at[at]) // has left it
	for other := range p.of {
		if len(p.of) < parentsMax {
			break
		}
		p.remove(other)
	}
	p.of[dir] = at
	if at.name != "" {
		p.at[at] = dir
	}
}

func (p *parents) remove(dir fsop.Ino) {
	delete(p.at, p.of[dir])
	delete(p.of, dir)
}

// get returns where a directory is, the zero value if that is not remembered.
func (p *parents) get(dir fsop.Ino) place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[dir]
}

// left is told that the kernel has forgotten a place where a directory was.
func (p *parents) left(dir fsop.Ino, old place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.leaving, old)
	if p.of[dir] == old {
		p.remove(dir)
	}
}

// forget is told that the kernel does not know a directory any more.
func (p *parents) forget(dir fsop.Ino) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(dir)
}

// moved follows what the kernel does with its names after a rename.
func (p *parents) moved(o *fsop.Rename) {
	from, to := place{o.Parent, string(o.Name)}, place{o.NewParent, string(o.NewName)}
	p.mu.Lock()
	defer p.mu.Unlock()
	a, b := p.at[from], p.at[to]
	p.remove(a)
	p.remove(b)
	if a != 0 {
		p.put(a, to)
	}
	if b != 0 && o.Flags&fsop.RenameExchange != 0 {
		p.put(b, from)
	}
}

// parent is the inode number that ".." shows.
func (x *exchange) parent() fsop.Ino {
	if x.node == fsop.Root {
		return fsop.Root
	}
	if at := x.s.parents.get(x.node); at.parent != 0 {
		return at.parent
	}
	rep, errno := x.call(&fsop.Lookup{Parent: x.node, Name: []byte("..")})
	if errno != fsop.OK {
		return x.node
	}
	return rep.Attrs[0].Ino
}
