package posix

import (
	"strings"

	"golang.org/x/sys/unix"
)

var symlinkGroup = Group{"symlink", Join(
	newNodeCases("symlink", "symlink target", "", "symlink", "1"),
	Each("over an existing", Kinds, `
		make $K n 644
		symlink x n = EEXIST
		lstat n type = $K
	`),
	Each("to a", NonLinks, `
		make $K n 644
		symlink n l
		lstat l type,mode,size = symlink 0777 1
		stat l type = $K
		readlink l = n
		readlink n = EINVAL
		unlink l
		stat n type = $K
	`),
	[]Case{
		Script("dangling links are made and resolve once the target exists", `
			symlink gone/there l
			stat l = ENOENT
			readlink l = gone/there
			lstat l size = 10
			mkdir gone 755
			create gone/there 644
			stat l type = file
			write l data
			read gone/there = data
		`),
		Script("creating through a dangling link", `
			symlink t l
			open l O_RDWR|O_CREAT|O_EXCL = EEXIST
			lstat t = ENOENT
			open l O_RDWR|O_CREAT 640
			stat t type,mode = file 0640
		`),
		Script("relative, absolute and chained targets", `
			mkdir d 755
			mkdir d/e 755
			create d/f 644
			write d/f here
			symlink ../f d/e/up
			symlink {abs}/d/f abs
			symlink d/e/up chain1
			symlink chain1 chain2
			read d/e/up = here
			read chain2 = here
			symlink d dl
			read dl/e/up = here
			ls dl/ = e f
			ls dl = e f
		`),
		Script("targets of any bytes", `
			symlink "\x01\xff \n%s\"'" a
			readlink a = "\x01\xff \n%s\"'"
			symlink "\xed\xa0\x80" b
			readlink b = "\xed\xa0\x80"
			lstat b size = 3
			symlink "/" c
			readlink c = "/"
		`),
		Script("empty target is ENOENT", `
			symlink "" l = ENOENT
			lstat l = ENOENT
		`),
		Script("trailing slash on a link to a file", `
			create f 644
			symlink f l
			stat l/ = ENOTDIR
			unlink l/ = ENOTDIR
			open l/ O_RDONLY = ENOTDIR
			mkdir d 755
			symlink d m
			lstat m/ type = dir
			symlink x d/ = EEXIST
			symlink x none/ = ENOENT
		`),
		Script("loops", `
			symlink b a
			symlink a b
			stat a = ELOOP
			open a O_RDONLY = ELOOP
			lstat a type = symlink
			open a O_RDONLY|O_NOFOLLOW = ELOOP
			mkdir a/x 755 = ELOOP
			symlink self self
			truncate self 0 = ELOOP
			chmod self 644 = ELOOP
			unlink self
			unlink a
			stat b = ENOENT
		`),
		{Name: "targets up to 4095 bytes", Fn: func(c *C) {
			for _, n := range []int{1, 59, 60, 61, 255, 256, 1023, 1024, 4094, 4095} {
				target, l := strings.Repeat("t", n), num2("l", n)
				c.OK(unix.Symlink(target, c.P(l)), "symlink of %d bytes", n)
				buf := make([]byte, 8192)
				got, err := unix.Readlink(c.Q(l), buf)
				c.OK(err, "readlink of %d bytes", n)
				Eq(c, string(buf[:got]), target, "target of %d bytes", n)
				Eq(c, statOf(c, c.Q(l)).Size, int64(n), "size of the link")
			}
			c.Want(unix.ENAMETOOLONG, unix.Symlink(strings.Repeat("t", 4096), c.P("long")), "symlink of 4096 bytes")
		}},
		{Name: "readlink cuts to the buffer", Fn: func(c *C) {
			c.OK(unix.Symlink("0123456789", c.P("l")), "symlink")
			buf := make([]byte, 4)
			n, err := unix.Readlink(c.Q("l"), buf)
			c.OK(err, "readlink")
			Eq(c, string(buf[:n]), "0123", "cut target")
		}},
		{Name: "forty links in a row resolve and forty-one do not", Fn: func(c *C) {
			c.put(c.P("l0"), []byte("end"))
			for i := 1; i <= 41; i++ {
				c.OK(unix.Symlink(num2("l", i-1), c.P(num2("l", i))), "symlink %d", i)
			}
			c.OK(unix.Rename(c.P("l0"), c.P(num2("l", 0))), "rename")
			Eq(c, string(c.get(c.Q(num2("l", 40)))), "end", "forty links")
			_, err := readFile(c.Q(num2("l", 41)))
			c.Want(unix.ELOOP, err, "forty-one links")
		}},
		Script("link count and ownership of a link", `
			symlink x l
			link l m
			lstat l nlink = 2
			lchown m 5 6
			lstat l uid,gid = 5 6
			unlink m
			lstat l nlink = 1
		`),
		Script("a link replaced by rename resolves anew at once", `
			mkdir a 755
			mkdir b 755
			create a/only-a 644
			create b/only-b 644
			symlink a cur
			ls cur/ = only-a
			symlink b new
			rename new cur
			ls cur/ = only-b
			readlink cur = b
			stat cur/only-a = ENOENT
		`),
		Script("removed and made anew with another target", `
			symlink a l
			readlink l = a
			unlink l
			symlink bb l
			readlink l = bb
			lstat l size = 2
		`),
	},
)}

