package kernel

import (
	"encoding/binary"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// What include/uapi/linux/fuse.h defines and bazil.org/fuse does not. Both
// sides of the device have the same byte order.

var native = binary.NativeEndian

// Sizes of structures, in bytes.
const (
	inHeaderSize  = 40
	outHeaderSize = 16
	attrSize      = 88
	attrOutSize   = 16 + attrSize
	entryOutSize  = 40 + attrSize
	openOutSize   = 16
	statfsOutSize = 80
	writeInSize   = 40
	lkOutSize     = 24
	direntSize    = 24
)

// Operations.
const (
	opRead          = 15
	opWrite         = 16
	opInit          = 26
	opIoctl         = 39
	opReadDirPlus   = 44
	opRename2       = 45
	opLseek         = 46
	opCopyFileRange = 47
	opSyncFS        = 50
	opTmpfile       = 51
)

// Flags of an open reply.
const (
	openDirectIO  = 1 << 0
	openKeepCache = 1 << 1
)

// resent marks the unique number of a request that comes again after a RESEND
// notification.
const resent = 1 << 63

// notifyResend asks the kernel to queue every unanswered request again.
const notifyResend = 7

// offsetMax is how the kernel says "to the end of the file" in a lock.
const offsetMax = 1<<63 - 1

// blockSize is st_blksize: a hint that makes programs write in larger pieces,
// each of which is one round of the quorum.
const blockSize = 64 << 10

// putAttr encodes struct fuse_attr.
func putAttr(b []byte, a *fsop.Attr) {
	native.PutUint64(b[0:], uint64(a.Ino))
	native.PutUint64(b[8:], a.Size)
	native.PutUint64(b[16:], a.Blocks)
	native.PutUint64(b[24:], uint64(a.Atime.Sec))
	native.PutUint64(b[32:], uint64(a.Mtime.Sec))
	native.PutUint64(b[40:], uint64(a.Ctime.Sec))
	native.PutUint32(b[48:], a.Atime.Nsec)
	native.PutUint32(b[52:], a.Mtime.Nsec)
	native.PutUint32(b[56:], a.Ctime.Nsec)
	native.PutUint32(b[60:], a.Mode)
	native.PutUint32(b[64:], a.Nlink)
	native.PutUint32(b[68:], a.UID)
	native.PutUint32(b[72:], a.GID)
	native.PutUint32(b[76:], a.Rdev)
	native.PutUint32(b[80:], blockSize)
	native.PutUint32(b[84:], 0)
}

// putAttrOut encodes struct fuse_attr_out. valid is below a second.
func putAttrOut(b []byte, a *fsop.Attr, valid time.Duration) {
	native.PutUint64(b[0:], 0)
	native.PutUint32(b[8:], uint32(valid))
	native.PutUint32(b[12:], 0)
	putAttr(b[16:], a)
}

// putEntryOut encodes struct fuse_entry_out. Generations are always 0: inode
// numbers are never reused. How long name and attributes are valid is below a
// second.
func putEntryOut(b []byte, a *fsop.Attr, name, attr time.Duration) {
	native.PutUint64(b[0:], uint64(a.Ino))
	native.PutUint64(b[8:], 0)
	native.PutUint64(b[16:], 0)
	native.PutUint64(b[24:], 0)
	native.PutUint32(b[32:], uint32(name))
	native.PutUint32(b[36:], uint32(attr))
	putAttr(b[40:], a)
}

// putOpenOut encodes struct fuse_open_out.
func putOpenOut(b []byte, handle uint64, flags uint32) {
	native.PutUint64(b[0:], handle)
	native.PutUint32(b[8:], flags)
	native.PutUint32(b[12:], 0)
}

// statBlock is the unit of statfs(2), in bytes.
const statBlock = 4096

// putStatfs encodes struct fuse_statfs_out.
func putStatfs(b []byte, s *fsop.StatFS) {
	clear(b[:statfsOutSize])
	native.PutUint64(b[0:], s.Bytes/statBlock)
	native.PutUint64(b[8:], s.BytesFree/statBlock)
	native.PutUint64(b[16:], s.BytesFree/statBlock)
	native.PutUint64(b[24:], s.Inodes)
	native.PutUint64(b[32:], s.InodesFree)
	native.PutUint32(b[40:], statBlock)
	native.PutUint32(b[44:], fsop.NameMax)
	native.PutUint32(b[48:], statBlock)
}

// appendDirent appends struct fuse_dirent, padded.
func appendDirent(b []byte, ino fsop.Ino, next uint64, typ uint8, name []byte) []byte {
	b = native.AppendUint64(b, uint64(ino))
	b = native.AppendUint64(b, next)
	b = native.AppendUint32(b, uint32(len(name)))
	b = native.AppendUint32(b, uint32(typ))
	b = append(b, name...)
	for range (8 - len(name)%8) % 8 {
		b = append(b, 0)
	}
	return b
}

// direntLen is the length of what appendDirent appends, in bytes.
func direntLen(name []byte) int { return direntSize + (len(name)+7)&^7 }
