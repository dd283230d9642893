package posix

import (
	"strings"

	"golang.org/x/sys/unix"
)

// pathCall is a system call that takes a path.
type pathCall struct {
	name string
	call func(c *C, path string) error
	// makes: it creates the last component; needs no existing target.
	makes bool
	// follows: it resolves a symlink in the last component.
	follows bool
	// writes: it needs write permission on the parent directory.
	writes bool
}

var pathCalls = []pathCall{
	{name: "stat", follows: true, call: func(c *C, p string) error { var st unix.Stat_t; return unix.Stat(p, &st) }},
	{name: "lstat", call: func(c *C, p string) error { var st unix.Stat_t; return unix.Lstat(p, &st) }},
	{name: "statx", follows: true, call: func(c *C, p string) error {
		var st unix.Statx_t
		return unix.Statx(unix.AT_FDCWD, p, 0, unix.STATX_ALL, &st)
	}},
	{name: "access", follows: true, call: func(c *C, p string) error { return unix.Access(p, unix.F_OK) }},
	{name: "open", follows: true, call: func(c *C, p string) error { return openClose(p, unix.O_RDONLY) }},
	{name: "open O_CREAT", follows: true, makes: true, writes: true, call: func(c *C, p string) error { return openClose(p, unix.O_RDWR|unix.O_CREAT) }},
	{name: "open O_EXCL", makes: true, writes: true, call: func(c *C, p string) error { return openClose(p, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL) }},
	{name: "open O_PATH", follows: true, call: func(c *C, p string) error { return openClose(p, unix.O_PATH) }},
	{name: "mkdir", makes: true, writes: true, call: func(c *C, p string) error { return unix.Mkdir(p, 0o755) }},
	{name: "mkfifo", makes: true, writes: true, call: func(c *C, p string) error { return unix.Mkfifo(p, 0o644) }},
	{name: "mknod", makes: true, writes: true, call: func(c *C, p string) error { return unix.Mknod(p, unix.S_IFREG|0o644, 0) }},
	{name: "symlink", makes: true, writes: true, call: func(c *C, p string) error { return unix.Symlink("x", p) }},
	{name: "link from", call: func(c *C, p string) error { return unix.Link(p, c.beside(p, "open/linked")) }},
	{name: "link to", makes: true, writes: true, call: func(c *C, p string) error { return unix.Link(c.beside(p, "open/source"), p) }},
	{name: "rename from", writes: true, call: func(c *C, p string) error { return unix.Rename(p, c.beside(p, "open/renamed")) }},
	{name: "rename to", makes: true, writes: true, call: func(c *C, p string) error { return unix.Rename(c.beside(p, "open/source"), p) }},
	{name: "exchange", writes: true, call: func(c *C, p string) error {
		return unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, c.beside(p, "open/source"), unix.RENAME_EXCHANGE)
	}},
	{name: "unlink", writes: true, call: func(c *C, p string) error { return unix.Unlink(p) }},
	{name: "rmdir", writes: true, call: func(c *C, p string) error { return unix.Rmdir(p) }},
	{name: "readlink", call: func(c *C, p string) error { _, err := unix.Readlink(p, make([]byte, 100)); return err }},
	{name: "chmod", follows: true, call: func(c *C, p string) error { return unix.Chmod(p, 0o644) }},
	{name: "chown", follows: true, call: func(c *C, p string) error { return unix.Chown(p, 1001, 1001) }},
	{name: "lchown", call: func(c *C, p string) error { return unix.Lchown(p, 1001, 1001) }},
	{name: "truncate", follows: true, call: func(c *C, p string) error { return unix.Truncate(p, 0) }},
	{name: "utimensat", follows: true, call: func(c *C, p string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Sec: 1}, {Sec: 2}}, 0)
	}},
	{name: "utimensat nofollow", call: func(c *C, p string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Sec: 1}, {Sec: 2}}, unix.AT_SYMLINK_NOFOLLOW)
	}},
	{name: "statfs", follows: true, call: func(c *C, p string) error { var st unix.Statfs_t; return unix.Statfs(p, &st) }},
	{name: "setxattr", follows: true, call: func(c *C, p string) error { return unix.Setxattr(p, "user.x", []byte("v"), 0) }},
	{name: "getxattr", follows: true, call: func(c *C, p string) error {
		_, err := unix.Getxattr(p, "user.none", nil)
		if err == unix.ENODATA {
			err = nil
		}
		return err
	}},
	{name: "listxattr", follows: true, call: func(c *C, p string) error { _, err := unix.Listxattr(p, nil); return err }},
	{name: "removexattr", follows: true, call: func(c *C, p string) error {
		err := unix.Removexattr(p, "user.none")
		if err == unix.ENODATA {
			err = nil
		}
		return err
	}},
	{name: "chdir", follows: true, call: func(c *C, p string) error {
		groups, err := unix.Getgroups() // those of this very thread
		c.OK(err, "getgroups")
		who := Cred{UID: unix.Geteuid(), GID: unix.Getegid(), Groups: groups}
		return c.As1(who, func() error { return unix.Chdir(p) })
	}},
}