var unlinkGroup = Group{"unlink", Join(
	Each("removes a", NonDirs, `
		make $K n 644
		unlink n
		lstat n = ENOENT
		unlink n = ENOENT
		ls . = ""
		make $K n 644
		lstat n type = $K
	`),
	Each("by its owner's directory permission only for", NonDirs, `
		mkdir d 755
		make $K d/n 666
		1001:1001 unlink d/n = EACCES
		chmod d 666
		1001:1001 unlink d/n = EACCES
		chmod d 777
		1001:1001 unlink d/n
		make $K d/m 644
		lchown d/m 1001 1001
		chmod d 755
		1001:1001 unlink d/m = EACCES
		chown d 1001 0
		1001:1001 unlink d/m
	`),
	Each("moves ctime of what is left, and the directory's times, for", NonDirs, `
		mkdir d 755
		make $K d/n 644
		link d/n keep
		mark d keep
		unlink d/n
		moved d = mc
		moved keep = c
		mark d keep
		unlink d/n = ENOENT
		moved d = -
		moved keep = -
	`),
	[]Case{
		Script("of a directory is EISDIR", `
			mkdir d 755
			unlink d = EISDIR
			mkdir d/e 755
			unlink d/e = EISDIR
			unlink d/. = EISDIR|EINVAL
			stat d/e type = dir
		`),
		Script("missing names and trailing slashes", `
			create f 644
			unlink none = ENOENT
			unlink f/ = ENOTDIR
			unlink f/x = ENOTDIR
			unlink none/x = ENOENT
			mkdir d 755
			unlink d/ = EISDIR|ENOTDIR
		`),
		Script("read-only file in a writable directory goes", `
			mkdir d 777
			create d/f 0
			1001:1001 unlink d/f
			lstat d/f = ENOENT
		`),
		Script("open file keeps its data, link count 0", `
			h=open f O_RDWR|O_CREAT 644
			fwrite h content
			unlink f
			fstat h nlink,size = 0 7
			pread h 20 0 = content
			pwrite h more 7
			pread h 20 0 = contentmore
			ftruncate h 3
			fstat h size = 3
			create f 600
			write f other
			pread h 20 0 = con
			read f = other
		`),
		Script("each hard link is its own name", `
			create a 644
			link a b
			h=open a O_RDWR
			unlink a
			fstat h nlink = 1
			fwrite h x
			read b = x
			unlink b
			fstat h nlink = 0
		`),
		nameless,
	},
)}

