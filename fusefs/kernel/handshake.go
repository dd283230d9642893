package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The INIT handshake is ours, not bazil's: bazil does not ask for most of this.

// Feature bits of INIT, both words.
const (
	featAsyncRead       = 1 << 0
	featPosixLocks      = 1 << 1
	featExport          = 1 << 4 // open_by_handle_at(2), NFS
	featBigWrites       = 1 << 5
	featFlock           = 1 << 10
	featAutoInval       = 1 << 12 // pages go when size or mtime changed
	featReaddirPlus     = 1 << 13
	featReaddirPlusAuto = 1 << 14 // where lookups follow a listing
	featAsyncDIO        = 1 << 15
	featParallelDirOps  = 1 << 18
	featMaxPages        = 1 << 22
	featKillPriv2       = 1 << 28 // the session clears set-id bits, so no GETXATTR a write
	featSetxattrExt     = 1 << 29 // the layout that newConn tells bazil of
	featInitExt         = 1 << 30 // the second word counts
	featDirectMmap      = 1 << 36 // mmap(2) of files opened for append
	featResend          = 1 << 39 // unanswered requests come again: takeover
)

// wanted is what we ask for when the kernel has it. Left out on purpose:
// writeback cache (hides sizes that other nodes change), POSIX ACLs (not built:
// EOPNOTSUPP), DONT_MASK (the kernel applies umask), cached symbolic links (no
// lease covers them), ABORT_ERROR (the end of a mount is ENOTCONN),
// ATOMIC_O_TRUNC (the file would be cut before the kernel finds out that it is
// a running program: ETXTBSY).
const wanted = featAsyncRead | featPosixLocks | featExport | featBigWrites | featFlock |
	featAutoInval | featReaddirPlus | featReaddirPlusAuto | featAsyncDIO | featParallelDirOps | featMaxPages |
	featKillPriv2 | featSetxattrExt | featInitExt | featDirectMmap | featResend

// needed is what correctness rests on; Linux has all of it since 5.12.
const needed = featPosixLocks | featFlock | featAutoInval | featMaxPages | featKillPriv2 | featSetxattrExt

const (
	protoMajor    = 7
	protoMinor    = 40  // newest minor of which nothing is left to us
	backgroundMax = 64  // readahead and write-back requests under way
	congested     = 48  // of these, before the kernel slows readahead down
	maxPages      = 256 // maxData in pages of 4 KiB
	initInSize    = 16  // at least; 64 with the second word of flags
	initOutSize   = 64
)

// kernelInit is what the kernel says of itself.
type kernelInit struct {
	id           uint64
	major, minor uint32
	readahead    uint32
	features     uint64
}

// decodeInit reads an INIT request.
func decodeInit(b []byte) (in kernelInit, err error) {
	if len(b) < inHeaderSize+initInSize || native.Uint32(b[4:]) != opInit {
		return in, errors.New("first request is not INIT")
	}
	p := b[inHeaderSize:]
	in = kernelInit{
		id: native.Uint64(b[8:]), major: native.Uint32(p), minor: native.Uint32(p[4:]),
		readahead: native.Uint32(p[8:]), features: uint64(native.Uint32(p[12:])),
	}
	if in.features&featInitExt != 0 && len(p) >= initInSize+4 {
		in.features |= uint64(native.Uint32(p[16:])) << 32
	}
	return in, nil
}

// agree chooses features and encodes the answer.
func agree(in kernelInit) (out []byte, features uint64, err error) {
	features = in.features & wanted
	if in.major != protoMajor || features&needed != needed {
		return nil, 0, fmt.Errorf("kernel's FUSE %d.%d lacks features %#x; Linux 5.12 has them", in.major, in.minor, needed&^features)
	}
	out = make([]byte, outHeaderSize+initOutSize)
	native.PutUint32(out, uint32(len(out)))
	native.PutUint64(out[8:], in.id)
	p := out[outHeaderSize:]
	native.PutUint32(p[0:], protoMajor)
	native.PutUint32(p[4:], min(in.minor, protoMinor))
	native.PutUint32(p[8:], maxData) // readahead
	native.PutUint32(p[12:], uint32(features))
	native.PutUint16(p[16:], backgroundMax)
	native.PutUint16(p[18:], congested)
	native.PutUint32(p[20:], maxData) // largest write
	native.PutUint32(p[24:], 1)       // time granularity, nanoseconds
	native.PutUint16(p[28:], maxPages)
	native.PutUint32(p[32:], uint32(features>>32))
	return out, features, nil
}

// handshake answers the kernel's INIT and records both messages. Features in
// without count as not offered.
func handshake(fd int, mem memory, without uint64) (features uint64, err error) {
	buf := make([]byte, bazilBufSize)
	n, err := unix.Read(fd, buf)
	for err == unix.EINTR {
		n, err = unix.Read(fd, buf)
	}
	if err != nil {
		return 0, fmt.Errorf("read INIT: %w", err)
	}
	in, err := decodeInit(buf[:n])
	if err != nil {
		return 0, err
	}
	in.features &^= without
	out, features, err := agree(in)
	if err != nil {
		return 0, err
	}
	if _, err := unix.Write(fd, out); err != nil {
		return 0, fmt.Errorf("answer INIT: %w", err)
	}
	mem.setInit(buf[:n], out)
	return features, nil
}

// agreed reads the features from a recorded answer.
func agreed(out []byte) (uint64, error) {
	if len(out) < outHeaderSize+36 {
		return 0, errors.New("recorded INIT answer is short")
	}
	p := out[outHeaderSize:]
	return uint64(native.Uint32(p[12:])) | uint64(native.Uint32(p[32:]))<<32, nil
}
