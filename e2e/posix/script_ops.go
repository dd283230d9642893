package posix

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ops are the operations of a script. Each returns what it reports, or the error.
var ops = map[string]func(s *script, a []string) (string, error){
	"mkdir":    func(s *script, a []string) (string, error) { return "", unix.Mkdir(s.path(a[0]), oct(a[1])) },
	"rmdir":    func(s *script, a []string) (string, error) { return "", unix.Rmdir(s.path(a[0])) },
	"unlink":   func(s *script, a []string) (string, error) { return "", unix.Unlink(s.path(a[0])) },
	"mkfifo":   func(s *script, a []string) (string, error) { return "", unix.Mkfifo(s.path(a[0]), oct(a[1])) },
	"symlink":  func(s *script, a []string) (string, error) { return "", unix.Symlink(s.expand(a[0]), s.path(a[1])) },
	"chmod":    func(s *script, a []string) (string, error) { return "", unix.Chmod(s.path(a[0]), oct(a[1])) },
	"chown":    func(s *script, a []string) (string, error) { return "", unix.Chown(s.path(a[0]), id(a[1]), id(a[2])) },
	"lchown":   func(s *script, a []string) (string, error) { return "", unix.Lchown(s.path(a[0]), id(a[1]), id(a[2])) },
	"truncate": func(s *script, a []string) (string, error) { return "", unix.Truncate(s.path(a[0]), num(a[1])) },
	"create":   opCreate,
	"make":     opMake,
	"mknod":    opMknod,
	"link":     opLink,
	"rename":   opRename,
	"readlink": opReadlink,
	"access":   opAccess,
	"write":    opWrite,
	"append":   opAppend,
	"read":     opRead,
	"ls":       opList,
	"stat":     func(s *script, a []string) (string, error) { return opStat(s, a, unix.Stat) },
	"lstat":    func(s *script, a []string) (string, error) { return opStat(s, a, unix.Lstat) },
	"same":     opSame,
	"utimes":   opUtimes,
	"mark":     opMark,
	"moved":    opMoved,
	"tick":     func(s *script, a []string) (string, error) { s.tick(); return "", nil },
	"falloc":   opFalloc,
	"seek":     opSeek,
	"setx":     opSetxattr,
	"getx":     opGetxattr,
	"lsx":      opListxattr,
	"rmx":      opRemovexattr,

	"open":      opOpen,
	"tmpfile":   opTmpfile,
	"close":     opClose,
	"fwrite":    opFwrite,
	"fread":     opFread,
	"pwrite":    opPwrite,
	"pread":     opPread,
	"lseek":     opLseek,
	"fsync":     func(s *script, a []string) (string, error) { return "", unix.Fsync(s.fd(a[0])) },
	"fdatasync": func(s *script, a []string) (string, error) { return "", unix.Fdatasync(s.fd(a[0])) },
	"ftruncate": func(s *script, a []string) (string, error) { return "", unix.Ftruncate(s.fd(a[0]), num(a[1])) },
	"fchmod":    func(s *script, a []string) (string, error) { return "", unix.Fchmod(s.fd(a[0]), oct(a[1])) },
	"fchown":    func(s *script, a []string) (string, error) { return "", unix.Fchown(s.fd(a[0]), id(a[1]), id(a[2])) },
	"fstat":     opFstat,
	"flink":     opFlink,
	"ffalloc":   func(s *script, a []string) (string, error) { return "", falloc(s.fd(a[0]), a[1], a[2], a[3]) },
	"fls":       opFlist,
}

func oct(a string) uint32 {
	n, err := strconv.ParseUint(a, 8, 32)
	if err != nil {
		panic(err)
	}
	return uint32(n)
}

