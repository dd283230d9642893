package tree

import (
	"encoding/binary"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// pageSize is the unit of allocation and of checksums, in bytes.
const pageSize = 4096

// Inode flags.
const (
	inFile   uint32 = 1 << 0 // contents are in a content file, not inline
	linkable uint32 = 1 << 1 // made by Tmpfile: Link may give it a name
)

// inode is a file's or directory's record.
type inode struct {
	ino     fsop.Ino
	mode    uint32
	nlink   uint32
	uid     uint32
	gid     uint32
	rdev    uint32
	flags   uint32
	size    uint64 // bytes; 0 for directories
	dense   uint64 // pages [0, dense) are allocated
	sparse  uint64 // pages allocated in extent records, all beyond dense
	changed uint64 // index of the last change of contents
	parent  fsop.Ino
	entries uint64 // names in a directory
	xattrs  uint32 // number of extended attributes
	xbytes  uint32 // bytes of their names and values
	atime   fsop.Time
	mtime   fsop.Time
	ctime   fsop.Time

	dirty bool // in a transaction: to be written when it commits
	gone  bool // in a transaction: reaped
}

func (n *inode) kind() uint32      { return n.mode & fsop.TypeMask }
func (n *inode) isDir() bool       { return n.kind() == fsop.TypeDir }
func (n *inode) isFile() bool      { return n.kind() == fsop.TypeFile }
func (n *inode) pages() uint64     { return n.dense + n.sparse }
func (n *inode) has(f uint32) bool { return n.flags&f != 0 }

// attr shows the inode as stat(2) does. A directory counts as one page.
func (n *inode) attr() fsop.Attr {
	a := fsop.Attr{
		Ino: n.ino, Mode: n.mode, Nlink: n.nlink, UID: n.uid, GID: n.gid, Rdev: n.rdev,
		Size: n.size, Blocks: n.pages() * (pageSize / 512),
		Atime: n.atime, Mtime: n.mtime, Ctime: n.ctime,
		Entries: n.entries, Xattrs: n.xattrs, Holes: n.sparse > 0,
	}
	if n.isDir() {
		a.Size, a.Blocks = pageSize, pageSize/512
	}
	return a
}

func appendInode(b []byte, n *inode) []byte {
	for _, v := range [...]uint64{
		uint64(n.mode), uint64(n.nlink), uint64(n.uid), uint64(n.gid), uint64(n.rdev), uint64(n.flags),
		n.size, n.dense, n.sparse, n.changed, uint64(n.parent), n.entries, uint64(n.xattrs), uint64(n.xbytes),
	} {
		b = binary.AppendUvarint(b, v)
	}
	b = appendTime(b, n.atime)
	b = appendTime(b, n.mtime)
	return appendTime(b, n.ctime)
}

func decodeInode(ino fsop.Ino, b []byte) (*inode, bool) {
	d := decoder{b: b}
	n := &inode{
		ino: ino, mode: d.u32(), nlink: d.u32(), uid: d.u32(), gid: d.u32(), rdev: d.u32(), flags: d.u32(),
		size: d.u64(), dense: d.u64(), sparse: d.u64(), changed: d.u64(), parent: fsop.Ino(d.u64()), entries: d.u64(),
		xattrs: d.u32(), xbytes: d.u32(), atime: d.time(), mtime: d.time(), ctime: d.time(),
	}
	return n, d.done()
}

// dirent is what a name leads to.
type dirent struct {
	ino fsop.Ino
	typ uint8 // mode >> 12
}

func appendDirent(b []byte, e dirent) []byte {
	return append(binary.AppendUvarint(b, uint64(e.ino)), e.typ)
}

func decodeDirent(b []byte) (dirent, bool) {
	d := decoder{b: b}
	e := dirent{ino: fsop.Ino(d.u64())}
	var typ [1]byte
	d.fixed(typ[:])
	e.typ = typ[0]
	return e, d.done()
}

// formatVersion is the version of every record of the store; it is the first
// byte of the globals.
const formatVersion = 1

// globals is what the whole state has once.
type globals struct {
	applied, term uint64
	stamp         fsop.Time // of the last item
	nextIno       fsop.Ino
	nextSession   uint64
	feature       uint64
	limitBytes    uint64
	limitInodes   uint64
	pages         uint64 // allocated by all files
	inodes        uint64
	seeded        uint64   // 1 when seed is set
	seed          [16]byte // of the name hash
}

func appendGlobals(b []byte, g *globals) []byte {
	b = append(b, formatVersion)
	b = binary.AppendUvarint(b, g.applied)
	b = binary.AppendUvarint(b, g.term)
	b = appendTime(b, g.stamp)
	for _, v := range [...]uint64{
		uint64(g.nextIno), g.nextSession, g.feature, g.limitBytes, g.limitInodes, g.pages, g.inodes, g.seeded,
	} {
		b = binary.AppendUvarint(b, v)
	}
	return append(b, g.seed[:]...)
}

func decodeGlobals(b []byte) (g globals, ok bool) {
	d := decoder{b: b}
	var version [1]byte
	d.fixed(version[:])
	g = globals{
		applied: d.u64(), term: d.u64(), stamp: d.time(),
		nextIno: fsop.Ino(d.u64()), nextSession: d.u64(), feature: d.u64(), limitBytes: d.u64(), limitInodes: d.u64(),
		pages: d.u64(), inodes: d.u64(), seeded: d.u64(),
	}
	d.fixed(g.seed[:])
	return g, d.done() && version[0] == formatVersion
}
