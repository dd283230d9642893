package posix

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// xattrLife is what every namespace has to do; $X is a name without its end.
const xattrLife = `
	make $K n 644
	lsx n = ""
	getx n $X.a = ENODATA
	setx n $X.a one
	getx n $X.a = one
	setx n $X.b ""
	getx n $X.b = ""
	getx n $X.b 0 = 0
	lsx n = $X.a $X.b
	setx n $X.a two create = EEXIST
	getx n $X.a = one
	setx n $X.a two replace
	getx n $X.a = two
	setx n $X.c x replace = ENODATA
	setx n $X.c x create
	setx n $X.c y both = EEXIST|ENODATA
	setx n $X.c y unknown = EINVAL
	getx n $X.a 0 = 3
	getx n $X.a 2 = ERANGE
	getx n $X.a 3 = two
	rmx n $X.b
	rmx n $X.b = ENODATA
	getx n $X.b = ENODATA
	lsx n = $X.a $X.c
	lsx n 1 = ERANGE
	setx n $X.a "\x00\xff\n=" replace
	getx n $X.a = "\x00\xff\n="
	rmx n $X.a
	rmx n $X.c
	lsx n = ""
`

func xattrCases() []Case {
	text := func(ns string) string { return strings.ReplaceAll(xattrLife, "$X", ns) }
	return Join(
		Each("user on a", "file dir", text("user")),
		Each("trusted on a", Kinds, text("trusted"), CapTrusted),
		Each("security on a", "file dir symlink fifo", text("security"), CapSecurity),
		Each("user is refused on a", "fifo sock chr blk symlink", `
			make $K n 644
			setx n user.a v = EPERM
			getx n user.a = ENODATA|EPERM
			lsx n = ""
		`),
		Each("times: ctime only, on a", "file dir", `
			make $K n 644
			mark n
			setx n user.a v
			moved n = c
			mark n
			getx n user.a = v
			lsx n = user.a
			moved n = -
			mark n
			setx n user.a v create = EEXIST
			rmx n user.none = ENODATA
			moved n = -
			rmx n user.a
			moved n = c
		`),
	)
}