func num(a string) int64 {
	n, err := strconv.ParseInt(a, 0, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func id(a string) int { return int(num(a)) }

func opt(a []string, i int, def string) string {
	if i < len(a) {
		return a[i]
	}
	return def
}

func (s *script) fd(name string) int {
	fd, ok := s.handles[name]
	if !ok {
		panic("script: no handle " + name)
	}
	return fd
}

func opCreate(s *script, a []string) (string, error) {
	fd, err := unix.Open(s.path(a[0]), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, oct(opt(a, 1, "644")))
	if err != nil {
		return "", err
	}
	return "", unix.Close(fd)
}

// opMake makes a node of any kind: make KIND PATH [MODE].
func opMake(s *script, a []string) (string, error) {
	return "", makeNode(a[0], s.path(a[1]), oct(opt(a, 2, "644")))
}

// makeNode makes a node of a kind; a symlink points to "target-of-symlink".
func makeNode(kind, path string, mode uint32) error {
	switch kind {
	case "dir":
		if mode&0o111 == 0 {
			mode |= mode & 0o444 >> 2
		}
		return unix.Mkdir(path, mode)
	case "symlink":
		return unix.Symlink("target-of-symlink", path)
	}
	return unix.Mknod(path, fileTypes[kind]|mode, int(unix.Mkdev(17, 13)))
}

var fileTypes = map[string]uint32{"file": unix.S_IFREG, "dir": unix.S_IFDIR, "fifo": unix.S_IFIFO,
	"sock": unix.S_IFSOCK, "chr": unix.S_IFCHR, "blk": unix.S_IFBLK, "symlink": unix.S_IFLNK}

func typeName(mode uint32) string {
	for name, bits := range fileTypes {
		if mode&unix.S_IFMT == bits {
			return name
		}
	}
	return fmt.Sprintf("type %#o", mode&unix.S_IFMT)
}

// opMknod: mknod KIND PATH MODE [MAJOR MINOR].
func opMknod(s *script, a []string) (string, error) {
	dev := unix.Mkdev(uint32(num(opt(a, 3, "0"))), uint32(num(opt(a, 4, "0"))))
	return "", unix.Mknod(s.path(a[1]), fileTypes[a[0]]|oct(a[2]), int(dev))
}

func opLink(s *script, a []string) (string, error) {
	if opt(a, 2, "") == "follow" {
		return "", unix.Linkat(unix.AT_FDCWD, s.path(a[0]), unix.AT_FDCWD, s.path(a[1]), unix.AT_SYMLINK_FOLLOW)
	}
	return "", unix.Link(s.path(a[0]), s.path(a[1]))
}

var renameFlags = map[string]uint{"": 0, "noreplace": unix.RENAME_NOREPLACE, "exchange": unix.RENAME_EXCHANGE,
	"both": unix.RENAME_NOREPLACE | unix.RENAME_EXCHANGE, "unknown": 1 << 20}

func opRename(s *script, a []string) (string, error) {
	flag := renameFlags[opt(a, 2, "")]
	if flag == 0 {
		return "", unix.Rename(s.path(a[0]), s.path(a[1]))
	}
	return "", unix.Renameat2(unix.AT_FDCWD, s.path(a[0]), unix.AT_FDCWD, s.path(a[1]), flag)
}

func opReadlink(s *script, a []string) (string, error) {
	buf := make([]byte, num(opt(a, 1, "5000")))
	n, err := unix.Readlink(s.path(a[0]), buf)
	return string(buf[:max(n, 0)]), err
}

// opAccess: access PATH [rwx], or f for existence.
func opAccess(s *script, a []string) (string, error) {
	var mode uint32
	for _, r := range a[1] {
		mode |= map[rune]uint32{'r': unix.R_OK, 'w': unix.W_OK, 'x': unix.X_OK, 'f': unix.F_OK}[r]
	}
	return "", unix.Access(s.path(a[0]), mode)
}

func opWrite(s *script, a []string) (string, error) {
	return "", withOpen(s.path(a[0]), unix.O_WRONLY, func(fd int) error {
		_, err := unix.Pwrite(fd, []byte(a[1]), num(opt(a, 2, "0")))
		return err
	})
}

func opAppend(s *script, a []string) (string, error) {
	return "", withOpen(s.path(a[0]), unix.O_WRONLY|unix.O_APPEND, func(fd int) error {
		_, err := unix.Write(fd, []byte(a[1]))
		return err
	})
}

func withOpen(path string, flags int, fn func(fd int) error) error {
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return err
	}
	if err := fn(fd); err != nil {
		unix.Close(fd)
		return err
	}
	return unix.Close(fd)
}

// opRead reports the whole contents, NULs as dots.
func opRead(s *script, a []string) (string, error) {
	b, err := readFile(s.path(a[0]))
	return dots(b), err
}

func dots(b []byte) string { return string(bytes.ReplaceAll(b, []byte{0}, []byte{'.'})) }

// readFile reads a file by system calls alone.
func readFile(path string) (b []byte, err error) {
	err = withOpen(path, unix.O_RDONLY, func(fd int) error {
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if n <= 0 || err != nil {
				return err
			}
			b = append(b, buf[:n]...)
		}
	})
	return b, err
}

func opList(s *script, a []string) (string, error) {
	fd, err := unix.Open(s.path(a[0]), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return listNames(fd)
}

func opFlist(s *script, a []string) (string, error) {
	if _, err := unix.Seek(s.fd(a[0]), 0, 0); err != nil {
		return "", err
	}
	return listNames(s.fd(a[0]))
}

func listNames(fd int) (string, error) {
	ents, err := readDir(fd)
	var names []string
	for _, e := range ents {
		if e.name != "." && e.name != ".." {
			names = append(names, e.name)
		}
	}
	sort.Strings(names)
	return strings.Join(names, " "), err
}

type statFn func(string, *unix.Stat_t) error

// opStat: stat PATH FIELD,FIELD….
func opStat(s *script, a []string, stat statFn) (string, error) {
	var st unix.Stat_t
	if err := stat(s.path(a[0]), &st); err != nil {
		return "", err
	}
	return fields(st, opt(a, 1, "type")), nil
}

func opFstat(s *script, a []string) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(s.fd(a[0]), &st); err != nil {
		return "", err
	}
	return fields(st, a[1]), nil
}

