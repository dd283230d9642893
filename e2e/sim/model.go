package sim

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"

	"github.com/anishathalye/porcupine"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// areas is how many parts the filesystem has that nobody crosses: two directories
// with names in each. Histories of each are checked by themselves.
const (
	areas       = 3
	namesPerDir = 3
	nameCount   = 2 * namesPerDir
)

// action is what a thread does.
type action int

const (
	doCreate action = iota
	doLookup
	doGetAttr
	doOpen
	doWrite
	doAppend
	doRead
	doTruncate
	doPunch
	doChmod
	doSetXattr
	doGetXattr
	doRemoveXattr
	doLink
	doUnlink
	doRename
	doReadDir
	doLock
	doEvict // a session ended
)

var actionNames = [...]string{
	"create", "lookup", "getattr", "open", "write", "append", "read", "truncate", "punch", "chmod", "setxattr", "getxattr",
	"removexattr", "link", "unlink", "rename", "readdir", "lock", "session ends",
}

func (a action) String() string { return actionNames[a] }

func (a action) mutation() bool {
	switch a {
	case doLookup, doGetAttr, doOpen, doRead, doGetXattr, doReadDir:
		return false
	}
	return true
}

// input is what was asked. Of names, 0 to 2 are in the area's first directory.
type input struct {
	kind     action
	name, to int
	ino      fsop.Ino
	held     bool // the inode was open all the time
	ids      []uint32
	at, n    int // cells
	mode     uint32
	flags    uint32
	value    string
	session  uint64
	owner    uint64
	lock     fsop.LockType
	serial   int // unlike all others
}

func (in *input) String() string {
	s := fmt.Sprintf("%v", in.kind)
	switch in.kind {
	case doCreate, doLookup, doUnlink:
		return fmt.Sprintf("%s name %d", s, in.name)
	case doRename:
		return fmt.Sprintf("%s name %d to %d flags %d", s, in.name, in.to, in.flags)
	case doLink:
		return fmt.Sprintf("%s inode %d as %d", s, in.ino, in.to)
	case doReadDir:
		return fmt.Sprintf("%s %d", s, in.name)
	case doWrite, doAppend:
		return fmt.Sprintf("%s inode %d (held %v) cell %d: %v", s, in.ino, in.held, in.at, in.ids)
	case doTruncate, doPunch:
		return fmt.Sprintf("%s inode %d (held %v) cell %d n %d", s, in.ino, in.held, in.at, in.n)
	case doLock:
		return fmt.Sprintf("%s inode %d type %d owner %d session %d", s, in.ino, in.lock, in.owner, in.session)
	case doEvict:
		return fmt.Sprintf("%s: %d", s, in.session)
	case doChmod:
		return fmt.Sprintf("%s inode %d %o", s, in.ino, in.mode)
	}
	return fmt.Sprintf("%s inode %d (held %v) %q", s, in.ino, in.held, in.value)
}

// output is what was told.
type output struct {
	unknown bool
	errno   fsop.Errno
	attr    seen
	cells   []uint32
	at      int // of an append, in cells
	value   string
	names   [namesPerDir]fsop.Ino
}

// seen is what attributes show.
type seen struct {
	ino    fsop.Ino
	mode   uint32
	nlink  uint32
	size   uint64
	xattrs uint32
}

func (o *output) String() string {
	if o.unknown {
		return "?"
	}
	if o.errno != fsop.OK {
		return o.errno.Error()
	}
	return fmt.Sprintf("%+v cells %v at %d %q %v", o.attr, o.cells, o.at, o.value, o.names)
}

// file is an inode of the model.
type file struct {
	ino   fsop.Ino
	nlink uint32
	mode  uint32
	cells []uint32
	xattr string
	locks []lock
}

type lock struct {
	session, owner uint64
	ty             fsop.LockType
}

// state is what an area is; it is never changed, only replaced.
type state struct {
	names [nameCount]fsop.Ino
	files []*file // by inode
}

// promised marks inodes of creations whose answer nobody got.
const promised fsop.Ino = 1 << 60

func (s *state) file(ino fsop.Ino) *file {
	i, ok := slices.BinarySearchFunc(s.files, ino, func(f *file, ino fsop.Ino) int { return int(f.ino) - int(ino) })
	if !ok {
		return nil
	}
	return s.files[i]
}

// with is the state with a file put in, or replaced.
func (s *state) with(f *file) *state {
	n := *s
	i, ok := slices.BinarySearchFunc(s.files, f.ino, func(f *file, ino fsop.Ino) int { return int(f.ino) - int(ino) })
	n.files = slices.Clone(s.files)
	if ok {
		n.files[i] = f
	} else {
		n.files = slices.Insert(n.files, i, f)
	}
	return &n
}