var xattrGroup = Group{"xattr", Join(
	xattrCases(),
	[]Case{
		Script("bad names and unknown namespaces", `
			create f 644
			setx f user. v = EINVAL
			setx f noprefix v = EOPNOTSUPP
			setx f other.a v = EOPNOTSUPP
			setx f "" v = ERANGE|EINVAL
			getx f other.a = EOPNOTSUPP
			rmx f other.a = EOPNOTSUPP
			setx f user.{n250} v
			getx f user.{n250} = v
			setx f user.{n251} v = ERANGE
			getx f user.{n251} = ERANGE
			setx none user.a v = ENOENT
			getx none user.a = ENOENT
			lsx none = ENOENT
			rmx none user.a = ENOENT
		`),
		Script("names are bytes", `
			create f 644
			setx f "user.\x01\xff\xfe ä=" "v\x00w"
			getx f "user.\x01\xff\xfe ä=" = "v\x00w"
			lsx f = "user.\x01\xff\xfe ä="
			setx f user.A upper
			setx f user.a lower
			getx f user.A = upper
			setx f user.user.a nested
			rmx f user.a
			getx f user.user.a = nested
		`),
		Script("permission: user needs read or write on the file", `
			create f 644
			setx f user.a v
			1001:1001 getx f user.a = v
			1001:1001 setx f user.a w = EACCES
			1001:1001 rmx f user.a = EACCES
			chmod f 622
			1001:1001 getx f user.a = EACCES
			1001:1001 setx f user.a w
			1001:1001 lsx f = user.a
			getx f user.a = w
			chmod f 604
			1001:1001 getx f user.a = w
		`),
		Script("permission: trusted is root's alone and hidden", `
			create f 666
			setx f trusted.a v
			1001:1001 getx f trusted.a = ENODATA
			1001:1001 setx f trusted.a w = EPERM
			1001:1001 rmx f trusted.a = EPERM
			1001:1001 lsx f = success
			getx f trusted.a = v
		`, CapTrusted),
		Script("permission: security is read by all and written by root", `
			create f 666
			setx f security.a v
			1001:1001 getx f security.a = v
			1001:1001 setx f security.a w = EPERM
			getx f security.a = v
		`, CapSecurity),
		Script("user on a sticky directory is for its owner", `
			mkdir d 777
			chmod d 1777
			1001:1001 setx d user.a v = EPERM
			setx d user.a v
			1001:1001 getx d user.a = v
		`),
		Script("follow the inode through link and rename", `
			create a 644
			setx a user.k v
			link a b
			getx b user.k = v
			setx b user.k w
			getx a user.k = w
			rename a c
			getx c user.k = w
			unlink b
			getx c user.k = w
			create d 644
			setx d user.k other
			rename c d
			getx d user.k = w
			create c 644
			lsx c = ""
		`),
		Script("exchange swaps them with the inodes", `
			create a 644
			setx a user.who a
			mkdir b 755
			setx b user.who b
			rename a b exchange
			getx a user.who = b
			getx b user.who = a
		`),
		Script("not copied by truncate or overwrite, kept by them", `
			create f 644
			setx f user.k v
			write f data
			truncate f 0
			open f O_RDWR|O_TRUNC
			getx f user.k = v
			chmod f 600
			chown f 1 1
			getx f user.k = v
		`),
		Script("security.capability goes when the file is written", `
			create f 755
			setx f security.capability "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
			getx f security.capability 0 = 20
			write f data
			getx f security.capability = ENODATA
		`, CapSecurity),
		{Name: "values of many sizes", Fn: func(c *C) {
			c.put(c.P("f"), nil)
			r := c.rng()
			for _, n := range []int{0, 1, 100, 255, 256, 1000, 2000, 3000} {
				want := noise(r, n)
				c.OK(unix.Setxattr(c.P("f"), "user.v", want, 0), "set %d bytes", n)
				checkXattr(c, c.Q("f"), "user.v", want)
			}
		}},
		{Name: "values of 64 KiB", Needs: []Cap{CapBigXattr}, Fn: func(c *C) {
			c.put(c.P("f"), nil)
			r := c.rng()
			for _, n := range []int{4096, 10_000, 65_535, 65_536} {
				want := noise(r, n)
				c.OK(unix.Setxattr(c.P("f"), "user.v", want, 0), "set %d bytes", n)
				checkXattr(c, c.Q("f"), "user.v", want)
			}
		}},
		{Name: "values over 64 KiB are E2BIG", Fn: func(c *C) {
			c.put(c.P("f"), nil)
			c.Want(unix.E2BIG, unix.Setxattr(c.P("f"), "user.v", make([]byte, 65_537), 0), "set 65537 bytes")
			_, err := unix.Getxattr(c.P("f"), "user.v", make([]byte, 10))
			c.Want(unix.ENODATA, err, "get")
		}},
		{Name: "a refused value leaves the old one", Fn: func(c *C) {
			c.put(c.P("f"), nil)
			c.OK(unix.Setxattr(c.P("f"), "user.v", []byte("old"), 0), "set")
			err := unix.Setxattr(c.P("f"), "user.v", make([]byte, 60_000), 0)
			c.WantIn(err, []unix.Errno{0, unix.ENOSPC, unix.E2BIG}, "set 60000 bytes")
			if err != nil {
				checkXattr(c, c.Q("f"), "user.v", []byte("old"))
			}
		}},
		{Name: "many names", Fn: func(c *C) {
			c.put(c.P("f"), nil)
			for i := range 60 {
				c.OK(unix.Setxattr(c.P("f"), fmt.Sprintf("user.%03d", i), []byte(num2("v", i)), 0), "set %d", i)
			}
			buf := make([]byte, 10_000)
			n, err := unix.Listxattr(c.Q("f"), buf)
			c.OK(err, "list")
			Eq(c, strings.Count(string(buf[:n]), "user."), 60, "names listed")
			size, err := unix.Listxattr(c.Q("f"), nil)
			c.OK(err, "size of the list")
			Eq(c, size, n, "size of the list")
			for i := range 60 {
				checkXattr(c, c.Q("f"), fmt.Sprintf("user.%03d", i), []byte(num2("v", i)))
			}
		}},
		{Name: "by descriptor, also once unlinked", Fn: func(c *C) {
			fd := c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT)
			c.OK(unix.Fsetxattr(fd, "user.k", []byte("v"), 0), "fsetxattr")
			checkXattr(c, c.Q("f"), "user.k", []byte("v"))
			c.OK(unix.Unlink(c.P("f")), "unlink")
			c.OK(unix.Fsetxattr(fd, "user.k", []byte("w"), unix.XATTR_REPLACE), "fsetxattr once unlinked")
			buf := make([]byte, 10)
			n, err := unix.Fgetxattr(fd, "user.k", buf)
			c.OK(err, "fgetxattr")
			Eq(c, string(buf[:n]), "w", "value")
			c.OK(unix.Fremovexattr(fd, "user.k"), "fremovexattr")
			n, err = unix.Flistxattr(fd, buf)
			c.OK(err, "flistxattr")
			Eq(c, n, 0, "list")
		}},
		{Name: "POSIX ACLs work or are EOPNOTSUPP", Fn: posixACL},
	},
)}

func checkXattr(c *C, path, name string, want []byte) {
	buf := make([]byte, 70_000)
	n, err := unix.Getxattr(path, name, buf)
	c.OK(err, "get %s", name)
	c.same(buf[:n], want, name)
}

// posixACL sets an ACL that gives user 1001 read; either it does so, or it is
// refused as unsupported.
func posixACL(c *C) {
	c.put(c.P("f"), []byte("secret"))
	c.OK(unix.Chmod(c.P("f"), 0o600), "chmod")
	acl := "\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\xe9\x03\x00\x00" +
		"\x04\x00\x00\x00\xff\xff\xff\xff" + "\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff"
	err := unix.Setxattr(c.P("f"), "system.posix_acl_access", []byte(acl), 0)
	c.WantIn(err, []unix.Errno{0, unix.EOPNOTSUPP}, "set an ACL")
	read := c.As1(Cred{UID: 1001, GID: 1001}, func() error { return openClose(c.Q("f"), unix.O_RDONLY) })
	if err == nil {
		c.OK(read, "read by the user whom the ACL names")
	} else {
		c.Want(unix.EACCES, read, "read without an ACL")
		_, err = unix.Getxattr(c.P("f"), "system.posix_acl_access", make([]byte, 100))
		c.WantIn(err, []unix.Errno{unix.EOPNOTSUPP, unix.ENODATA}, "get an ACL")
	}
}