// beside is the path of name on the side that another path is on: the two
// sides are different mounts.
func (c *C) beside(path, name string) string {
	if strings.HasPrefix(path, c.peer+"/") {
		return c.Q(name)
	}
	return c.P(name)
}

func openClose(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// pathClass is one way in which a path can be wrong or special, checked with
// every call.
type pathClass struct {
	name string
	test func(c *C, pc pathCall)
}

var pathClasses = []pathClass{
	{"through something that is no directory", func(c *C, pc pathCall) {
		for _, kind := range strings.Fields(PlainKinds) {
			c.OK(makeNode(kind, c.P("open/"+kind), 0o666), "make %s", kind)
			for _, p := range []string{"/x", "/.", "/..", "/../source"} {
				c.Want(unix.ENOTDIR, pc.call(c, c.Q("open/"+kind+p)), "%s below a %s%s", pc.name, kind, p)
			}
		}
	}},
	{"through a missing directory", func(c *C, pc pathCall) {
		c.OK(unix.Symlink("none", c.P("open/dangling")), "symlink")
		for _, p := range []string{"none/x", "none/..", "open/none/x", "open/dangling/x"} {
			c.Want(unix.ENOENT, pc.call(c, c.Q(p)), "%s %s", pc.name, p)
		}
		c.Want(unix.ENOENT, pc.call(c, ""), "%s of the empty path", pc.name)
	}},
	{"a missing name", func(c *C, pc pathCall) {
		if pc.makes {
			c.OK(pc.call(c, c.P("open/none")), "%s of a new name", pc.name)
			return
		}
		c.Want(unix.ENOENT, pc.call(c, c.P("none")), "%s of a missing name", pc.name)
		c.Want(unix.ENOENT, pc.call(c, c.Q("open/none")), "%s of a missing name", pc.name)
		c.OK(unix.Symlink("nowhere", c.P("open/dangling")), "symlink")
		if pc.follows {
			c.Want(unix.ENOENT, pc.call(c, c.Q("open/dangling")), "%s of a dangling link", pc.name)
		}
	}},
	{"loops", func(c *C, pc pathCall) {
		c.OK(unix.Symlink("b", c.P("open/a")), "symlink")
		c.OK(unix.Symlink("a", c.P("open/b")), "symlink")
		c.Want(unix.ELOOP, pc.call(c, c.Q("open/a/x")), "%s through a loop", pc.name)
		if pc.follows {
			c.Want(unix.ELOOP, pc.call(c, c.Q("open/b")), "%s of a loop", pc.name)
		}
	}},
	{"names of 255 and 256 bytes", func(c *C, pc pathCall) {
		n255, n256 := strings.Repeat("x", 255), strings.Repeat("x", 256)
		c.Want(unix.ENAMETOOLONG, pc.call(c, c.P("open/"+n256)), "%s of a name of 256 bytes", pc.name)
		c.Want(unix.ENAMETOOLONG, pc.call(c, c.P("open/"+n256+"/x")), "%s below a name of 256 bytes", pc.name)
		if !pc.makes {
			c.OK(target(c, pc, "open/"+n255), "make")
		}
		c.OK(pc.call(c, c.Q("open/"+n255)), "%s of a name of 255 bytes", pc.name)
	}},
	{"paths of 4095 and 4096 bytes", func(c *C, pc pathCall) {
		long := func(n int) string {
			p := c.P("open/")
			if (n-len(p))%2 == 0 {
				p += "/"
			}
			return p + strings.Repeat("./", (n-len(p))/2) + "y"
		}
		if !pc.makes {
			c.OK(target(c, pc, "open/y"), "make")
		}
		c.Want(unix.ENAMETOOLONG, pc.call(c, long(4096)), "%s of a path of 4096 bytes", pc.name)
		c.Want(unix.ENAMETOOLONG, pc.call(c, long(5000)), "%s of a path of 5000 bytes", pc.name)
		c.OK(pc.call(c, long(4095)), "%s of a path of 4095 bytes", pc.name)
	}},
	{"without search permission", func(c *C, pc pathCall) {
		c.OK(unix.Mkdir(c.P("shut"), 0o666), "mkdir")
		c.OK(unix.Mkdir(c.P("shut/in"), 0o777), "mkdir")
		for _, p := range []string{"shut/x", "shut/in/x"} {
			if !pc.makes {
				c.OK(target(c, pc, p), "make")
			}
			err := c.As1(Cred{UID: 1001, GID: 1001}, func() error { return pc.call(c, c.Q(p)) })
			c.Want(unix.EACCES, err, "%s of %s by another user", pc.name, p)
		}
		c.OK(unix.Chmod(c.P("shut"), 0o070), "chmod")
		c.OK(unix.Chown(c.P("shut"), 0, 2001), "chown")
		member := Cred{UID: 1001, GID: 1001, Groups: []int{5, 2001}}
		if err := c.As1(member, func() error { return pc.call(c, c.Q("shut/in/x")) }); Errno(err) == unix.EACCES {
			c.Errorf("%s by a member of the directory's group: EACCES", pc.name)
		}
	}},
	{"without write permission on the directory", func(c *C, pc pathCall) {
		if !pc.writes {
			return
		}
		c.OK(unix.Mkdir(c.P("ro"), 0o755), "mkdir")
		if !pc.makes {
			c.OK(target(c, pc, "ro/x"), "make")
		}
		before := statOf(c, c.P("ro"))
		err := c.As1(Cred{UID: 1001, GID: 1001}, func() error { return pc.call(c, c.Q("ro/x")) })
		c.Want(unix.EACCES, err, "%s in another's directory", pc.name)
		Eq(c, statOf(c, c.P("ro")).Mtim, before.Mtim, "mtime of the directory")
	}},
	{"through links, dots and double slashes", func(c *C, pc pathCall) {
		c.OK(unix.Symlink("open", c.P("l1")), "symlink")
		c.OK(unix.Symlink(c.Q("l1"), c.P("l2")), "symlink")
		if !pc.makes {
			c.OK(target(c, pc, "open/y"), "make")
		}
		c.OK(pc.call(c, c.Q("l2/.//../open/./y")), "%s through links", pc.name)
	}},
}

// target makes what a call that needs an existing target can work on.
func target(c *C, pc pathCall, name string) error {
	kind := "file"
	switch pc.name {
	case "rmdir", "chdir":
		kind = "dir"
	case "readlink":
		kind = "symlink"
	}
	if err := makeNode(kind, c.P(name), 0o666); err != nil || kind == "symlink" {
		return err
	}
	return unix.Chmod(c.P(name), 0o777)
}

// pathsGroup is every call with every class of path.
var pathsGroup = Group{"paths", pathCases()}

func pathCases() (cases []Case) {
	for _, pc := range pathCalls {
		for _, class := range pathClasses {
			cases = append(cases, Case{Name: pc.name + " " + class.name, Fn: func(c *C) {
				c.OK(unix.Mkdir(c.P("open"), 0o777), "mkdir")
				c.OK(makeNode("file", c.P("open/source"), 0o666), "create")
				c.OK(unix.Chmod(c.P("open/source"), 0o666), "chmod")
				class.test(c, pc)
			}})
		}
	}
	return cases
}