func (s *state) named(name int, ino fsop.Ino) *state {
	n := *s
	n.names[name] = ino
	return &n
}

// linked changes the number of names of a file.
func (s *state) linked(ino fsop.Ino, by int) *state {
	f := *s.file(ino)
	f.nlink = uint32(int(f.nlink) + by)
	return s.with(&f)
}

// bind gives a promised inode its number, now that somebody has seen it.
func (s *state) bind(name int, ino fsop.Ino) *state {
	old := s.names[name]
	if old < promised || ino == 0 || s.file(ino) != nil {
		return s
	}
	f := *s.file(old)
	f.ino = ino
	n := *s
	n.files = slices.DeleteFunc(slices.Clone(s.files), func(f *file) bool { return f.ino == old })
	for i := range n.names {
		if n.names[i] == old {
			n.names[i] = ino
		}
	}
	return n.with(&f)
}

func (f *file) shown() seen {
	a := seen{ino: f.ino, mode: f.mode, nlink: f.nlink, size: uint64(len(f.cells)) * cellSize}
	if f.xattr != "" {
		a.xattrs = 1
	}
	return a
}

func (f *file) equal(o *file) bool {
	return f == o || f.ino == o.ino && f.nlink == o.nlink && f.mode == o.mode && f.xattr == o.xattr &&
		slices.Equal(f.cells, o.cells) && slices.Equal(f.locks, o.locks)
}

// model is an area as porcupine sees it. In a small one growth may be refused.
func model(small bool) porcupine.Model {
	seed := maphash.MakeSeed()
	steps := 0
	return porcupine.Model{
		Init: func() any { return &state{} },
		Step: func(s, in, out any) (bool, any) {
			// In a laboratory nobody else would get the processor, to say that time is up.
			if steps++; steps%1024 == 0 {
				runtime.Gosched()
			}
			ok, next := s.(*state).step(in.(*input), out.(*output), small)
			return ok, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(*state), b.(*state)
			return x == y || x.names == y.names && slices.EqualFunc(x.files, y.files, (*file).equal)
		},
		Hash: func(s any) uint64 {
			st := s.(*state)
			h := maphash.Comparable(seed, st.names)
			for _, f := range st.files {
				h = h*31 + maphash.Comparable(seed, f.shown()) + uint64(len(f.locks))
				for _, c := range f.cells {
					h = h*31 + uint64(c)
				}
			}
			return h
		},
	}
}

// step says whether an answer fits the state, and what the state is then.
func (s *state) step(in *input, out *output, small bool) (bool, *state) {
	if out.errno == fsop.ENOSPC {
		return small, s
	}
	switch in.kind {
	case doCreate:
		return s.create(in, out)
	case doLookup:
		s = s.bind(in.name, out.attr.ino)
		if s.names[in.name] == 0 {
			return out.errno == fsop.ENOENT, s
		}
		return out.errno == fsop.OK && out.attr == s.file(s.names[in.name]).shown(), s
	case doReadDir:
		for i, ino := range out.names {
			s = s.bind(in.name*namesPerDir+i, ino)
		}
		return out.errno == fsop.OK && out.names == [namesPerDir]fsop.Ino(s.names[in.name*namesPerDir:][:namesPerDir]), s
	case doUnlink:
		return s.unlink(in, out)
	case doRename:
		return s.rename(in, out)
	case doEvict:
		return true, s.evict(in.session)
	}
	f := s.file(in.ino)
	if f == nil {
		return out.unknown || out.errno == fsop.ESTALE || in.kind == doOpen && out.errno == fsop.ENOENT, s // not yet, or it was lost with its session
	}
	if out.errno == fsop.ESTALE || out.errno == fsop.ENOENT && in.kind == doOpen {
		// Opening once more what is open may be refused while the others are asked
		// whether they have it open.
		return f.nlink == 0 && (!in.held || in.kind == doOpen), s
	}
	if in.kind == doLink {
		return s.link(f, in, out)
	}
	return s.onFile(f, in, out)
}

func (s *state) create(in *input, out *output) (bool, *state) {
	if s.names[in.name] != 0 {
		return out.unknown || out.errno == fsop.EEXIST, s
	}
	f := &file{ino: out.attr.ino, nlink: 1, mode: in.mode}
	if out.unknown {
		f.ino = promised + fsop.Ino(in.serial)
	} else if out.errno != fsop.OK || out.attr != f.shown() || s.file(f.ino) != nil {
		return false, s
	}
	return true, s.with(f).named(in.name, f.ino)
}

