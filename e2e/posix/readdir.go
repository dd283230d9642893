package posix

import (
	"fmt"
	"math/rand"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var readdirGroup = Group{"readdir", []Case{
	{Name: "dot and dot-dot are there and lead home", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		mustMkdir(c, "d/e", 0o755)
		for _, p := range []string{"d", "d/e"} {
			ents, err := readDir(c.open(c.Q(p), unix.O_RDONLY|unix.O_DIRECTORY))
			c.OK(err, "read %s", p)
			seen := map[string]int{}
			for _, e := range ents {
				seen[e.name]++
			}
			Eq(c, seen["."], 1, "dots in %s", p)
			Eq(c, seen[".."], 1, "dot-dots in %s", p)
		}
		Eq(c, statOf(c, c.Q("d/e/.")).Ino, statOf(c, c.P("d/e")).Ino, "inode of d/e/.")
		Eq(c, statOf(c, c.Q("d/e/..")).Ino, statOf(c, c.P("d")).Ino, "inode of d/e/..")
	}},
	{Name: "types and inode numbers agree with lstat", Fn: func(c *C) {
		kinds := strings.Fields(Kinds)
		for _, k := range kinds {
			c.OK(makeNode(k, c.P(k), 0o644), "make %s", k)
		}
		dtypes := map[string]byte{"file": unix.DT_REG, "dir": unix.DT_DIR, "fifo": unix.DT_FIFO, "sock": unix.DT_SOCK,
			"chr": unix.DT_CHR, "blk": unix.DT_BLK, "symlink": unix.DT_LNK}
		ents, err := listDir(c.Q("."))
		c.OK(err, "read")
		Eq(c, len(ents), len(kinds), "entries")
		for _, e := range ents {
			Eq(c, e.typ, dtypes[e.name], "d_type of %s", e.name)
			Eq(c, e.ino, statOf(c, c.P(e.name)).Ino, "d_ino of %s", e.name)
		}
	}},
	{Name: "inode numbers differ between files", Fn: func(c *C) {
		seen := map[uint64]string{}
		for i := range 500 {
			p := num2("f", i)
			c.put(c.P(p), nil)
			ino := statOf(c, c.Q(p)).Ino
			if other, dup := seen[ino]; dup {
				c.Fatalf("%s and %s have inode %d", p, other, ino)
			}
			seen[ino] = p
		}
	}},
	{Name: "a big directory", Deadline: 3600e9, Fn: bigDirectory},
	{Name: "small buffers see everything too", Fn: func(c *C) { manyEntries(c, 500, 300) }},
	{Name: "long names of any bytes come back exactly", Fn: func(c *C) {
		r := c.rng()
		want := map[string]bool{}
		for range 300 {
			name := randomName(r, 1+r.Intn(255))
			if !want[name] {
				c.OK(makeNode("file", c.P(name), 0o644), "create %q", name)
				want[name] = true
			}
		}
		ents, err := listDir(c.Q("."))
		c.OK(err, "read")
		for _, e := range ents {
			if !want[e.name] {
				c.Errorf("unexpected name %q", e.name)
			}
			delete(want, e.name)
		}
		Eq(c, len(want), 0, "names missing")
	}},
	{Name: "rewinding sees what changed", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		fd := c.open(c.P("d"), unix.O_RDONLY|unix.O_DIRECTORY)
		for i := range 20 {
			c.put(c.Q(fmt.Sprintf("d/%d", i)), nil)
			_, err := unix.Seek(fd, 0, 0)
			c.OK(err, "rewind")
			ents, err := readDir(fd)
			c.OK(err, "read")
			Eq(c, len(ents), i+3, "entries")
		}
	}},
	{Name: "seekdir returns to where telldir was", Fn: seekdir},
	{Name: "a position stays valid while others come and go", Fn: positionStays},
	{Name: "no loss and no duplicate under concurrent change", Fn: readdirUnderChange},
	{Name: "removing every entry while reading leaves none", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		for i := range 2000 {
			c.OK(makeNode("file", c.P(num2("d/some-longer-name-", i)), 0o644), "create")
		}
		fd := c.open(c.P("d"), unix.O_RDONLY|unix.O_DIRECTORY)
		buf := make([]byte, 2048)
		for {
			ents, err := readDirChunk(fd, buf)
			c.OK(err, "read")
			if len(ents) == 0 {
				break
			}
			for _, e := range ents {
				if e.name != "." && e.name != ".." {
					c.OK(unix.Unlink(c.Q("d/"+e.name)), "unlink %s", e.name)
				}
			}
		}
		c.OK(unix.Rmdir(c.P("d")), "rmdir after removing all that was listed")
	}},
	{Name: "a directory that is not readable lists nothing", Fn: func(c *C) {
		c.Script(`
			mkdir d 311
			chown d 1001 1001
			create d/f 644
			1001:1001 ls d = EACCES
			1001:1001 stat d/f type = file
			chmod d 444
			1001:1001 ls d = f
			1001:1001 stat d/f = EACCES
			chmod d 111
			1002:1002 ls d = EACCES
			1002:1002 stat d/f type = file
		`)
	}},
	{Name: "renames within a directory keep the count", Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		for i := range 300 {
			c.OK(makeNode("file", c.P(num2("d/a", i)), 0o644), "create")
		}
		for i := range 300 {
			c.OK(unix.Rename(c.Q(num2("d/a", i)), c.Q(num2("d/b", i))), "rename")
		}
		ents, err := listDir(c.P("d"))
		c.OK(err, "read")
		Eq(c, len(ents), 300, "entries")
		for _, e := range ents {
			if e.name[0] != 'b' {
				c.Errorf("old name %s is still listed", e.name)
			}
		}
	}},
}}

