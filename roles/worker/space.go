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
		admitted tree.Growth // since then
		past     []admission // admitted before, oldest first, at most noteAge ago
	}
}

// admission is what was admitted until a time.
type admission struct {
	until time.Time
	grows tree.Growth
}

func sum(a, b tree.Growth) tree.Growth {
	return tree.Growth{Bytes: a.Bytes + b.Bytes, Files: a.Files + b.Files}
}

// fits reports whether a disk on which files may still take left has room for grows.
// Where no file is to be made, inodes do not matter.
func fits(grows, left tree.Growth) bool {
	return grows.Bytes <= left.Bytes && (grows.Files == 0 || grows.Files <= left.Files)
}

// after is what is left when some more has been taken.
func after(left, taken tree.Growth) tree.Growth {
	return tree.Growth{Bytes: left.Bytes - min(left.Bytes, taken.Bytes), Files: left.Files - min(left.Files, taken.Files)}
}

// refuse returns the errno with which op must not be logged, or OK. A disk that
// can't be asked refuses nothing: then the replica itself will stop.
func (s *space) refuse(op fsop.Op) fsop.Errno {
	grows := s.tree.Growth(op)
	if grows == (tree.Growth{}) {
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
	s.mu.admitted = sum(s.mu.admitted, grows)
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
	m.past = append(m.past, admission{now, m.admitted})
	for len(m.past) > 0 && now.Sub(m.past[0].until) > noteAge {
		m.past = m.past[1:]
	}
	m.info, m.at, m.admitted = info, now, tree.Growth{}
	m.others, m.all = nil, true
	if s.others != nil {
		m.others, m.all = s.others()
	}
}

// fits reports whether files may grow by that much everywhere. What was
// admitted since the others looked at their disks is not in what they told.
func (s *space) fits(grows tree.Growth) bool {
	i := &s.mu.info
	all := sum(s.mu.admitted, grows)
	switch {
	case !i.LimitsExact && i.LimitBytes != 0 && i.UsedBytes+all.Bytes > i.LimitBytes:
		return false
	case !i.LimitsExact && i.LimitInodes != 0 && i.UsedInodes >= i.LimitInodes:
		return false
	}
	if grows.Files == 0 {
		all.Files = 0
	}
	if !fits(all, roomOf(i).usable()) {
		return false
	}
	untold := s.untold()
	for _, room := range s.mu.others {
		if !fits(all, after(room.usable(), untold)) {
			return false
		}
	}
	return true
}

// untold is what was admitted before the last look, and may not be in what the
// others told.
func (s *space) untold() (all tree.Growth) {
	for _, a := range s.mu.past {
		all = sum(all, a.grows)
	}
	return all
}

// narrow makes statfs show the tightest replica.
func (s *space) narrow(fs *fsop.StatFS) {
	if s.others == nil {
		return
	}
	rooms, _ := s.others()
	for _, room := range rooms {
		free := room.usable()
		if fs.Inodes == 0 { // this disk does not count them
			fs.Inodes = room.inodes
			fs.InodesFree = min(room.inodes, free.Files)
		}
		shrink(&fs.Bytes, &fs.BytesFree, free.Bytes)
		shrink(&fs.Inodes, &fs.InodesFree, free.Files)
	}
}

// shrink takes that less is free. What is used stays true: the whole shrinks with it.
func shrink(whole, free *uint64, least uint64) {
	if least < *free {
		*whole -= min(*whole, *free-least)
		*free = least
	}
}

// room is how much files may grow before growth is refused, in bytes: none near
// the end, so that refusals are told where they arise, and none before everybody has
// told of its disk. It counts inodes by what a session counts for a file at least.
func (s *space) room() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freshen() != nil || !s.mu.all {
		return 0
	}
	info := &s.mu.info
	taken := sum(s.mu.admitted, nearlyFull)
	free := roomOf(info).usable()
	if info.LimitBytes != 0 {
		free.Bytes = min(free.Bytes, info.LimitBytes-min(info.LimitBytes, info.UsedBytes))
	}
	if info.LimitInodes != 0 && info.UsedInodes+4096 >= info.LimitInodes {
		return 0
	}
	free = after(free, taken)
	for _, other := range s.mu.others {
		left := after(other.usable(), sum(taken, s.untold()))
		free = tree.Growth{Bytes: min(free.Bytes, left.Bytes), Files: min(free.Files, left.Files)}
	}
	return min(free.Bytes, free.Files*fsop.AheadRoom(&fsop.Write{}))
}
