package posix

import (
	"fmt"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

var openFlags = map[string]int{
	"O_RDONLY": unix.O_RDONLY, "O_WRONLY": unix.O_WRONLY, "O_RDWR": unix.O_RDWR, "O_CREAT": unix.O_CREAT,
	"O_EXCL": unix.O_EXCL, "O_TRUNC": unix.O_TRUNC, "O_APPEND": unix.O_APPEND, "O_NOFOLLOW": unix.O_NOFOLLOW,
	"O_DIRECTORY": unix.O_DIRECTORY, "O_NONBLOCK": unix.O_NONBLOCK, "O_SYNC": unix.O_SYNC, "O_DSYNC": unix.O_DSYNC,
	"O_PATH": unix.O_PATH, "O_DIRECT": unix.O_DIRECT, "O_NOATIME": unix.O_NOATIME, "O_TMPFILE": unix.O_TMPFILE,
}

func flagArg(a string) (flags int) {
	for _, f := range strings.Split(a, "|") {
		v, ok := openFlags[f]
		if !ok {
			panic("script: no flag " + f)
		}
		flags |= v
	}
	return flags
}

// opOpen: [h=]open PATH FLAGS [MODE]; without a handle it is closed at once.
func opOpen(s *script, a []string) (string, error) {
	return "", s.open(s.path(a[0]), flagArg(a[1]), oct(opt(a, 2, "644")))
}

func (s *script) open(path string, flags int, mode uint32) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	if s.bind == "" {
		return unix.Close(fd)
	}
	if old, ok := s.handles[s.bind]; ok {
		unix.Close(old)
	}
	s.handles[s.bind] = fd
	s.opened[s.bind] = s.side
	return nil
}

// opTmpfile: [h=]tmpfile DIR FLAGS [MODE].
func opTmpfile(s *script, a []string) (string, error) {
	return "", s.open(s.path(a[0]), flagArg(a[1])|unix.O_TMPFILE, oct(opt(a, 2, "644")))
}

func opClose(s *script, a []string) (string, error) {
	fd := s.fd(a[0])
	delete(s.handles, a[0])
	return "", unix.Close(fd)
}

func opFwrite(s *script, a []string) (string, error) {
	n, err := unix.Write(s.fd(a[0]), []byte(a[1]))
	if err == nil && n != len(a[1]) {
		return fmt.Sprintf("short write of %d", n), nil
	}
	return "", err
}

func opFread(s *script, a []string) (string, error) {
	buf := make([]byte, num(a[1]))
	n, err := unix.Read(s.fd(a[0]), buf)
	return dots(buf[:max(n, 0)]), err
}

func opPwrite(s *script, a []string) (string, error) {
	_, err := unix.Pwrite(s.fd(a[0]), []byte(a[1]), num(a[2]))
	return "", err
}

// opPread: pread HANDLE COUNT OFFSET.
func opPread(s *script, a []string) (string, error) {
	buf := make([]byte, num(a[1]))
	n, err := unix.Pread(s.fd(a[0]), buf, num(a[2]))
	return dots(buf[:max(n, 0)]), err
}

var whences = map[string]int{"set": 0, "cur": 1, "end": 2, "data": unix.SEEK_DATA, "hole": unix.SEEK_HOLE}

// opLseek: lseek HANDLE OFFSET WHENCE reports the new offset.
func opLseek(s *script, a []string) (string, error) {
	n, err := unix.Seek(s.fd(a[0]), num(a[1]), whences[a[2]])
	return fmt.Sprint(n), err
}

// opSeek: seek PATH data|hole OFFSET.
func opSeek(s *script, a []string) (res string, err error) {
	err = withOpen(s.path(a[0]), unix.O_RDONLY, func(fd int) error {
		n, err := unix.Seek(fd, num(a[2]), whences[a[1]])
		res = fmt.Sprint(n)
		return err
	})
	return res, err
}

var fallocModes = map[string]uint32{
	"plain": 0, "keep": unix.FALLOC_FL_KEEP_SIZE, "punch": unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE,
	"zero": unix.FALLOC_FL_ZERO_RANGE, "zerokeep": unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE,
	"punchonly": unix.FALLOC_FL_PUNCH_HOLE, "unknown": 1 << 15,
	"collapse": unix.FALLOC_FL_COLLAPSE_RANGE, "insert": unix.FALLOC_FL_INSERT_RANGE,
}

// opFalloc: falloc PATH MODE OFFSET LENGTH.
func opFalloc(s *script, a []string) (string, error) {
	return "", withOpen(s.path(a[0]), unix.O_RDWR, func(fd int) error { return falloc(fd, a[1], a[2], a[3]) })
}

func falloc(fd int, mode, off, length string) error {
	m, ok := fallocModes[mode]
	if !ok {
		panic("script: no fallocate mode " + mode)
	}
	return unix.Fallocate(fd, m, num(off), num(length))
}

// opFlink gives the file of a handle a name: flink HANDLE PATH, on the side where
// the handle was opened.
func opFlink(s *script, a []string) (string, error) {
	s.side = s.opened[a[0]]
	return "", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", s.fd(a[0])), unix.AT_FDCWD, s.path(a[1]), unix.AT_SYMLINK_FOLLOW)
}

var xattrFlags = map[string]int{"": 0, "create": unix.XATTR_CREATE, "replace": unix.XATTR_REPLACE, "both": 3, "unknown": 8}

// opSetxattr: setx PATH NAME VALUE [create|replace]; it does not follow links.
func opSetxattr(s *script, a []string) (string, error) {
	return "", unix.Lsetxattr(s.path(a[0]), s.expand(a[1]), []byte(s.expand(a[2])), xattrFlags[opt(a, 3, "")])
}

// opGetxattr: getx PATH NAME [SIZE] reports the value; size 0 reports its length.
func opGetxattr(s *script, a []string) (string, error) {
	buf := make([]byte, num(opt(a, 2, "70000")))
	n, err := unix.Lgetxattr(s.path(a[0]), s.expand(a[1]), buf)
	if err == nil && len(buf) == 0 {
		return fmt.Sprint(n), nil
	}
	return string(buf[:max(min(n, len(buf)), 0)]), err
}

// opListxattr: lsx PATH [SIZE] reports the sorted names, without those of the
// security modules of this machine.
func opListxattr(s *script, a []string) (string, error) {
	buf := make([]byte, num(opt(a, 1, "70000")))
	n, err := unix.Llistxattr(s.path(a[0]), buf)
	if err != nil || len(buf) == 0 {
		return fmt.Sprint(n), err
	}
	var names []string
	for _, name := range strings.Split(string(buf[:n]), "\x00") {
		if name != "" && name != "security.selinux" && !strings.HasPrefix(name, "security.SMACK") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return strings.Join(names, " "), nil
}

func opRemovexattr(s *script, a []string) (string, error) {
	return "", unix.Lremovexattr(s.path(a[0]), s.expand(a[1]))
}
