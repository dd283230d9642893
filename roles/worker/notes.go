package worker

import (
	"encoding/binary"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
)

// A worker tells the coordinator's how much room its disk has, in a note of its
// log: version u8 (1), then bytes and free bytes, inodes and free inodes of the
// disk, and the reserve, u64 each, little endian.
const (
	noteVersion = 1
	noteSize    = 1 + 5*8
)

// disk is the room on one replica's disk.
type diskRoom struct{ bytes, free, inodes, inodesFree, reserve uint64 }

func roomOf(i *tree.SpaceInfo) diskRoom {
	return diskRoom{i.DiskBytes, i.DiskFree, i.DiskInodes, i.InodesFree, i.Reserve}
}

func (d diskRoom) encode() []byte {
	b := []byte{noteVersion}
	for _, v := range [...]uint64{d.bytes, d.free, d.inodes, d.inodesFree, d.reserve} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// decodeRoom reads a note; one of another version tells nothing.
func decodeRoom(b []byte) (d diskRoom, ok bool) {
	if len(b) != noteSize || b[0] != noteVersion {
		return d, false
	}
	for i, p := range [...]*uint64{&d.bytes, &d.free, &d.inodes, &d.inodesFree, &d.reserve} {
		*p = binary.LittleEndian.Uint64(b[1+8*i:])
	}
	return d, true
}

// usable is what files may still take.
func (d diskRoom) usable() uint64 { return d.free - min(d.free, d.reserve) }

// otherRooms are the newest notes of the other members.
func otherRooms(st raftlog.Status, self uint64) (rooms []diskRoom) {
	for _, m := range st.Members {
		if m.ID == self {
			continue
		}
		if room, ok := decodeRoom(m.Note); ok {
			rooms = append(rooms, room)
		}
	}
	return rooms
}
