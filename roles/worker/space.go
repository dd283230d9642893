package worker

import (
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

const (
	// spaceFresh is how long a look at the disk serves; what was admitted since
	// then is counted.
	spaceFresh = 100 * time.Millisecond
	// noteAge is how old what another worker tells of its disk can be.
	noteAge = 3 * time.Second
)

// space refuses growth before it is logged, while every replica's disk still has
// room for what can't be refused: unlink, checkpoint and journal. The quota is its
// business only below the feature level at which the tree itself holds it.
type space struct {
	tree *tree.Tree
	now  func() time.Time
	// others is what the other workers tell; all: whoever is there has told.
	others func() (rooms []diskRoom, all bool)
	short  chan struct{} // told, without waiting, that growth was refused

	mu struct {
		sync.Mutex
		info     tree.SpaceInfo
		others   []diskRoom
		all      bool // nobody is missing there
		at       time.Time
		admitted uint64   // bytes of growth since then
		past     []growth // admitted before, oldest first, at most noteAge ago
	}
}

// growth is what was admitted until a time.
type growth struct {
	until time.Time
	bytes uint64
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
	if s.freshen() != nil {
		return fsop.OK
	}
	if !s.fits(grows) {
		select {
		case s.short <- struct{}{}:
		default:
		}
		return fsop.ENOSPC
	}
	s.mu.admitted += grows
	return fsop.OK
}

// freshen takes a new look at the disks if the last one was long ago.
func (s *space) freshen() error {
	now := s.now()
	if now.Sub(s.mu.at) < spaceFresh {
		return nil
	}
	info, err := s.tree.Space()
	if err == nil {
		s.look(now, info)
	}
	return err
}

// look takes a new look at the disks.
func (s *space) look(now time.Time, info tree.SpaceInfo) {
	m := &s.mu
	m.past = append(m.past, growth{now, m.admitted})
	for len(m.past) > 0 && now.Sub(m.past[0].until) > noteAge {
		m.past = m.past[1:]
	}
	m.info, m.at, m.admitted = info, now, 0
	m.others, m.all = nil, true
	if s.others != nil {
		m.others, m.all = s.others()
	}
}

// fits reports whether files may grow by that much everywhere. What was
// admitted since the others looked at their disks is not in what they told.
func (s *space) fits(grows uint64) bool {
	i := &s.mu.info
	bytes := s.mu.admitted + grows
	switch {
	case !i.LimitsExact && i.LimitBytes != 0 && i.UsedBytes+bytes > i.LimitBytes:
		return false
	case !i.LimitsExact && i.LimitInodes != 0 && i.UsedInodes >= i.LimitInodes:
		return false
	case roomOf(i).usable() < bytes:
		return false
	}
	bytes += s.untold()
	for _, room := range s.mu.others {
		if room.usable() < bytes {
			return false
		}
	}
	return true
}

// untold is what was admitted before the last look, and may not be in what the
// others told.
func (s *space) untold() (bytes uint64) {
	for _, g := range s.mu.past {
		bytes += g.bytes
	}
	return bytes
}

// narrow makes statfs show the tightest replica.
func (s *space) narrow(fs *fsop.StatFS) {
	if s.others == nil {
		return
	}
	rooms, _ := s.others()
	for _, room := range rooms {
		if free := room.usable(); free < fs.BytesFree {
			// What is used stays true: the size shrinks with the room.
			fs.Bytes -= min(fs.Bytes, fs.BytesFree-free)
			fs.BytesFree = free
		}
		fs.InodesFree = min(fs.InodesFree, room.inodesFree)
	}
}

// room is how much files may grow before growth is refused, in bytes: none near
// the end, so that refusals are told where they arise, and none before everybody has
// told of its disk.
func (s *space) room() uint64 {
	const margin = 64 << 20
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freshen() != nil || !s.mu.all {
		return 0
	}
	info := &s.mu.info
	taken := s.mu.admitted + margin
	free := roomOf(info).usable()
	if info.LimitBytes != 0 {
		free = min(free, info.LimitBytes-min(info.LimitBytes, info.UsedBytes))
	}
	if info.LimitInodes != 0 && info.UsedInodes+4096 >= info.LimitInodes {
		return 0
	}
	free -= min(free, taken)
	for _, other := range s.mu.others {
		usable := other.usable()
		free = min(free, usable-min(usable, taken+s.untold()))
	}
	return free
}
