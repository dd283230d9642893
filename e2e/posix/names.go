package posix

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

var namesGroup = Group{"names", []Case{
	{Name: "every single byte", Fn: func(c *C) {
		made := 0
		for b := 1; b < 256; b++ {
			name := string([]byte{byte(b)})
			if name == "/" || name == "." {
				continue
			}
			c.put(c.P(name), []byte(fmt.Sprintf("byte %d", b)))
			made++
		}
		ents, err := listDir(c.Q("."))
		c.OK(err, "read")
		Eq(c, len(ents), made, "entries")
		for _, e := range ents {
			c.same(c.get(c.Q(e.name)), []byte(fmt.Sprintf("byte %d", e.name[0])), fmt.Sprintf("file %q", e.name))
		}
	}},
	{Name: "upper and lower case, composed and decomposed are distinct", Fn: func(c *C) {
		names := []string{"name", "NAME", "Name", "\u00e4", "a\u0308", "ﬁ", "fi", "ß", "SS", "name ", " name", "name.", "na\nme", "-rf", "*", "CON", "a:b", `a\b`, "...", "~"}
		for _, n := range names {
			c.OK(makeNode("file", c.P(n), 0o644), "create %q", n)
		}
		ents, err := listDir(c.Q("."))
		c.OK(err, "read")
		Eq(c, len(ents), len(names), "entries")
	}},
	{Name: "invalid UTF-8", Fn: func(c *C) {
		for i, n := range []string{"\xff", "\xc0\x80", "\xed\xa0\x80", "a\x80b", "\xf4\x90\x80\x80", "\xe2\x82", "\xfe\xff\xfe"} {
			c.put(c.P(n), []byte{byte(i)})
			c.same(c.get(c.Q(n)), []byte{byte(i)}, fmt.Sprintf("%q", n))
			c.OK(unix.Rename(c.Q(n), c.Q(n+"\xff")), "rename %q", n)
			c.OK(unix.Unlink(c.Q(n+"\xff")), "unlink %q", n)
		}
	}},
	{Name: "of 255 bytes with every call", Fn: func(c *C) {
		a, b := strings.Repeat("\xee", 255), strings.Repeat("\xef", 255)
		c.put(c.P(a), []byte("x"))
		c.OK(unix.Link(c.Q(a), c.Q(b)), "link")
		c.OK(unix.Unlink(c.P(a)), "unlink")
		c.OK(unix.Rename(c.Q(b), c.Q(a)), "rename")
		c.OK(unix.Mkdir(c.P(b), 0o755), "mkdir")
		c.OK(unix.Rename(c.P(a), c.P(b+"/"+a)), "rename below")
		c.same(c.get(c.Q(b+"/"+a)), []byte("x"), "contents")
		c.OK(unix.Symlink(a, c.P(b+"/"+b)), "symlink")
		c.same(c.get(c.Q(b+"/"+b)), []byte("x"), "contents through the link")
		ents, err := listDir(c.Q(b))
		c.OK(err, "read")
		Eq(c, len(ents), 2, "entries")
	}},
	{Name: "names of all lengths", Fn: func(c *C) {
		for n := 1; n <= 255; n++ {
			c.OK(makeNode("file", c.P(strings.Repeat("z", n)), 0o644), "create a name of %d bytes", n)
		}
		ents, err := listDir(c.Q("."))
		c.OK(err, "read")
		Eq(c, len(ents), 255, "entries")
	}},
	{Name: "directories deeper than PATH_MAX", Fn: deepDirectories},
	{Name: "working in a directory that was renamed and removed", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		c.As(Cred{}, func() {
			c.OK(unix.Chdir(c.P("d")), "chdir")
			c.OK(unix.Rename(c.Q("d"), c.Q("e")), "rename")
			c.put("f", []byte("x"))
			c.same(c.get(c.Q("e/f")), []byte("x"), "contents")
			c.OK(unix.Unlink("f"), "unlink")
			c.OK(unix.Rmdir(c.P("e")), "rmdir")
			c.Want(unix.ENOENT, openClose("f", unix.O_RDWR|unix.O_CREAT), "create in a removed directory")
			c.Want(unix.ENOENT, unix.Mkdir("g", 0o755), "mkdir in a removed directory")
			c.Want(unix.ENOENT, unix.Symlink("x", "l"), "symlink in a removed directory")
		})
	}},
	{Name: "the at calls work relative to a descriptor", Fn: atCalls},
}}

