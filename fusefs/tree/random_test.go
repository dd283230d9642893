package tree_test

import (
	"bytes"
	"fmt"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// dice is a small seeded generator (SplitMix64).
type dice uint64

func (d *dice) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (d *dice) below(n uint64) uint64 { return d.next() % n }

func (d *dice) one(in uint64) bool { return d.below(in) == 0 }

// workload makes random operations that often mean something: few names, and
// numbers of inodes that exist or did.
type workload struct {
	dice
	inos uint64 // numbers below it were given out
}

func (w *workload) ino() fsop.Ino { return fsop.Ino(1 + w.below(w.inos)) }

// dir prefers the directories made first.
func (w *workload) dir() fsop.Ino {
	if w.one(2) {
		return fsop.Root
	}
	return fsop.Ino(1 + w.below(min(w.inos, 12)))
}

func (w *workload) name() []byte {
	switch w.below(60) {
	case 0:
		return bytes.Repeat([]byte{'n'}, int(250+w.below(10)))
	case 1:
		return []byte([]string{"", ".", "..", "a/b", "a\x00", "\xff\xfe"}[w.below(6)])
	}
	return fmt.Appendf(nil, "n%d", w.below(10))
}

func (w *workload) mode(typ uint32) uint32 { return typ | uint32(w.below(0o10000)) }

// offset prefers the neighbourhood of page and region borders.
func (w *workload) offset() uint64 {
	switch w.below(4) {
	case 0:
		return w.below(5000)
	case 1:
		return w.below(12) * 4096
	case 2:
		return w.below(12)*4096 + w.below(100)
	}
	return w.below(400_000)
}

func (w *workload) data() []byte {
	n := w.below(200)
	switch w.below(5) {
	case 0:
		n = w.below(20_000)
	case 1:
		n = 4096
	}
	b := make([]byte, n)
	if !w.one(8) { // zeroes are data, too
		for i := range b {
			b[i] = byte(w.next())
		}
	}
	return b
}

func (w *workload) create() *fsop.Create {
	o := &fsop.Create{Parent: w.dir(), Name: w.name(), UID: uint32(w.below(3)), GID: uint32(w.below(3)), Excl: w.one(2)}
	o.Mode = w.mode([]uint32{fsop.TypeFile, fsop.TypeFile, fsop.TypeDir, fsop.TypeLink, fsop.TypeFifo, fsop.TypeChar}[w.below(6)])
	if o.Mode&fsop.TypeMask == fsop.TypeLink {
		o.Target = bytes.Repeat([]byte{'t'}, int(1+w.below(300)))
	}
	o.Rdev = uint32(w.below(1000))
	return o
}

func (w *workload) setAttr() *fsop.SetAttr {
	o := &fsop.SetAttr{
		Ino: w.ino(), Mode: w.mode(0), UID: uint32(w.below(3)), GID: uint32(w.below(3)), Size: w.offset(),
		Atime: fsop.Time{Sec: int64(w.below(1000)) - 500, Nsec: uint32(w.below(1e9))},
		Mtime: fsop.Time{Sec: 1 << 40, Nsec: uint32(w.below(1e9))},
	}
	for range w.below(3) + 1 {
		o.Valid |= 1 << w.below(10)
	}
	if w.one(3) {
		o.Valid = fsop.SetSize
	}
	if w.one(12) {
		o.Size, o.Valid = 0, fsop.SetSize
	}
	return o
}

func (w *workload) fallocate() *fsop.Fallocate {
	modes := []uint32{0, 1, 2, 3, 0x10, 0x11, 3, 3}
	o := &fsop.Fallocate{Ino: w.ino(), Mode: modes[w.below(8)], Offset: w.offset(), Length: w.offset(), KillPriv: w.one(5)}
	return o
}

func (w *workload) xattrName() []byte {
	return []byte([]string{"user.a", "user.b", "security.capability", "trusted.x"}[w.below(4)])
}

// mutation returns the next operation of a session's stream.
func (w *workload) mutation() fsop.Op {
	switch w.below(21) {
	case 0, 1, 2, 3:
		return w.create()
	case 4:
		return &fsop.Link{Ino: w.ino(), Parent: w.dir(), Name: w.name()}
	case 5, 6:
		return &fsop.Unlink{Parent: w.dir(), Name: w.name(), Dir: w.one(3)}
	case 7, 8, 9:
		o := &fsop.Rename{Parent: w.dir(), Name: w.name(), NewParent: w.dir(), NewName: w.name()}
		if w.one(3) {
			o.Flags = uint32(w.below(5))
		}
		return o
	case 10, 11:
		return w.setAttr()
	case 12, 13, 14, 15:
		return &fsop.Write{Ino: w.ino(), Offset: w.offset(), Append: w.one(4), KillPriv: w.one(4), Data: w.data()}
	case 16, 17:
		return w.fallocate()
	case 18:
		return &fsop.SetXattr{Ino: w.ino(), Name: w.xattrName(), Value: w.data(), Flags: uint32(w.below(3))}
	case 19:
		if w.one(2) {
			return &fsop.RemoveXattr{Ino: w.ino(), Name: w.xattrName()}
		}
		return &fsop.Tmpfile{Parent: w.dir(), Mode: w.mode(0), Excl: w.one(2)}
	}
	return w.lock()
}

func (w *workload) lock() *fsop.Lock {
	l := fsop.LockRange{
		Kind: fsop.LockKind(1 + w.below(2)), Type: fsop.LockType(1 + w.below(3)), Owner: w.below(3), PID: 9, Start: w.below(20),
	}
	l.End = l.Start + w.below(20)
	return &fsop.Lock{Ino: w.ino(), Lock: l}
}
