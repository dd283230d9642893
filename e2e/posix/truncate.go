package posix

import (
	"bytes"

	"golang.org/x/sys/unix"
)

var truncateGroup = Group{"truncate", Join(
	[]Case{
		Script("shrinks and grows with zeros", `
			create f 644
			write f 0123456789
			truncate f 4
			stat f size = 4
			read f = 0123
			truncate f 8
			read f = 0123....
			truncate f 0
			stat f size,blocks = 0 0
			read f = ""
		`),
		Script("data beyond the old end never returns", `
			h=open f O_RDWR|O_CREAT
			fwrite h secret-secret
			ftruncate h 6
			pwrite h x 12
			pread h 20 0 = secret......x
			ftruncate h 20
			pread h 20 6 = ......x.......
		`),
		Script("times move also when the size stays", `
			create f 644
			write f data
			mark f
			truncate f 2
			moved f = mc
			mark f
			truncate f 2
			moved f = mc
			mark f
			truncate f 9
			moved f = mc
			mark f
			1001:1001 truncate f 0 = EACCES
			moved f = -
		`),
		Script("ftruncate moves times", `
			h=open f O_RDWR|O_CREAT
			mark f
			ftruncate h 100
			moved f = mc
			mark f
			ftruncate h 100
			moved f = mc
		`),
		Script("negative length is EINVAL, the largest one no trouble", `
			create f 644
			truncate f -1 = EINVAL
			truncate f -9223372036854775808 = EINVAL
			truncate f 9223372036854775807 = success|EFBIG|EINVAL
			truncate f 0
			h=open f O_RDWR
			ftruncate h -1 = EINVAL
			stat f size = 0
		`),
		Script("of a directory is EISDIR", `
			mkdir d 755
			truncate d 0 = EISDIR
			h=open d O_RDONLY
			ftruncate h 0 = EINVAL|EBADF
		`),
		Script("needs write permission and not ownership", `
			create f 644
			chown f 1001 1001
			1002:1002 truncate f 0 = EACCES
			chmod f 646
			1002:1002 truncate f 10
			1001:1001 truncate f 20
			chmod f 466
			1001:1001 truncate f 0 = EACCES
			1002:1001 truncate f 30
			1002:1002:1001 truncate f 40
			stat f size = 40
		`),
		Script("read-only handle is EINVAL or EBADF", `
			create f 644
			h=open f O_RDONLY
			ftruncate h 5 = EINVAL|EBADF
			stat f size = 0
		`),
		Script("a handle that may write goes on after permission went", `
			create f 666
			1001:1001 h=open f O_RDWR
			chmod f 0
			1001:1001 ftruncate h 5
			stat f size = 5
			1001:1001 truncate f 0 = EACCES
		`),
		Script("follows a link", `
			create f 644
			symlink f l
			truncate l 7
			stat f size = 7
			lstat l size = 1
			symlink none m
			truncate m 1 = ENOENT
		`),
		Script("of an unlinked open file", `
			h=open f O_RDWR|O_CREAT
			unlink f
			ftruncate h 1000
			fstat h size,nlink = 1000 0
			lseek h 0 end = 1000
		`),
		Script("O_TRUNC on open", `
			create f 644
			write f data
			mark f
			open f O_WRONLY|O_TRUNC
			moved f = mc
			stat f size = 0
			write f data
			open f O_RDWR|O_CREAT|O_TRUNC 600
			stat f size,mode = 0 0644
			mark f
			open f O_RDWR|O_TRUNC
			moved f = mc
		`),
		{Name: "across block boundaries leaves no stale bytes", Fn: truncateBoundaries},
		{Name: "grows to terabytes without blocks", Fn: func(c *C) {
			c.OK(makeNode("file", c.P("f"), 0o644), "create")
			for _, size := range []int64{1 << 20, 1<<32 + 1, 1<<40 + 12345} {
				c.OK(unix.Truncate(c.P("f"), size), "truncate to %d", size)
				st := statOf(c, c.Q("f"))
				Eq(c, st.Size, size, "size")
				if st.Blocks > 16 {
					c.Errorf("a hole of %d bytes has %d blocks", size, st.Blocks)
				}
			}
			fd := c.open(c.Q("f"), unix.O_RDWR)
			c.OK(writeAll(fd, []byte("far"), 1<<40), "write far out")
			buf := make([]byte, 5)
			_, err := unix.Pread(fd, buf, 1<<40-1)
			c.OK(err, "read far out")
			c.same(buf, []byte("\x00far\x00"), "bytes far out")
		}},
	},
	Each("is EINVAL on a", "fifo sock chr", `
		make $K n 666
		truncate n 0 = EINVAL
	`),
)}

func truncateBoundaries(c *C) {
	edges := []int64{1, 511, 512, 513, 4095, 4096, 4097, 8191, 8192, 8193, 65535, 65536, 65537, 131071, 131073}
	full := bytes.Repeat([]byte{0xab}, 140_000)
	for i, edge := range edges {
		p := num2("f", i)
		c.put(c.P(p), full)
		c.OK(unix.Truncate(c.Q(p), edge), "truncate to %d", edge)
		c.OK(unix.Truncate(c.P(p), 140_000), "grow from %d", edge)
		want := append(append([]byte(nil), full[:edge]...), make([]byte, 140_000-edge)...)
		c.same(c.get(c.Q(p)), want, "after cutting at an edge and growing")
	}
}
