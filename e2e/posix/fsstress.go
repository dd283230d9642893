package posix

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// fsstressGroup applies random operations to a tree: one process against a
// model, and many at once against the laws that hold in any order.
var fsstressGroup = Group{"fsstress", []Case{
	{Name: "against a model", Deadline: 300e9, Fn: func(c *C) { runModel(c, 5, c.Env.Ops) }},
	{Name: "against a model with few names", Deadline: 300e9, Fn: func(c *C) { runModel(c, 3, c.Env.Ops) }},
	{Name: "many at once leave a sound tree", Deadline: 300e9, Fn: stressTogether},
}}

// stressTogether lets six threads, half of them on each side, work in the same
// few names, and then checks the tree from both sides.
func stressTogether(c *C) {
	names := []string{"a", "b", "c", "d"}
	seed := c.rng().Int63()
	var writes atomic.Int64
	var fns []func()
	for w := range 6 {
		side := c.Sides()[w%2]
		r := newRand(seed + int64(w))
		path := func() string {
			p := side(names[r.Intn(len(names))])
			for range r.Intn(3) {
				p += "/" + names[r.Intn(len(names))]
			}
			return p
		}
		fns = append(fns, func() {
			for range c.Env.Ops / 3 {
				p := path()
				switch r.Intn(10) {
				case 0, 1:
					unix.Mkdir(p, 0o755)
				case 2:
					makeNode("file", p, 0o644)
				case 3:
					unix.Symlink("x", p)
				case 4:
					unix.Link(p, path())
				case 5:
					unix.Rename(p, path())
				case 6:
					unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, path(), unix.RENAME_EXCHANGE)
				case 7:
					unix.Unlink(p)
				case 8:
					unix.Rmdir(p)
				case 9:
					if withOpen(p, unix.O_WRONLY|unix.O_APPEND, func(fd int) error {
						_, err := unix.Write(fd, []byte("record\n"))
						return err
					}) == nil {
						writes.Add(1)
					}
				}
			}
		})
	}
	c.Go(fns...)
	a, b := c.census(c.P), c.census(c.Q)
	Eq(c, len(b.links), len(a.links), "inodes on both sides")
	for ino, n := range a.links {
		Eq(c, b.links[ino], n, "names of inode %d on the other side", ino)
	}
	if a.bytes > writes.Load()*7 || a.bytes%7 != 0 {
		c.Errorf("%d bytes of %d records of 7 bytes", a.bytes, writes.Load())
	}
}

type census struct {
	links map[uint64]int
	bytes int64
}

// census walks a tree and checks link counts, types and inode numbers.
func (c *C) census(side func(string) string) census {
	got := census{links: map[uint64]int{}}
	files := map[uint64]unix.Stat_t{}
	var walk func(dir string, parent uint64)
	walk = func(dir string, parent uint64) {
		self := statOf(c, side(dir))
		Eq(c, statOf(c, side(dir+"/..")).Ino, parent, "parent of %s", dir)
		ents, err := listDir(side(dir))
		c.OK(err, "read %s", dir)
		subdirs := 0
		seen := map[string]bool{}
		for _, e := range ents {
			p := dir + "/" + e.name
			if seen[e.name] {
				c.Errorf("%s is listed twice", p)
			}
			seen[e.name] = true
			st := statOf(c, side(p))
			Eq(c, e.ino, st.Ino, "d_ino of %s", p)
			Eq(c, uint32(e.typ)<<12, st.Mode&unix.S_IFMT, "d_type of %s", p)
			got.links[st.Ino]++
			files[st.Ino] = st
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				subdirs++
				walk(p, self.Ino)
			}
		}
		Eq(c, int(self.Nlink), 2+subdirs, "link count of %s", dir)
	}
	walk(".", statOf(c, side("..")).Ino)
	for ino, st := range files {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			Eq(c, got.links[ino], 1, "names of directory %d", ino)
			continue
		case unix.S_IFREG:
			got.bytes += st.Size
		}
		Eq(c, int(st.Nlink), got.links[ino], "link count of inode %d", ino)
	}
	return got
}

func (c *C) describe(st unix.Stat_t) string {
	return fmt.Sprintf("%s %04o %d:%d links %d size %d", typeName(st.Mode), st.Mode&0o7777, st.Uid, st.Gid, st.Nlink, st.Size)
}