func fields(st unix.Stat_t, list string) string {
	var out []string
	for _, f := range strings.Split(list, ",") {
		switch f {
		case "type":
			out = append(out, typeName(st.Mode))
		case "mode":
			out = append(out, fmt.Sprintf("%04o", st.Mode&0o7777))
		case "uid":
			out = append(out, fmt.Sprint(st.Uid))
		case "gid":
			out = append(out, fmt.Sprint(st.Gid))
		case "size":
			out = append(out, fmt.Sprint(st.Size))
		case "nlink":
			out = append(out, fmt.Sprint(st.Nlink))
		case "blocks":
			out = append(out, fmt.Sprint(st.Blocks))
		case "rdev":
			out = append(out, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
		case "atime":
			out = append(out, fmt.Sprintf("%d.%09d", st.Atim.Sec, st.Atim.Nsec))
		case "mtime":
			out = append(out, fmt.Sprintf("%d.%09d", st.Mtim.Sec, st.Mtim.Nsec))
		default:
			panic("script: no field " + f)
		}
	}
	return strings.Join(out, " ")
}

// opSame reports whether two paths name the same inode.
func opSame(s *script, a []string) (string, error) {
	var x, y unix.Stat_t
	if err := unix.Lstat(s.path(a[0]), &x); err != nil {
		return "", err
	}
	if err := unix.Lstat(s.path(a[1]), &y); err != nil {
		return "", err
	}
	if x.Ino == y.Ino {
		return "yes", nil
	}
	return "no", nil
}

// opUtimes: utimes PATH ATIME MTIME [nofollow]; a time is S.NS, now or omit.
func opUtimes(s *script, a []string) (string, error) {
	ts := []unix.Timespec{timeArg(a[1]), timeArg(a[2])}
	flags := 0
	if opt(a, 3, "") == "nofollow" {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	return "", unix.UtimesNanoAt(unix.AT_FDCWD, s.path(a[0]), ts, flags)
}

func timeArg(a string) unix.Timespec {
	switch a {
	case "now":
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	case "omit":
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	sec, ns, _ := strings.Cut(a, ".")
	if ns == "" {
		ns = "0"
	}
	n, err := strconv.ParseInt(ns, 10, 64)
	if err != nil {
		panic(err)
	}
	return unix.Timespec{Sec: num(sec), Nsec: n}
}

// opMark remembers the times of paths, and waits until the filesystem's clock
// has moved on from them.
func opMark(s *script, a []string) (string, error) {
	for _, p := range a {
		var st unix.Stat_t
		if err := unix.Lstat(s.path(p), &st); err != nil {
			return "", err
		}
		s.marks[p] = st
	}
	s.tick()
	return "", nil
}

// opMoved reports which times of a marked path advanced: m, c, mc or "-".
// moved NOW [MARKED] looks at another name than the one marked.
func opMoved(s *script, a []string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(s.path(a[0]), &st); err != nil {
		return "", err
	}
	old, ok := s.marks[opt(a, 1, a[0])]
	if !ok {
		panic("script: no mark of " + a[0])
	}
	res := moveOf("m", old.Mtim, st.Mtim) + moveOf("c", old.Ctim, st.Ctim)
	if res == "" {
		res = "-"
	}
	return res, nil
}

func moveOf(name string, old, now unix.Timespec) string {
	switch d := now.Nano() - old.Nano(); {
	case d > 0:
		return name
	case d < 0:
		return name + "(back)"
	}
	return ""
}

// tick returns once the filesystem stamps a later time than at the call.
func (s *script) tick() { s.c.tick() }

func (c *C) tick() {
	probe := c.P(".tick")
	stamp := func() int64 {
		c.OK(withOpen(probe, unix.O_RDWR|unix.O_CREAT, func(fd int) error { return unix.Fchmod(fd, 0o600) }), "touch the clock probe")
		var st unix.Stat_t
		c.OK(unix.Stat(probe, &st), "stat the clock probe")
		return st.Ctim.Nano()
	}
	defer os.Remove(probe)
	// A first stamp may be coarse and older than what was marked; a second, later
	// one is later than all that came before the first.
	first := stamp()
	for stamp() <= first {
		time.Sleep(500 * time.Microsecond)
	}
	time.Sleep(time.Millisecond)
}