func (s *state) unlink(in *input, out *output) (bool, *state) {
	ino := s.names[in.name]
	if ino == 0 {
		return out.unknown || out.errno == fsop.ENOENT, s
	}
	s = s.bind(in.name, out.attr.ino)
	ino = s.names[in.name]
	next := s.named(in.name, 0).linked(ino, -1)
	return out.unknown || out.errno == fsop.OK && out.attr == next.file(ino).shown(), next
}

func (s *state) link(f *file, in *input, out *output) (bool, *state) {
	switch {
	case s.names[in.to] != 0:
		return out.unknown || out.errno == fsop.EEXIST, s
	case f.nlink == 0:
		return out.unknown || out.errno == fsop.ENOENT, s
	}
	next := s.named(in.to, f.ino).linked(f.ino, 1)
	return out.unknown || out.errno == fsop.OK && out.attr == next.file(f.ino).shown(), next
}

func (s *state) rename(in *input, out *output) (bool, *state) {
	from, to := s.names[in.name], s.names[in.to]
	want := fsop.OK
	switch {
	case from == 0:
		want = fsop.ENOENT
	case to != 0 && in.flags == fsop.RenameNoReplace:
		want = fsop.EEXIST
	case to == 0 && in.flags == fsop.RenameExchange:
		want = fsop.ENOENT
	}
	if want != fsop.OK {
		return out.unknown || out.errno == want, s
	}
	s = s.bind(in.name, out.attr.ino)
	from = s.names[in.name]
	if !out.unknown && (out.errno != fsop.OK || out.attr != s.file(from).shown()) {
		return false, s
	}
	switch {
	case from == to:
		return true, s
	case in.flags == fsop.RenameExchange:
		return true, s.named(in.name, to).named(in.to, from)
	case to != 0:
		s = s.linked(to, -1)
	}
	return true, s.named(in.name, 0).named(in.to, from)
}

func (s *state) evict(session uint64) *state {
	for _, f := range s.files {
		if slices.ContainsFunc(f.locks, func(l lock) bool { return l.session == session }) {
			n := *f
			n.locks = slices.DeleteFunc(slices.Clone(f.locks), func(l lock) bool { return l.session == session })
			s = s.with(&n)
		}
	}
	return s
}

// onFile is what concerns one inode only.
func (s *state) onFile(f *file, in *input, out *output) (bool, *state) {
	n := *f
	told := out.attr // what is compared in the end
	switch in.kind {
	case doGetAttr, doOpen:
	case doRead:
		return out.errno == fsop.OK && slices.Equal(out.cells, f.cells), s
	case doGetXattr:
		if f.xattr == "" {
			return out.errno == fsop.ENODATA, s
		}
		return out.errno == fsop.OK && out.value == f.xattr, s
	case doWrite, doAppend:
		at := in.at
		if in.kind == doAppend {
			if at = len(f.cells); !out.unknown && out.at != at {
				return false, s
			}
		}
		n.cells = slices.Clone(f.cells)
		n.cells = append(n.cells, make([]uint32, max(0, at+len(in.ids)-len(n.cells)))...)
		copy(n.cells[at:], in.ids)
	case doTruncate:
		n.cells = append(slices.Clone(f.cells[:min(in.n, len(f.cells))]), make([]uint32, max(0, in.n-len(f.cells)))...)
	case doPunch:
		n.cells = slices.Clone(f.cells)
		for i := in.at; i < min(in.at+in.n, len(n.cells)); i++ {
			n.cells[i] = 0
		}
	case doChmod:
		n.mode = f.mode&fsop.TypeMask | in.mode
	case doSetXattr:
		n.xattr = in.value
		return out.unknown || out.errno == fsop.OK, s.with(&n)
	case doRemoveXattr:
		if f.xattr == "" {
			return out.unknown || out.errno == fsop.ENODATA, s
		}
		n.xattr = ""
		return out.unknown || out.errno == fsop.OK, s.with(&n)
	case doLock:
		return s.lock(f, in, out)
	}
	return out.unknown || out.errno == fsop.OK && told == n.shown(), s.with(&n)
}

func (s *state) lock(f *file, in *input, out *output) (bool, *state) {
	mine := lock{in.session, in.owner, in.lock}
	n := *f
	n.locks = nil
	for _, l := range f.locks {
		if l.session == mine.session && l.owner == mine.owner {
			continue
		}
		if mine.ty != fsop.LockUnlock && (mine.ty == fsop.LockWrite || l.ty == fsop.LockWrite) {
			return out.unknown || out.errno == fsop.EAGAIN, s
		}
		n.locks = append(n.locks, l)
	}
	if mine.ty != fsop.LockUnlock {
		n.locks = append(n.locks, mine)
		slices.SortFunc(n.locks, func(a, b lock) int {
			return int(a.session-b.session)*8 + int(a.owner) - int(b.owner)
		})
	}
	return out.unknown || out.errno == fsop.OK, s.with(&n)
}
