package posix

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"

	"golang.org/x/sys/unix"
)

func newRand(seed int64) *rand.Rand { return rand.New(rand.NewSource(seed)) }

// node is an inode of the model.
type node struct {
	kind     string
	mode     uint32
	uid, gid int
	links    int
	data     []byte
	target   string
	xattrs   map[string]string
	children map[string]*node
	parent   *node
}

// held is an open file of the model and of the filesystem.
type held struct {
	fd int
	n  *node
}

// modelRun is a random walk over model and filesystem.
type modelRun struct {
	*C
	r     *rand.Rand
	names []string
	root  *node
	open  []held
	last  []string
}

func runModel(c *C, names, ops int) {
	m := &modelRun{C: c, r: c.rng(), root: &node{kind: "dir", mode: 0o755, links: 2, children: map[string]*node{}}}
	for i := range names {
		m.names = append(m.names, string(rune('a'+i)))
	}
	defer func() {
		for _, h := range m.open {
			unix.Close(h.fd)
		}
		if p := recover(); p != nil {
			c.Logf("last operations:\n\t%s", strings.Join(m.last, "\n\t"))
			panic(p)
		}
	}()
	for i := range ops {
		m.step()
		if i%200 == 199 || i == ops-1 {
			m.verify(m.root, ".")
			m.verifyHeld()
		}
	}
}

// path draws a path of one to three names.
func (m *modelRun) path() string {
	p := m.names[m.r.Intn(len(m.names))]
	for range m.r.Intn(3) {
		p += "/" + m.names[m.r.Intn(len(m.names))]
	}
	return p
}

// resolve finds the parent and the node of a path; links in it point nowhere.
func (m *modelRun) resolve(path string) (parent *node, name string, n *node, e unix.Errno) {
	parts := strings.Split(path, "/")
	at := m.root
	for _, p := range parts[:len(parts)-1] {
		next, ok := at.children[p]
		if !ok || next.kind == "symlink" {
			return nil, "", nil, unix.ENOENT
		}
		if next.kind != "dir" {
			return nil, "", nil, unix.ENOTDIR
		}
		at = next
	}
	name = parts[len(parts)-1]
	return at, name, at.children[name], 0
}

// check compares the outcome of a step with the model's and reports success.
func (m *modelRun) check(err error, want unix.Errno, format string, args ...any) bool {
	what := fmt.Sprintf(format, args...)
	if len(m.last) >= 40 {
		m.last = m.last[1:]
	}
	m.last = append(m.last, what+" = "+Name(want))
	if Errno(err) != want {
		m.Fatalf("%s: got %s, want %s", what, Name(err), Name(want))
	}
	return want == 0
}

func (m *modelRun) step() {
	side := m.Sides()[m.r.Intn(2)]
	p := m.path()
	parent, name, n, e := m.resolve(p)
	switch op := m.r.Intn(20); {
	case op < 3:
		m.make(side, p, "file", parent, name, n, e)
	case op < 6:
		m.make(side, p, "dir", parent, name, n, e)
	case op < 7:
		m.make(side, p, []string{"symlink", "fifo"}[m.r.Intn(2)], parent, name, n, e)
	case op < 9:
		m.remove(side, p, parent, name, n, e)
	case op < 12:
		m.rename(side, p)
	case op < 13:
		m.link(side, p, n, e)
	case op < 14:
		m.openFile(side, p, n, e)
	default:
		m.change(side, p, n, e)
	}
}

func (m *modelRun) make(side func(string) string, p, kind string, parent *node, name string, n *node, e unix.Errno) {
	if e == 0 && n != nil {
		e = unix.EEXIST
	}
	err := makeNode(kind, side(p), 0o644)
	if !m.check(err, e, "make %s %s", kind, p) {
		return
	}
	n = &node{kind: kind, mode: 0o644, links: 1, xattrs: map[string]string{}, parent: parent}
	setgid := parent.mode & 0o2000
	if setgid != 0 {
		n.gid = parent.gid
	}
	switch kind {
	case "dir":
		n.mode, n.links, n.children = 0o755|setgid, 2, map[string]*node{}
		parent.links++
	case "symlink":
		n.mode, n.target = 0o777, "target-of-symlink"
	}
	parent.children[name] = n
}

