package kernel

import (
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Which pages the kernel may trust.
//
// The kernel compares size and time of a file when it reads from its pages, but
// that is not enough: it ignores an answer to GETATTR when a write of its own is
// answered while that is on its way, and then reads old pages once. So pages are
// tied to a lease: those of an inode are coherent when the session has held one
// and the same lease since before the first of them was read. Otherwise they are
// dropped before the next GETATTR is answered, which the kernel asks for before
// it reads from pages, and until then it is given no time for which it need not
// ask. Waiting for the pages of requests under way does not wait for this GETATTR.

// pagesMax bounds the inodes that are remembered; when there are more it is as
// after a takeover: every inode may have pages.
const pagesMax = 1 << 18

// pages remembers which inodes may have pages in the kernel, and the lease under
// which all of them were read; 0: none.
type pages struct {
	mu      sync.Mutex
	leases  map[fsop.Ino]uint64
	unknown bool // inodes that are not listed may have pages, too
}

// fill notes that the kernel is about to have pages of an inode, while the
// session holds the lease.
func (p *pages) fill(ino fsop.Ino, lease uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.leases[ino]; ok || p.unknown {
		return
	}
	p.set(ino, lease)
}

// dropped notes that all pages of an inode were dropped while the session held
// the lease.
func (p *pages) dropped(ino fsop.Ino, lease uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(ino, lease)
}

func (p *pages) set(ino fsop.Ino, lease uint64) {
	if p.leases == nil || len(p.leases) >= pagesMax {
		p.unknown = p.unknown || p.leases != nil
		p.leases = map[fsop.Ino]uint64{}
	}
	p.leases[ino] = lease
}

// lost notes that nothing is known of the kernel's pages.
func (p *pages) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unknown = true
}

// read returns the lease under which an inode's pages were read; none: it has
// no pages.
func (p *pages) read(ino fsop.Ino) (lease uint64, none bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lease, ok := p.leases[ino]
	return lease, !ok && !p.unknown
}

// lease is the session's lease on an inode, 0 if it has none.
func (s *server) lease(ino fsop.Ino) uint64 {
	if s.leaser == nil {
		return 0
	}
	return s.leaser.Lease(ino)
}

// coherent reports whether the kernel's pages of a file can be trusted.
func (s *server) coherent(a *fsop.Attr) bool {
	if !a.IsRegular() || s.leaser == nil {
		return true
	}
	read, none := s.pages.read(a.Ino)
	return none || read != 0 && read == s.lease(a.Ino)
}

// refresh makes the kernel's pages of a file coherent before its attributes are
// answered.
func (x *exchange) refresh(a *fsop.Attr) {
	if x.s.coherent(a) {
		return
	}
	lease := x.s.lease(a.Ino)
	x.yield()
	x.s.dropPages(a.Ino)
	x.s.pages.dropped(a.Ino, lease)
}

// attrValid is how long the kernel may keep a file's attributes, and thereby read
// its pages without asking.
func (s *server) attrValid(a *fsop.Attr, valid time.Duration) time.Duration {
	if valid > 0 && !s.coherent(a) {
		return 0
	}
	return valid
}
