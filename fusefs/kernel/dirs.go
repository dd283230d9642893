package kernel

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Positions in a directory as the kernel sees them: 0 is before ".", 1 after
// it, 2 after "..", and after a name its cookie. Cookies are greater.
const (
	posDot    = 1
	posDotDot = 2
)

// listing collects the entries of one READDIR or READDIRPLUS answer.
type listing struct {
	buf   []byte
	max   int
	plus  bool
	valid time.Duration // how long the kernel may keep the entries
}

// add appends an entry; false when it does not fit. a is nil for "." and "..",
// of which the kernel wants no attributes.
func (l *listing) add(ino fsop.Ino, next uint64, typ uint8, name []byte, a *fsop.Attr) bool {
	need := direntLen(name)
	if l.plus {
		need += entryOutSize
	}
	if len(l.buf)+need > l.max {
		return false
	}
	if l.plus {
		n := len(l.buf)
		l.buf = append(l.buf, zeroEntry[:]...)
		if a != nil {
			putEntryOut(l.buf[n:], a, l.valid)
		}
	}
	l.buf = appendDirent(l.buf, ino, next, typ, name)
	return true
}

var zeroEntry [entryOutSize]byte

// wireBytes is how many bytes of encoded entries to ask for so that about max
// bytes of the kernel's form come out.
func (l *listing) wireBytes() uint32 {
	if l.plus {
		return uint32(l.max * 2 / 5)
	}
	return uint32(l.max * 3 / 4)
}

func (x *exchange) readdir(pos uint64, size uint32, plus bool) {
	size = min(size, maxData)
	l := &listing{buf: make([]byte, 0, size), max: int(size), plus: plus}
	if pos < posDot && !l.add(x.node, posDot, fsop.TypeDir>>12, []byte("."), nil) {
		x.fail(fsop.EINVAL)
		return
	}
	if pos < posDotDot && !l.add(x.parent(), posDotDot, fsop.TypeDir>>12, []byte(".."), nil) {
		x.data(l.buf)
		return
	}
	cookie := pos
	if pos <= posDotDot {
		cookie = 0
	}
	rep, errno := x.call(&fsop.ReadDir{Ino: x.node, Cookie: cookie, MaxBytes: l.wireBytes(), Plus: plus})
	if errno != fsop.OK {
		x.fail(errno)
		return
	}
	if !plus {
		l.addAll(rep.Entries, cookie)
		x.data(l.buf)
		return
	}
	inos := []fsop.Ino{x.node}
	for i := range rep.Entries {
		inos = append(inos, rep.Entries[i].Ino)
		if a := rep.Entries[i].Attr; a != nil {
			x.reveal(a, showsLooked, 0)
			x.s.pages.tell(a, x.pid, false)
		}
	}
	x.keeping(rep, inos, func(valid time.Duration) {
		l.valid = valid
		l.addAll(rep.Entries, cookie)
		x.data(l.buf)
	})
}

// addAll appends what fits. Names that share a cookie are one position: until
// the last of them, going on means starting again before the first.
func (l *listing) addAll(entries []fsop.DirEntry, before uint64) {
	for i := range entries {
		e := &entries[i]
		next := e.Cookie
		if i+1 < len(entries) && entries[i+1].Cookie == e.Cookie {
			next = max(before, posDotDot)
		} else {
			before = e.Cookie
		}
		if !l.add(e.Ino, next, e.Type, e.Name, e.Attr) {
			return
		}
	}
}