func randomName(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for {
		for i := range b {
			for b[i] = 0; b[i] == 0 || b[i] == '/'; {
				b[i] = byte(r.Intn(256))
			}
		}
		if s := string(b); s != "." && s != ".." {
			return s
		}
	}
}

func manyEntries(c *C, n, bufSize int) {
	mustMkdir(c, "d", 0o755)
	for i := range n {
		c.OK(makeNode("file", c.P(num2("d/entry-", i)), 0o644), "create")
	}
	fd := c.open(c.Q("d"), unix.O_RDONLY|unix.O_DIRECTORY)
	seen := make(map[string]bool, n)
	for buf := make([]byte, bufSize); ; {
		ents, err := readDirChunk(fd, buf)
		c.OK(err, "read")
		if len(ents) == 0 {
			break
		}
		for _, e := range ents {
			if seen[e.name] {
				c.Fatalf("%s is listed twice", e.name) // going on might have no end
			}
			seen[e.name] = true
		}
	}
	Eq(c, len(seen), n+2, "entries")
	Eq(c, statOf(c, c.Q("d")).Nlink, 2, "link count of a directory of files")
}

// bigDirectory makes Env.BigDir entries from both sides, finds each of them once
// in a listing and some of them by name, and removes them all.
func bigDirectory(c *C) {
	mustMkdir(c, "d", 0o755)
	n, threads := c.Env.BigDir, 8
	each := func(do func(side func(string) string, i int)) {
		var fns []func()
		for t := range threads {
			side := c.Sides()[t%2]
			fns = append(fns, func() {
				for i := t; i < n; i += threads {
					do(side, i)
				}
			})
		}
		c.Go(fns...)
	}
	name := func(i int) string { return num2("d/entry-with-a-name-", i) }
	each(func(side func(string) string, i int) {
		c.OK(openClose(side(name(i)), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY), "create entry %d", i)
	})
	for _, side := range c.Sides() {
		ents, err := listDir(side("d"))
		c.OK(err, "read")
		seen := make(map[string]bool, n)
		for _, e := range ents {
			if seen[e.name] {
				c.Fatalf("%s is listed twice", e.name)
			}
			seen[e.name] = true
		}
		Eq(c, len(seen), n, "entries")
	}
	for i := 0; i < n; i += max(n/1000, 1) {
		c.OK(unix.Stat(c.Q(name(i)), &unix.Stat_t{}), "stat entry %d", i)
	}
	c.Want(unix.ENOENT, unix.Stat(c.P(name(n)), &unix.Stat_t{}), "stat of an entry that was not made")
	c.Want(unix.ENOTEMPTY, unix.Rmdir(c.P("d")), "rmdir of a full directory")
	each(func(side func(string) string, i int) { c.OK(unix.Unlink(side(name(i))), "unlink entry %d", i) })
	c.OK(unix.Rmdir(c.Q("d")), "rmdir of the emptied directory")
}

