package kernel

import (
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// parentsMax bounds how many directories' parents are remembered.
const parentsMax = 64 << 10

// parents remembers where directories were last looked up, so that a listing
// can show the inode number of ".." without asking. It is a hint: a directory
// that another node moved meanwhile shows its old parent until it is looked up
// again, which every use of its path does.
type parents struct {
	mu sync.Mutex
	of map[fsop.Ino]fsop.Ino
}

func (p *parents) learn(dir, parent fsop.Ino) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= parentsMax {
		p.of = map[fsop.Ino]fsop.Ino{}
	}
	p.of[dir] = parent
}

func (p *parents) get(dir fsop.Ino) fsop.Ino {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[dir]
}

// parent is the inode number that ".." shows.
func (x *exchange) parent() fsop.Ino {
	if x.node == fsop.Root {
		return fsop.Root
	}
	if p := x.s.parents.get(x.node); p != 0 {
		return p
	}
	rep, errno := x.call(&fsop.Lookup{Parent: x.node, Name: []byte("..")})
	if errno != fsop.OK {
		return x.node
	}
	return rep.Attrs[0].Ino
}
