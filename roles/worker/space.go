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
		asked    uint64 // operations, ever
		others   []diskRoom
		all      bool // nobody is missing there
		at       time.Time
		admitted tree.Growth // since then
		past     []admission // admitted before, oldest first, that may not be in what the others told
	}
}

// admission is what was admitted until a time.
type admission struct {
	until time.Time
	asked uint64 // operations, by then
	index uint64 // up to which the log has it; 0: not known yet
	grows tree.Growth
}

// pastMost bounds what is remembered one by one: some minutes of growth.
const pastMost = 1024

// untold reports whether what a replica told of its disk may not have this in it. One of
// which it is not known what it has applied has told everything after noteAge.
func (a *admission) untold(room *diskRoom, now time.Time) bool {
	if applied := room.applied(); applied != 0 {
		return a.index == 0 || a.index > applied
	}
	return now.Sub(a.until) <= noteAge
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.asked++
	if grows == (tree.Growth{}) {
		return fsop.OK
	}
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

// settled notes that the entry at index was applied, and everything that was asked about
// but the last open operations. It is the coordinator's Config.Settled.
func (s *space) settled(index uint64, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := s.mu.past
	for i := len(past) - 1; i >= 0 && past[i].index == 0; i-- {
		if past[i].asked+uint64(open) <= s.mu.asked {
			past[i].index = index
		}
	}
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
	if m.admitted != (tree.Growth{}) {
		m.past = append(m.past, admission{until: now, asked: m.asked, grows: m.admitted})
	}
	m.info, m.at, m.admitted = info, now, tree.Growth{}
	m.others, m.all = nil, true
	if s.others != nil {
		m.others, m.all = s.others()
	}
	s.forget()
}

// forget drops what everybody has told, and joins the oldest of too much.
func (s *space) forget() {
	m := &s.mu
	for len(m.past) > 0 && !s.someoneLacks(&m.past[0]) {
		m.past = m.past[1:]
	}
	for len(m.past) > pastMost {
		m.past[1].grows = sum(m.past[0].grows, m.past[1].grows)
		m.past = m.past[1:]
	}
}

func (s *space) someoneLacks(a *admission) bool {
	if s.mu.at.Sub(a.until) <= noteAge {
		return true // others may be heard of that are not now
	}
	for i := range s.mu.others {
		if a.untold(&s.mu.others[i], s.mu.at) {
			return true
		}
	}
	return false
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
	for i := range s.mu.others {
		if !fits(all, s.left(&s.mu.others[i])) {
			return false
		}
	}
	return true
}

// left is what another replica has left, without what was admitted before the last look and
// may not be in what it told.
func (s *space) left(room *diskRoom) tree.Growth {
	var untold tree.Growth
	for i := range s.mu.past {
		if a := &s.mu.past[i]; a.untold(room, s.mu.at) {
			untold = sum(untold, a.grows)
		}
	}
	return after(room.usable(), untold)
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
	for i := range s.mu.others {
		left := after(s.left(&s.mu.others[i]), taken)
		free = tree.Growth{Bytes: min(free.Bytes, left.Bytes), Files: min(free.Files, left.Files)}
	}
	return min(free.Bytes, free.Files*fsop.AheadRoom(&fsop.Write{}))
}
