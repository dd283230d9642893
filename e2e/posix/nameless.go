package posix

import (
	"time"

	"golang.org/x/sys/unix"
)

// nameless is for inodes that lose their name while somebody refers to them
// otherwise than by an open file of the filesystem: as a working directory, as a
// fifo, through O_PATH. They stay what they are.
var nameless = Case{Name: "fifos, working directories and O_PATH handles outlive the name", Fn: func(c *C) {
	c.OK(unix.Mkfifo(c.P("fifo"), 0o600), "mkfifo")
	c.put(c.P("file"), []byte("text"))
	c.OK(unix.Symlink("x", c.P("link")), "symlink")
	mustMkdir(c, "dir", 0o755)
	mustMkdir(c, "cwd", 0o755)
	c.put(c.P("other"), nil)
	handles := map[string]int{
		"fifo": c.open(c.P("fifo"), unix.O_RDWR|unix.O_NONBLOCK),
		"file": c.open(c.P("file"), unix.O_PATH),
		"link": c.open(c.P("link"), unix.O_PATH|unix.O_NOFOLLOW),
		"dir":  c.open(c.P("dir"), unix.O_PATH),
	}
	c.As(Cred{}, func() {
		c.OK(unix.Chdir(c.P("cwd")), "chdir")
		c.OK(unix.Unlink(c.P("fifo")), "unlink")
		c.OK(unix.Unlink(c.P("link")), "unlink")
		c.OK(unix.Rename(c.P("other"), c.P("file")), "rename over the file")
		c.OK(unix.Rmdir(c.P("dir")), "rmdir")
		c.OK(unix.Rmdir(c.P("cwd")), "rmdir")
		time.Sleep(2500 * time.Millisecond) // a filesystem may collect what it takes for unused
		for name, fd := range handles {
			var st unix.Stat_t
			c.OK(unix.Fstat(fd, &st), "fstat of the %s", name)
			Eq(c, st.Nlink, 0, "link count of the %s", name)
		}
		var st unix.Stat_t
		c.OK(unix.Stat(".", &st), "stat of the working directory")
		Eq(c, st.Nlink, 0, "link count of the working directory")
		c.Want(unix.ENOENT, makeNode("file", "new", 0o644), "create in the working directory")
		_, err := unix.Write(handles["fifo"], []byte("through"))
		c.OK(err, "write to the fifo")
	})
}}