func (m *modelRun) remove(side func(string) string, p string, parent *node, name string, n *node, e unix.Errno) {
	rmdir := m.r.Intn(2) == 0
	if e == 0 {
		switch {
		case n == nil:
			e = unix.ENOENT
		case rmdir && n.kind != "dir":
			e = unix.ENOTDIR
		case rmdir && len(n.children) > 0:
			e = unix.ENOTEMPTY
		case !rmdir && n.kind == "dir":
			e = unix.EISDIR
		}
	}
	call, verb := unix.Unlink, "unlink"
	if rmdir {
		call, verb = unix.Rmdir, "rmdir"
	}
	if m.check(call(side(p)), e, "%s %s", verb, p) {
		m.drop(parent, name)
	}
}

// drop takes a name out of its directory.
func (m *modelRun) drop(parent *node, name string) {
	n := parent.children[name]
	delete(parent.children, name)
	if n.kind == "dir" {
		n.links = 0
		parent.links--
	} else {
		n.links--
	}
}

func (n *node) below(top *node) bool {
	for ; n != nil; n = n.parent {
		if n == top {
			return true
		}
	}
	return false
}

func (m *modelRun) rename(side func(string) string, from string) {
	to := m.path()
	flags := []uint{0, 0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[m.r.Intn(5)]
	fp, fn, src, e1 := m.resolve(from)
	tp, tn, dst, e2 := m.resolve(to)
	exchange := flags == unix.RENAME_EXCHANGE
	e := renameErrno(fp, src, e1, tp, dst, e2, flags)
	err := unix.Renameat2(unix.AT_FDCWD, side(from), unix.AT_FDCWD, side(to), flags)
	if errors.Is(err, unix.ESTALE) {
		// The other node moved a directory below which this one has a file open: the
		// kernel gives it its new name in a lookup, but not inside a rename.
		for _, p := range []string{from, to} {
			var st unix.Stat_t
			unix.Lstat(side(p), &st)
		}
		err = unix.Renameat2(unix.AT_FDCWD, side(from), unix.AT_FDCWD, side(to), flags)
	}
	if !m.check(err, e, "rename %s %s flags %d", from, to, flags) || src == dst {
		return
	}
	moveLinks := func(n *node, out, in *node) {
		n.parent = in
		if n.kind == "dir" {
			out.links--
			in.links++
		}
	}
	if exchange {
		fp.children[fn], tp.children[tn] = dst, src
		moveLinks(src, fp, tp)
		moveLinks(dst, tp, fp)
		return
	}
	if dst != nil {
		m.drop(tp, tn)
	}
	delete(fp.children, fn)
	tp.children[tn] = src
	moveLinks(src, fp, tp)
}

// renameErrno is what rename answers, in the order in which the kernel checks.
func renameErrno(fp, src *node, e1 unix.Errno, tp, dst *node, e2 unix.Errno, flags uint) unix.Errno {
	exchange := flags == unix.RENAME_EXCHANGE
	switch {
	case e1 != 0:
		return e1
	case e2 != 0:
		return e2
	case src == nil:
		return unix.ENOENT
	case flags == unix.RENAME_NOREPLACE && dst != nil:
		return unix.EEXIST
	case exchange && dst == nil:
		return unix.ENOENT
	case src.kind == "dir" && tp.below(src):
		return unix.EINVAL
	case dst != nil && dst.kind == "dir" && fp.below(dst):
		if exchange {
			return unix.EINVAL
		}
		return unix.ENOTEMPTY
	case src == dst || dst == nil || exchange:
		return 0
	case src.kind == "dir" && dst.kind != "dir":
		return unix.ENOTDIR
	case src.kind != "dir" && dst.kind == "dir":
		return unix.EISDIR
	case len(dst.children) > 0:
		return unix.ENOTEMPTY
	}
	return 0
}

func (m *modelRun) link(side func(string) string, from string, n *node, e unix.Errno) {
	to := m.path()
	tp, tn, dst, e2 := m.resolve(to)
	switch {
	case e != 0:
	case n == nil:
		e = unix.ENOENT
	case e2 != 0:
		e = e2
	case dst != nil:
		e = unix.EEXIST
	case n.kind == "dir":
		e = unix.EPERM
	}
	if m.check(unix.Link(side(from), side(to)), e, "link %s %s", from, to) {
		n.links++
		tp.children[tn] = n
	}
}

func (m *modelRun) openFile(side func(string) string, p string, n *node, e unix.Errno) {
	if e != 0 || n == nil || n.kind != "file" {
		return
	}
	fd, err := unix.Open(side(p), unix.O_RDWR|unix.O_CLOEXEC, 0)
	m.check(err, 0, "open %s", p)
	m.open = append(m.open, held{fd, n})
	if len(m.open) > 8 {
		m.OK(unix.Close(m.open[0].fd), "close")
		m.open = m.open[1:]
	}
}

// change alters an inode: mode, owner, contents or xattrs, by path or by an open file.
func (m *modelRun) change(side func(string) string, p string, n *node, e unix.Errno) {
	if len(m.open) > 0 && m.r.Intn(3) == 0 {
		h := m.open[m.r.Intn(len(m.open))]
		data, off := noise(m.r, 1+m.r.Intn(6000)), m.r.Intn(9000)
		m.check(writeAll(h.fd, data, int64(off)), 0, "write %d+%d to an open file with %d links", off, len(data), h.n.links)
		h.n.write(data, off)
		return
	}
	if e == 0 && n == nil {
		e = unix.ENOENT
	}
	if e == 0 && n.kind == "symlink" {
		return
	}
	switch m.r.Intn(5) {
	case 0:
		mode := uint32(m.r.Intn(0o10000))
		if m.check(unix.Chmod(side(p), mode), e, "chmod %s %o", p, mode) {
			n.mode = mode
		}
	case 1:
		uid, gid := m.r.Intn(5), m.r.Intn(5)
		if m.check(unix.Chown(side(p), uid, gid), e, "chown %s %d %d", p, uid, gid) {
			n.uid, n.gid = uid, gid
			if n.kind != "dir" {
				n.mode &^= 0o4000
				if n.mode&0o10 != 0 {
					n.mode &^= 0o2000
				}
			}
		}
	case 2:
		if e == 0 && n.kind != "file" {
			return
		}
		size := m.r.Intn(9000)
		if m.check(unix.Truncate(side(p), int64(size)), e, "truncate %s %d", p, size) {
			n.data = append(n.data, make([]byte, max(size-len(n.data), 0))...)[:size:size]
		}
	case 3:
		if e == 0 && n.kind != "file" {
			return
		}
		data := noise(m.r, 1+m.r.Intn(5000))
		err := withOpen(side(p), unix.O_WRONLY|unix.O_APPEND, func(fd int) error { _, err := unix.Write(fd, data); return err })
		if m.check(err, e, "append %d to %s", len(data), p) {
			n.write(data, len(n.data))
		}
	case 4:
		if e == 0 && n.kind == "fifo" {
			return
		}
		k, v := "user."+m.names[m.r.Intn(len(m.names))], num2("v", m.r.Intn(1000))
		if m.check(unix.Setxattr(side(p), k, []byte(v), 0), e, "setxattr %s %s", p, k) {
			n.xattrs[k] = v
		}
	}
}

func (n *node) write(data []byte, off int) {
	if over := off + len(data) - len(n.data); over > 0 {
		n.data = append(n.data, make([]byte, over)...)
	}
	copy(n.data[off:], data)
}

// verify compares a tree with the filesystem, on both sides.
func (m *modelRun) verify(n *node, path string) {
	for i, side := range m.Sides() {
		st := statOf(m.C, side(path))
		if path == "." {
			st.Mode, st.Uid, st.Gid = st.Mode&^0o7777|n.mode, uint32(n.uid), uint32(n.gid)
		}
		want := fmt.Sprintf("%s %04o %d:%d links %d", n.kind, n.mode, n.uid, n.gid, n.links)
		if got := m.describe(st); !strings.HasPrefix(got, want+" ") {
			m.Fatalf("side %d: %s is %q, want %q", i, path, got, want)
		}
		for k, v := range n.xattrs {
			checkXattr(m.C, side(path), k, []byte(v))
		}
		switch n.kind {
		case "file":
			m.same(m.get(side(path)), n.data, path)
			Eq(m.C, st.Size, int64(len(n.data)), "size of %s", path)
		case "dir":
			ents, err := listDir(side(path))
			m.OK(err, "read %s", path)
			for _, e := range ents {
				if n.children[e.name] == nil {
					m.Fatalf("side %d: %s/%s must not exist", i, path, e.name)
				}
			}
			Eq(m.C, len(ents), len(n.children), "entries of %s", path)
		}
	}
	for name, child := range n.children {
		m.verify(child, path+"/"+name)
	}
}

func (m *modelRun) verifyHeld() {
	for _, h := range m.open {
		st := fstatOf(m.C, h.fd)
		Eq(m.C, int(st.Nlink), h.n.links, "link count of an open file")
		Eq(m.C, st.Size, int64(len(h.n.data)), "size of an open file")
		buf := make([]byte, len(h.n.data)+1)
		n, err := unix.Pread(h.fd, buf, 0)
		m.OK(err, "read an open file")
		m.same(buf[:n], h.n.data, "open file")
	}
}
