package worker

import (
	"encoding/binary"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
)

// A worker tells the coordinator's how much room its disk has, and what it found
// at the last marker of a scrub, in a note of its log: version u8 (2), then the place
// in the log, free bytes, inodes and free inodes of the disk, the reserve, and the index
// of the marker (0: none), u64 each, little endian, and the hash, 15 bytes.
// Version 1 ends after the reserve. The place is up to where the log was applied before
// the disk was looked at, with the highest bit set. Releases before had the size of the
// disk there, of which nobody made use.
const (
	noteVersion = 2
	roomSize    = 1 + 5*8
	noteSize    = roomSize + 8 + len(digest{})
)

// note is what one worker tells.
type note struct {
	room       diskRoom
	scrubIndex uint64
	scrubSum   digest
}

func (n note) encode() []byte {
	b := []byte{noteVersion}
	d := n.room
	for _, v := range [...]uint64{d.place, d.free, d.inodes, d.inodesFree, d.reserve, n.scrubIndex} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, n.scrubSum[:]...)
}

// decodeNote reads a note; one of another version tells nothing.
func decodeNote(b []byte) (n note, ok bool) {
	switch {
	case len(b) == roomSize && b[0] == 1:
	case len(b) == noteSize && b[0] == noteVersion:
		n.scrubIndex = binary.LittleEndian.Uint64(b[roomSize:])
		n.scrubSum = digest(b[roomSize+8:])
	default:
		return n, false
	}
	d := &n.room
	for i, p := range [...]*uint64{&d.place, &d.free, &d.inodes, &d.inodesFree, &d.reserve} {
		*p = binary.LittleEndian.Uint64(b[1+8*i:])
	}
	return n, true
}

// disk is the room on one replica's disk.
type diskRoom struct{ place, free, inodes, inodesFree, reserve uint64 }

// placeMark tells a place in the log from the size of a disk.
const placeMark = 1 << 63

func roomOf(i *tree.SpaceInfo) diskRoom {
	return diskRoom{free: i.DiskFree, inodes: i.DiskInodes, inodesFree: i.InodesFree, reserve: i.Reserve}
}

// applied is up to where the log is in what the disk shows; 0: not known.
func (d diskRoom) applied() uint64 {
	if d.place&placeMark == 0 {
		return 0
	}
	return d.place &^ placeMark
}

// usable is what files may still take.
func (d diskRoom) usable() tree.Growth {
	return tree.Growth{Bytes: d.free - min(d.free, d.reserve), Files: tree.SpareInodes(d.inodes, d.inodesFree)}
}

// otherRooms are the newest notes of the other members. all: every one of them that is
// there has sent one. One that has to be rebuilt tells how much room is left beside
// what it has and what it gets: that does not count, or nobody could write meanwhile.
// What it told before does, while it is there: the new copy of all files, which take
// used bytes by now, has to fit beside what it has. One that it does not fit by now is
// not waited for. told is what each has told while it was not to be rebuilt.
func otherRooms(st raftlog.Status, self, used uint64, told map[uint64]diskRoom) (rooms []diskRoom, all bool) {
	all = true
	for _, m := range st.Members {
		if m.ID == self {
			continue
		}
		if m.Behind {
			if room := told[m.ID]; m.Active && room.usable().Bytes > used {
				room.free -= used
				room.place = 0 // what was applied since is in used
				rooms = append(rooms, room)
			}
			continue
		}
		if n, ok := decodeNote(m.Note); ok {
			if m.Match > 0 {
				told[m.ID] = n.room
			}
			if !m.Active {
				n.room.place = 0 // the others go on, and it may never apply that
			}
			rooms = append(rooms, n.room)
		} else if m.Active {
			all = false
		}
	}
	return rooms, all
}