var stickyRows = []Case{
	Script("file in a sticky directory goes by owner of file or directory only", `
		mkdir d 755
		chown d 1001 1001
		chmod d 1777
		1002:1002 create d/f 666
		1003:1003 unlink d/f = EPERM
		1003:1001 unlink d/f = EPERM
		1003:1002:1002 unlink d/f = EPERM
		1001:1001 unlink d/f
		1002:1002 create d/f 666
		1002:1002 unlink d/f
		1002:1002 create d/f 666
		unlink d/f
	`),
	Script("directory in a sticky directory likewise", `
		mkdir d 755
		chown d 1001 1001
		chmod d 1777
		1002:1002 mkdir d/e 777
		1003:1003 rmdir d/e = EPERM
		1002:1002 rmdir d/e
		1002:1002 mkdir d/e 777
		1001:1001 rmdir d/e
	`),
	Script("rename out of a sticky directory", `
		mkdir d 755
		chmod d 1777
		mkdir o 777
		1002:1002 create d/f 666
		1003:1003 rename d/f o/f = EPERM
		1003:1003 rename d/f d/g = EPERM
		1002:1002 rename d/f d/g
		1002:1002 rename d/g o/f
		chown d 1003 1003
		1002:1002 create d/f 666
		1003:1003 rename d/f o/h
	`),
	Script("rename over another's file in a sticky directory", `
		mkdir d 755
		chmod d 1777
		1002:1002 create d/victim 666
		1003:1003 create d/mine 666
		1003:1003 rename d/mine d/victim = EPERM
		lstat d/mine uid = 1003
		lstat d/victim uid = 1002
		1002:1002 create d/mine2 666
		1002:1002 rename d/mine2 d/victim
		chown d 1003 0
		1003:1003 rename d/mine d/victim
		lstat d/victim uid = 1003
	`),
	Script("rename of another's directory in a sticky directory", `
		mkdir d 755
		chmod d 1777
		1002:1002 mkdir d/x 777
		1003:1003 mkdir d/y 777
		1003:1003 rename d/y d/x = EPERM
		1003:1003 rename d/x d/z = EPERM
		1003:1003 rename d/y d/z
		1002:1002 mkdir d/w 777
		1002:1002 rename d/w d/x
	`),
	Script("exchange in a sticky directory needs both", `
		mkdir d 755
		chmod d 1777
		1002:1002 create d/a 666
		1003:1003 create d/b 666
		1003:1003 rename d/a d/b exchange = EPERM
		1003:1003 rename d/b d/a exchange = EPERM
		1002:1002 create d/c 666
		1002:1002 rename d/a d/c exchange
	`),
	Script("hard link into and out of a sticky directory", `
		mkdir d 755
		chmod d 1777
		1002:1002 create d/a 644
		1002:1002 link d/a d/b
		1003:1003 unlink d/b = EPERM
		1002:1002 unlink d/a
		stat d/b nlink = 1
	`),
	Script("truncating another's writable file there is allowed", `
		mkdir d 755
		chown d 1003 1003
		chmod d 1755
		create d/f 666
		write d/f data
		1004:1004 truncate d/f 1
		read d/f = d
	`),
}

var stickyGroup = Group{"sticky", Join(stickyRows, stickyMatrix())}

// stickyMatrix is every owner of a sticky directory, owner of an entry and actor:
// root, the owner of the directory and the owner of the entry may take it away.
func stickyMatrix() (cases []Case) {
	users := []string{"0", "1001", "1002", "1003"}
	for _, kind := range strings.Fields(Kinds) {
		var text strings.Builder
		for _, dir := range users[:3] {
			for _, entry := range users[:3] {
				for _, actor := range users {
					want := "EPERM"
					if actor == "0" || actor == dir || actor == entry {
						want = "success"
					}
					stickySteps(&text, kind, dir, entry, actor, want)
				}
			}
		}
		cases = append(cases, Script("every owner and actor with a "+kind, text.String()))
	}
	return cases
}

func stickySteps(text *strings.Builder, kind, dir, entry, actor, want string) {
	who, remove := actor+":"+actor+" ", "unlink"
	other := "file"
	if kind == "dir" {
		remove, other = "rmdir", "dir"
	}
	setup := "mkdir d 755\n make " + kind + " d/n 644\n lchown d/n " + entry + " " + entry +
		"\n make " + other + " d/mine 644\n lchown d/mine " + actor + " " + actor +
		"\n chown d " + dir + " " + dir + "\n chmod d 1777\n"
	clean := func(names ...string) {
		for _, n := range names {
			op := "unlink"
			if kind == "dir" {
				op = "rmdir"
			}
			text.WriteString(op + " d/" + n + " = success|ENOENT\n")
		}
		text.WriteString("rmdir d\n")
	}
	for _, step := range []string{remove + " d/n", "rename d/n d/m", "rename d/mine d/n", "rename d/mine d/n exchange"} {
		text.WriteString(setup + who + step + " = " + want + "\n")
		clean("n", "m", "mine")
	}
}
