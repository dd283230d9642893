package kernel

import (
	"bytes"

	"bazil.org/fuse"
)

// Decoders of request bodies that bazil.org/fuse does not parse. They copy what
// they return.

type readIn struct {
	offset uint64
	size   uint32
}

func decodeRead(b []byte) (in readIn, ok bool) {
	if len(b) < 40 {
		return in, false
	}
	return readIn{native.Uint64(b[8:]), native.Uint32(b[16:])}, true
}

type rename2In struct {
	newDir           fuse.NodeID
	flags            uint32
	oldName, newName string
}

func decodeRename2(b []byte) (in rename2In, ok bool) {
	if len(b) < 16 {
		return in, false
	}
	oldName, rest, ok1 := bytes.Cut(b[16:], []byte{0})
	newName, _, ok2 := bytes.Cut(rest, []byte{0})
	in = rename2In{fuse.NodeID(native.Uint64(b)), native.Uint32(b[8:]), string(oldName), string(newName)}
	return in, ok1 && ok2
}

type lseekIn struct {
	offset uint64
	whence uint32
}

func decodeLseek(b []byte) (in lseekIn, ok bool) {
	if len(b) < 24 {
		return in, false
	}
	return lseekIn{native.Uint64(b[8:]), native.Uint32(b[16:])}, true
}

type copyIn struct {
	handles  [2]uint64 // of what is read and what is written
	from, to uint64    // offsets
	target   fuse.NodeID
	length   uint64
}

func decodeCopy(b []byte) (in copyIn, ok bool) {
	if len(b) < 56 {
		return in, false
	}
	return copyIn{
		handles: [2]uint64{native.Uint64(b), native.Uint64(b[24:])},
		from:    native.Uint64(b[8:]), target: fuse.NodeID(native.Uint64(b[16:])),
		to: native.Uint64(b[32:]), length: native.Uint64(b[40:]),
	}, true
}

type createIn struct{ flags, mode uint32 }

func decodeCreate(b []byte) (in createIn, ok bool) {
	if len(b) < 16 {
		return in, false
	}
	return createIn{native.Uint32(b), native.Uint32(b[4:])}, true
}
