package posix

import "golang.org/x/sys/unix"

var statfsGroup = Group{"statfs", []Case{
	{Name: "the fields make sense", Fn: func(c *C) {
		for _, path := range c.Sides() {
			st := statfsOf(c, path("."))
			if st.Bsize <= 0 || st.Frsize <= 0 || st.Blocks == 0 {
				c.Errorf("block size %d, fragment size %d, blocks %d", st.Bsize, st.Frsize, st.Blocks)
			}
			if st.Bavail > st.Bfree || st.Bfree > st.Blocks {
				c.Errorf("available %d, free %d, all %d blocks", st.Bavail, st.Bfree, st.Blocks)
			}
			if st.Files > 0 && st.Ffree > st.Files {
				c.Errorf("free %d of %d inodes", st.Ffree, st.Files)
			}
			Eq(c, st.Namelen, 255, "longest name")
		}
	}},
	{Name: "any path, link or open file gives the same filesystem", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		c.put(c.P("d/f"), nil)
		c.OK(unix.Symlink("d/f", c.P("l")), "symlink")
		want := statfsOf(c, c.P("."))
		for _, p := range []string{"d", "d/f", "l"} {
			got := statfsOf(c, c.Q(p))
			Eq(c, got.Type, want.Type, "type of %s", p)
			Eq(c, got.Bsize, want.Bsize, "block size of %s", p)
			Eq(c, got.Namelen, want.Namelen, "name length of %s", p)
		}
		var st unix.Statfs_t
		c.OK(unix.Fstatfs(c.open(c.Q("d/f"), unix.O_RDONLY), &st), "fstatfs")
		Eq(c, st.Type, want.Type, "type by descriptor")
		c.Want(unix.ENOENT, unix.Statfs(c.P("none"), &st), "statfs of a missing name")
	}},
	{Name: "allocating a lot makes free space smaller", Fn: func(c *C) {
		const size = 64 << 20
		before := statfsOf(c, c.Q("."))
		fd := c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT)
		err := unix.Fallocate(fd, 0, 0, size)
		c.WantIn(err, []unix.Errno{0, unix.ENOSPC}, "fallocate 64 MiB")
		if err != nil {
			return
		}
		// Other cases use and free space meanwhile: ask several times for half of it.
		ok := eventually(5e9, func() bool {
			now := statfsOf(c, c.Q("."))
			return (int64(before.Bfree)-int64(now.Bfree))*now.Frsize >= size/2
		})
		if !ok {
			c.Errorf("free space did not go down after allocating %d bytes", size)
		}
	}},
	{Name: "statvfs of the whole is the same on both sides", Fn: func(c *C) {
		a, b := statfsOf(c, c.P(".")), statfsOf(c, c.Q("."))
		Eq(c, a.Blocks, b.Blocks, "blocks")
		Eq(c, a.Bsize, b.Bsize, "block size")
	}},
}}

func statfsOf(c *C, path string) unix.Statfs_t {
	var st unix.Statfs_t
	c.OK(unix.Statfs(path, &st), "statfs %s", path)
	return st
}
