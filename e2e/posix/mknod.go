package posix

import (
	"strings"

	"golang.org/x/sys/unix"
)

var mkfifoGroup = Group{"mkfifo", Join(
	newNodeCases("mkfifo", "mkfifo", "644", "fifo", "1"),
	[]Case{
		Script("mode and umask", strings.ReplaceAll(modeAndUmask, "$C", "mkfifo")),
		{Name: "carries data between two opens", Fn: func(c *C) {
			c.OK(unix.Mkfifo(c.P("p"), 0o600), "mkfifo")
			fd := c.open(c.P("p"), unix.O_RDWR|unix.O_NONBLOCK)
			_, err := unix.Write(fd, []byte("through"))
			c.OK(err, "write")
			r := c.open(c.P("p"), unix.O_RDONLY|unix.O_NONBLOCK)
			buf := make([]byte, 32)
			n, err := unix.Read(r, buf)
			c.OK(err, "read")
			Eq(c, string(buf[:n]), "through", "data of the fifo")
		}},
		Script("writer without reader is ENXIO", `
			mkfifo p 644
			open p O_WRONLY|O_NONBLOCK = ENXIO
			open p O_RDONLY|O_NONBLOCK
		`),
	},
)}

// $C makes a node with the mode that follows its path.
const modeAndUmask = `
	$C a 755
	stat a mode = 0755
	$C b 151
	stat b mode = 0151
	umask=077 $C c 151
	stat c mode = 0100
	umask=070 $C d 345
	stat d mode = 0305
	umask=501 $C e 345
	stat e mode = 0244
	$C f 7777
	stat f mode = 7777
	umask=022 $C g 666
	stat g mode = 0644
`

var mknodGroup = Group{"mknod", Join(
	newNodeCases("fifo", "mknod fifo", "644", "fifo", "1"),
	newNodeCases("socket", "mknod sock", "644", "sock", "1"),
	newNodeCases("regular file", "mknod file", "644", "file", "1"),
	Each("mode and umask of", "fifo sock file chr blk", strings.ReplaceAll(modeAndUmask, "$C", "mknod $K")),
	Each("device numbers of", "chr blk", `
		mknod $K a 644 1 2
		stat a type,mode,rdev,size = $K 0644 1:2 0
		mknod $K b 600 255 255
		stat b rdev = 255:255
		mknod $K c 600 4095 1048575
		stat c rdev = 4095:1048575
		mknod $K d 600 0 256
		stat d rdev = 0:256
		mknod $K e 600 256 0
		stat e rdev = 256:0
		link c f
		stat f rdev,nlink = 4095:1048575 2
		rename c g
		stat g rdev = 4095:1048575
		mknod $K a 644 3 4 = EEXIST
		stat a rdev = 1:2
	`),
	Each("needs privilege for", "chr blk", `
		mkdir d 777
		1001:1001 mknod $K d/n 644 1 2 = EPERM
		ls d = ""
	`),
	Each("needs no privilege for", "fifo sock file", `
		mkdir d 777
		1001:1001 mknod $K d/n 644
		lstat d/n type,uid = $K 1001
	`),
	Each("over an existing", Kinds, `
		make $K n 644
		mknod fifo n 644 = EEXIST
		mknod chr n 644 1 2 = EEXIST
		lstat n type = $K
	`),
	[]Case{
		Script("of a directory is EPERM", `
			mknod dir d 755 = EPERM
			lstat d = ENOENT
		`),
		{Name: "a bound socket accepts a connection", Fn: boundSocket},
		Script("reading and writing a socket file is ENXIO", `
			mknod sock s 666
			open s O_RDONLY = ENXIO
			open s O_RDWR = ENXIO
		`),
	},
)}

// boundSocket uses a short relative name, since socket addresses hold 108 bytes.
func boundSocket(c *C) {
	dir := c.open(c.P("."), unix.O_RDONLY|unix.O_DIRECTORY)
	c.As(Cred{}, func() {
		c.OK(unix.Fchdir(dir), "fchdir")
		l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		c.OK(err, "socket")
		defer unix.Close(l)
		c.OK(unix.Bind(l, &unix.SockaddrUnix{Name: "s"}), "bind")
		c.Want(unix.EADDRINUSE, unix.Bind(l2(c), &unix.SockaddrUnix{Name: "s"}), "second bind")
		c.OK(unix.Listen(l, 1), "listen")
		Eq(c, typeName(statOf(c, c.P("s")).Mode), "sock", "type")
		d := l2(c)
		c.OK(unix.Connect(d, &unix.SockaddrUnix{Name: "s"}), "connect")
		c.OK(unix.Unlink("s"), "unlink")
		c.Want(unix.ENOENT, unix.Connect(l2(c), &unix.SockaddrUnix{Name: "s"}), "connect to an unlinked socket")
	})
}

func l2(c *C) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	c.OK(err, "socket")
	c.Cleanup(func() { unix.Close(fd) })
	return fd
}