// deepDirectories makes a tree whose full path is longer than any path may be.
func deepDirectories(c *C) {
	const levels = 30
	name := strings.Repeat("d", 200)
	fd := c.open(c.P("."), unix.O_RDONLY|unix.O_DIRECTORY)
	for i := range levels {
		c.OK(unix.Mkdirat(fd, name, 0o755), "mkdirat at level %d", i)
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		c.OK(err, "openat at level %d", i)
		c.Cleanup(func() { unix.Close(next) })
		fd = next
	}
	f, err := unix.Openat(fd, "file", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	c.OK(err, "create at the bottom")
	c.OK(writeAll(f, []byte("deep"), 0), "write at the bottom")
	unix.Close(f)
	_, err = readFile(c.P(strings.Repeat(name+"/", levels) + "file"))
	c.Want(unix.ENAMETOOLONG, err, "open of the whole path")
	c.OK(unix.Renameat(fd, "file", fd, "renamed"), "renameat at the bottom")
	c.OK(unix.Unlinkat(fd, "renamed", 0), "unlinkat at the bottom")
	c.OK(unix.Fstatat(fd, "..", &unix.Stat_t{}, 0), "stat of the parent")
}

func atCalls(c *C) {
	mustMkdir(c, "d", 0o755)
	fd := c.open(c.P("d"), unix.O_RDONLY|unix.O_DIRECTORY)
	file := c.open(c.P("plain"), unix.O_RDWR|unix.O_CREAT)
	c.OK(unix.Mkdirat(fd, "e", 0o755), "mkdirat")
	c.OK(unix.Mknodat(fd, "f", unix.S_IFREG|0o644, 0), "mknodat")
	c.OK(unix.Symlinkat("f", fd, "l"), "symlinkat")
	c.OK(unix.Linkat(fd, "f", fd, "e/g", 0), "linkat")
	c.OK(unix.Renameat(fd, "f", fd, "h"), "renameat")
	c.OK(unix.Fchmodat(fd, "h", 0o600, 0), "fchmodat")
	c.OK(unix.Fchownat(fd, "l", 7, 8, unix.AT_SYMLINK_NOFOLLOW), "fchownat")
	Eq(c, statOf(c, c.Q("d/e/g")).Mode&0o7777, 0o600, "mode")
	Eq(c, statOf(c, c.Q("d/l")).Uid, 7, "owner of the link")
	c.Want(unix.ENOTDIR, unix.Mkdirat(file, "x", 0o755), "mkdirat relative to a file")
	c.Want(unix.EBADF, unix.Mkdirat(9999, "x", 0o755), "mkdirat relative to nothing")
	c.Want(unix.EISDIR, unix.Unlinkat(fd, "e", 0), "unlinkat of a directory")
	c.Want(unix.ENOTDIR, unix.Unlinkat(fd, "h", unix.AT_REMOVEDIR), "unlinkat AT_REMOVEDIR of a file")
	c.Want(unix.ENOTEMPTY, unix.Unlinkat(fd, "e", unix.AT_REMOVEDIR), "unlinkat of a full directory")
	c.OK(unix.Unlinkat(fd, "e/g", 0), "unlinkat")
	c.OK(unix.Unlinkat(fd, "e", unix.AT_REMOVEDIR), "unlinkat AT_REMOVEDIR")
	var st unix.Stat_t
	c.OK(unix.Fstatat(file, "", &st, unix.AT_EMPTY_PATH), "fstatat of the descriptor itself")
	Eq(c, st.Ino, statOf(c, c.Q("plain")).Ino, "inode")
	c.OK(unix.Linkat(file, "", fd, "linked", unix.AT_EMPTY_PATH), "linkat of the descriptor itself")
	Eq(c, statOf(c, c.Q("d/linked")).Nlink, 2, "link count")
}
