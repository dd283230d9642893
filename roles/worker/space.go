package worker

import (
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// spaceFresh is how long a look at the disk serves; what was admitted since
// then is counted.
const spaceFresh = 100 * time.Millisecond

// space refuses growth before it is logged, while the disk or the quota still
// has room for what can't be refused: unlink, checkpoint and journal.
type space struct {
	tree *tree.Tree
	now  func() time.Time

	mu struct {
		sync.Mutex
		info     tree.SpaceInfo
		at       time.Time
		admitted uint64 // bytes of growth since then
	}
}

// refuse returns the errno with which op must not be logged, or OK. A disk that
// can't be asked refuses nothing: then the replica itself will stop.
func (s *space) refuse(op fsop.Op) fsop.Errno {
	grows := s.tree.Growth(op)
	if grows == 0 {
		return fsop.OK
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.mu.at) >= spaceFresh {
		info, err := s.tree.Space()
		if err != nil {
			return fsop.OK
		}
		s.mu.info, s.mu.at, s.mu.admitted = info, now, 0
	}
	if !fits(&s.mu.info, s.mu.admitted+grows) {
		return fsop.ENOSPC
	}
	s.mu.admitted += grows
	return fsop.OK
}

// fits reports whether files may grow by that much.
func fits(i *tree.SpaceInfo, bytes uint64) bool {
	switch {
	case i.LimitBytes != 0 && i.UsedBytes+bytes > i.LimitBytes:
		return false
	case i.LimitInodes != 0 && i.UsedInodes >= i.LimitInodes:
		return false
	}
	return i.DiskFree >= i.Reserve+bytes
}