// seekdir goes back to every position of a first pass and compares the rest.
func seekdir(c *C) {
	mustMkdir(c, "d", 0o755)
	for i := range 200 {
		c.OK(makeNode("file", c.P(num2("d/f", i)), 0o644), "create")
	}
	fd := c.open(c.Q("d"), unix.O_RDONLY|unix.O_DIRECTORY)
	all, err := readDir(fd)
	c.OK(err, "read")
	for i := len(all) - 1; i >= 0; i -= 7 {
		_, err := unix.Seek(fd, all[i].off, 0)
		c.OK(err, "seek to the position behind entry %d", i)
		rest, err := readDir(fd)
		c.OK(err, "read the rest")
		Eq(c, len(rest), len(all)-i-1, "entries behind entry %d", i)
		for j := range rest {
			Eq(c, rest[j].name, all[i+1+j].name, "entry %d", i+1+j)
		}
	}
}

// positionStays changes the directory on the other side between two reads: what
// was there all the time is seen once.
func positionStays(c *C) {
	mustMkdir(c, "d", 0o755)
	for i := range 400 {
		c.OK(makeNode("file", c.P(num2("d/stay", i)), 0o644), "create")
		c.OK(makeNode("file", c.P(num2("d/go", i)), 0o644), "create")
	}
	fd := c.open(c.P("d"), unix.O_RDONLY|unix.O_DIRECTORY)
	seen := map[string]int{}
	buf := make([]byte, 1024)
	for round := 0; ; round++ {
		ents, err := readDirChunk(fd, buf)
		c.OK(err, "read")
		if len(ents) == 0 {
			break
		}
		for _, e := range ents {
			seen[e.name]++
		}
		for k := range 10 {
			unix.Unlink(c.Q(num2("d/go", (round*10+k)%400)))
			c.WantIn(makeNode("file", c.Q(num2("d/new", round*10+k)), 0o644), []unix.Errno{0}, "create meanwhile")
		}
		last := ents[len(ents)-1]
		_, err = unix.Seek(fd, last.off, 0)
		c.OK(err, "seek to the last entry's position")
	}
	for i := range 400 {
		Eq(c, seen[num2("stay", i)], 1, "times that stay%05d was seen", i)
	}
	for name, n := range seen {
		if n > 1 {
			c.Errorf("%s was seen %d times", name, n)
		}
	}
}

// readdirUnderChange lists while two threads create and remove.
func readdirUnderChange(c *C) {
	mustMkdir(c, "d", 0o755)
	for i := range 300 {
		c.OK(makeNode("file", c.P(num2("d/stay", i)), 0o644), "create")
	}
	var stop atomic.Bool
	churn := func(side func(string) string, prefix string) func() {
		return func() {
			for i := 0; !stop.Load(); i = (i + 1) % 200 {
				p := side(num2("d/"+prefix, i))
				if err := makeNode("file", p, 0o644); err != nil {
					unix.Unlink(p)
				}
			}
		}
	}
	list := func() {
		defer stop.Store(true)
		for range 25 {
			ents, err := listDir(c.Q("d"))
			c.OK(err, "read")
			seen := map[string]int{}
			for _, e := range ents {
				if seen[e.name]++; seen[e.name] > 1 {
					c.Errorf("%s was seen twice in one pass", e.name)
				}
			}
			for i := range 300 {
				if seen[num2("stay", i)] != 1 {
					c.Fatalf("stay%05d was not seen", i)
				}
			}
		}
	}
	c.Go(list, churn(c.P, "x"), churn(c.Q, "y"))
}
