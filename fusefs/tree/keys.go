package tree

import (
	"encoding/binary"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// The first byte of a key says what its record is. Numbers in keys are
// big-endian, so that records of one inode or session lie together in order.
const (
	keyGlobals  = 'A' // → globals
	keyInline   = 'c' // ino → contents of a small file, target of a symbolic link
	keyDirent   = 'd' // parent, hash, name → entry
	keyExtent   = 'e' // ino, end page → start page: allocated range away from page 0
	keyInode    = 'i' // ino → inode
	keySums     = 'k' // ino, region → block checksums
	keyLocks    = 'l' // ino → locks
	keyOrphan   = 'o' // ino → index at which the last name went
	keyPosition = 'p' // session → position in its stream
	keyReply    = 'r' // session, slot → stored reply
	keySession  = 's' // session → who it is
	keyOwner    = 'w' // → owner of the volume
	keySeal     = 'z' // → the volume is sealed
	keyXattr    = 'x' // ino, name → value
)

func key1(tag byte, a uint64) []byte {
	k := make([]byte, 9, 32)
	k[0] = tag
	binary.BigEndian.PutUint64(k[1:], a)
	return k
}

func key2(tag byte, a, b uint64) []byte {
	return binary.BigEndian.AppendUint64(key1(tag, a), b)
}

func inodeKey(i fsop.Ino) []byte  { return key1(keyInode, uint64(i)) }
func inlineKey(i fsop.Ino) []byte { return key1(keyInline, uint64(i)) }
func orphanKey(i fsop.Ino) []byte { return key1(keyOrphan, uint64(i)) }
func locksKey(i fsop.Ino) []byte  { return key1(keyLocks, uint64(i)) }

func direntKey(parent fsop.Ino, hash uint64, name []byte) []byte {
	k := make([]byte, 0, 17+len(name))
	k = append(k, keyDirent)
	k = binary.BigEndian.AppendUint64(k, uint64(parent))
	k = binary.BigEndian.AppendUint64(k, hash)
	return append(k, name...)
}

func xattrKey(i fsop.Ino, name []byte) []byte {
	return append(key1(keyXattr, uint64(i)), name...)
}

func replyKey(session, seq uint64) []byte {
	return binary.BigEndian.AppendUint16(key1(keyReply, session), uint16(seq%fsop.WindowMax))
}

// prefixEnd returns the end of the keys that start with tag and a.
func prefixEnd(tag byte, a uint64) []byte {
	if a == 1<<64-1 {
		return []byte{tag + 1}
	}
	return key1(tag, a+1)
}

// keyIno returns the number that follows the tag.
func keyIno(k []byte) fsop.Ino { return fsop.Ino(binary.BigEndian.Uint64(k[1:9])) }

// decoder reads the integers of a record. After the first error it yields
// zeroes.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) u64() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) u32() uint32 {
	v := d.u64()
	if v > 1<<32-1 {
		d.bad = true
	}
	return uint32(v)
}

func (d *decoder) time() fsop.Time {
	u := d.u64()
	t := fsop.Time{Sec: int64(u>>1) ^ -int64(u&1), Nsec: d.u32()}
	if t.Nsec >= 1e9 {
		d.bad = true
	}
	return t
}

func (d *decoder) bytes() []byte {
	n := d.u64()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) fixed(dst []byte) {
	if len(d.b) < len(dst) {
		d.bad, d.b = true, nil
		return
	}
	d.b = d.b[copy(dst, d.b):]
}

// done reports whether the record was whole and nothing is left of it.
func (d *decoder) done() bool { return !d.bad && len(d.b) == 0 }

func appendTime(b []byte, t fsop.Time) []byte {
	b = binary.AppendUvarint(b, uint64(t.Sec)<<1^uint64(t.Sec>>63))
	return binary.AppendUvarint(b, uint64(t.Nsec))
}

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// keyHash returns the second number of a key.
func keyHash(k []byte) uint64 { return binary.BigEndian.Uint64(k[9:17]) }
