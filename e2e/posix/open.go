package posix

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var openGroup = Group{"open", Join(
	newNodeOwnerOpen,
	[]Case{
		Script("O_CREAT makes a file with mode, umask and owner", `
			open f O_RDWR|O_CREAT 644
			stat f type,mode,uid,gid,size,nlink = file 0644 0 0 0 1
			umask=077 open g O_WRONLY|O_CREAT 666
			stat g mode = 0600
			umask=022 open h O_RDONLY|O_CREAT 7777
			stat h mode = 7755
			open i O_RDWR|O_CREAT 0
			stat i mode = 0000
			open f O_RDWR|O_CREAT 600
			stat f mode = 0644
		`),
		Script("a file made read-only is writable through its first handle", `
			mkdir d 777
			1001:1001 h=open d/f O_RDWR|O_CREAT 0
			1001:1001 fwrite h text
			1001:1001 open d/f O_RDONLY = EACCES
			stat d/f size,mode = 4 0000
		`),
		Script("O_CREAT times", `
			mkdir d 755
			mark d
			open d/f O_WRONLY|O_CREAT
			moved d = mc
			moved d/f d = mc
			mark d d/f
			open d/f O_WRONLY|O_CREAT
			moved d = -
			moved d/f = -
		`),
		Script("O_CREAT without permission makes nothing", `
			mkdir d 755
			1001:1001 open d/f O_RDWR|O_CREAT = EACCES
			ls d = ""
			create d/g 644
			1001:1001 open d/g O_RDONLY|O_CREAT
			1001:1001 open d/g O_RDWR|O_CREAT = EACCES
		`),
	},
	Each("O_EXCL is EEXIST over a", Kinds, `
		make $K n 644
		open n O_RDWR|O_CREAT|O_EXCL = EEXIST
		lstat n type = $K
	`),
	[]Case{
		Script("O_NOFOLLOW", `
			create f 644
			symlink f l
			open l O_RDONLY|O_NOFOLLOW = ELOOP
			open f O_RDONLY|O_NOFOLLOW
			open l O_RDWR|O_CREAT|O_NOFOLLOW = ELOOP
			mkdir d 755
			create d/g 644
			symlink d dl
			open dl/g O_RDONLY|O_NOFOLLOW
			open dl O_RDONLY|O_DIRECTORY|O_NOFOLLOW = ENOTDIR|ELOOP
			h=open l O_PATH|O_NOFOLLOW
			fstat h type = symlink
		`),
		Script("O_DIRECTORY", `
			create f 644
			mkdir d 755
			symlink d l
			open f O_RDONLY|O_DIRECTORY = ENOTDIR
			open d O_RDONLY|O_DIRECTORY
			open l O_RDONLY|O_DIRECTORY
			open none O_RDONLY|O_DIRECTORY = ENOENT
		`),
		Script("a directory is not opened for writing", `
			mkdir d 755
			open d O_WRONLY = EISDIR
			open d O_RDWR = EISDIR
			open d O_RDONLY|O_TRUNC = EISDIR
			open d O_WRONLY|O_TRUNC = EISDIR
			open d O_RDONLY|O_CREAT = EISDIR
			open d O_RDONLY
			h=open d O_RDONLY
			fread h 10 = EISDIR
		`),
		Script("trailing slash and dot", `
			create f 644
			mkdir d 755
			open f/ O_RDONLY = ENOTDIR
			open f/. O_RDONLY = ENOTDIR
			open new/ O_RDWR|O_CREAT = EISDIR
			open d/ O_RDONLY
			open d/. O_RDONLY
			open d/.. O_RDONLY
			lstat new = ENOENT
		`),
		Script("access mode is honoured by reads and writes", `
			create f 644
			r=open f O_RDONLY
			w=open f O_WRONLY
			fwrite r x = EBADF
			fread w 1 = EBADF
			fwrite w x
			fread r 5 = x
		`),
		Script("permission bits per class of user", `
			create f 640
			chown f 1001 2001
			write f data
			1001:1001 open f O_RDWR
			1002:2001 open f O_RDONLY
			1002:2001 open f O_WRONLY = EACCES
			1002:1002:5,2001 open f O_RDONLY
			1002:1002 open f O_RDONLY = EACCES
			chmod f 046
			1001:2001 open f O_RDONLY = EACCES
			1002:2001 open f O_RDONLY
			1002:2001 open f O_WRONLY = EACCES
			1002:1002 open f O_RDWR
			1002:1002:2001 open f O_WRONLY = EACCES
			chmod f 0
			open f O_RDWR
		`),
		Script("every pair of permission bits and access mode for the owner", permissionTable("1001:1001", 6)),
		Script("every pair of permission bits and access mode for the group", permissionTable("1002:1001", 3)),
		Script("every pair of permission bits and access mode for a supplementary group", permissionTable("1002:1002:7,8,1001", 3)),
		Script("every pair of permission bits and access mode for others", permissionTable("1002:1002", 0)),
		Script("O_TRUNC needs write permission", `
			create f 644
			write f data
			1001:1001 open f O_RDONLY|O_TRUNC = EACCES
			read f = data
			chmod f 646
			1001:1001 open f O_WRONLY|O_TRUNC
			stat f size = 0
		`),
		Script("O_APPEND writes at the end whatever the offset", `
			create f 644
			a=open f O_RDWR|O_APPEND
			b=open f O_RDWR
			fwrite a one
			fwrite b ONE-two
			fwrite a three
			read f = ONE-twothree
			lseek a 2 set = 2
			fread a 3 = E-t
			fwrite a !
			read f = ONE-twothree!
			ftruncate b 3
			fwrite a end
			read f = ONEend
		`),
		Script("O_APPEND leaves the position behind what it wrote", `
			create f 644
			a=open f O_RDWR|O_APPEND
			b=open f O_RDWR
			fwrite b ONE-two
			fwrite a three
			lseek a 0 cur = 12
		`, CapAppendPos),
		Script("an open file with O_SYNC and O_DSYNC", `
			h=open f O_RDWR|O_CREAT|O_SYNC
			fwrite h sync
			g=open f O_RDWR|O_DSYNC|O_APPEND
			fwrite g data
			read f = syncdata
			fsync h
			fdatasync g
		`),
		Script("O_NOATIME is for the owner", `
			create f 644
			1001:1001 open f O_RDONLY|O_NOATIME = EPERM
			chown f 1001 1001
			1001:1001 open f O_RDONLY|O_NOATIME
		`),
		Script("O_PATH needs only search permission", `
			create f 0
			1001:1001 h=open f O_PATH
			fread h 1 = EBADF
			fstat h type = file
		`),
		Script("seeking", `
			create f 644
			write f 0123456789
			h=open f O_RDWR
			lseek h 4 set = 4
			fread h 2 = 45
			lseek h -1 cur = 5
			fread h 1 = 5
			lseek h -2 end = 8
			fread h 9 = 89
			fread h 9 = ""
			lseek h 5 end = 15
			fread h 1 = ""
			fwrite h x
			stat f size = 16
			lseek h -1 set = EINVAL
			lseek h -100 end = EINVAL
		`),
		Script("pread and pwrite leave the offset", `
			h=open f O_RDWR|O_CREAT
			pwrite h abcdef 0
			pread h 2 2 = cd
			lseek h 0 cur = 0
			fread h 3 = abc
			pwrite h Z 5
			lseek h 0 cur = 3
			read f = abcdeZ
			pread h 5 100 = ""
			pread h 5 -1 = EINVAL
		`),
		Script("writing moves times, writing nothing does not", `
			create f 644
			mark f
			write f x
			moved f = mc
			mark f
			write f ""
			moved f = -
			mark f
			append f y
			moved f = mc
			mark f
			read f = xy
			moved f = -
		`),
		{Name: "O_EXCL has one winner of many", Fn: func(c *C) { exclWinner(c, c.P, c.P) }},
		{Name: "O_DIRECT reads and writes", Needs: []Cap{CapDirectIO}, Fn: directIO},
		{Name: "a running program is ETXTBSY", Fn: textBusy},
		{Name: "O_RDONLY|O_TRUNC of a running program is ETXTBSY and harmless", Needs: []Cap{CapBusyTrunc}, Fn: func(c *C) {
			copyProgram(c, "prog")
			start(c, c.P("prog"), "1000")
			size := statOf(c, c.P("prog")).Size
			c.Want(unix.ETXTBSY, openClose(c.P("prog"), unix.O_RDONLY|unix.O_TRUNC), "open")
			Eq(c, statOf(c, c.Q("prog")).Size, size, "size of the program")
		}},
		{Name: "a program being written does not run", Fn: func(c *C) {
			copyProgram(c, "prog")
			fd := c.open(c.P("prog"), unix.O_RDWR)
			c.Want(unix.ETXTBSY, run(c.P("prog"), "0"), "exec while open for writing")
			unix.Close(fd)
			c.OK(run(c.P("prog"), "0"), "exec once closed")
		}},
		Script("a program needs execute permission", `
			create f 644
			1001:1001 access f x = EACCES
			access f x = EACCES
			chmod f 100
			access f x
			1001:1001 access f x = EACCES
			chmod f 001
			1001:1001 access f x
			1001:1001 access f rx = EACCES
		`),
	},
	tmpfileCases,
)}

var newNodeOwnerOpen = newNodeCases("O_CREAT|O_EXCL", "create", "644", "file", "1")

// permissionTable tries all eight permissions of one class, at shift bits.
func permissionTable(who string, shift uint) string {
	text := "create f 644\n chown f 1001 1001\n mkdir d 755\n chown d 1001 1001\n create d/in 644\n"
	want := func(ok bool) string {
		if ok {
			return "success"
		}
		return "EACCES"
	}
	for bits := range uint(8) {
		r, w, x := bits&4 != 0, bits&2 != 0, bits&1 != 0
		text += fmt.Sprintf("chmod f %o\n chmod d %o\n", bits<<shift, bits<<shift)
		for _, step := range []struct {
			op string
			ok bool
		}{
			{"open f O_RDONLY", r}, {"open f O_WRONLY", w}, {"open f O_RDWR", r && w}, {"truncate f 1", w},
			{"access f r", r}, {"access f w", w}, {"access f x", x}, {"access f rwx", r && w && x}, {"access f f", true},
			{"open d O_RDONLY|O_DIRECTORY", r}, {"lstat d/in", x}, {"create d/new", w && x}, {"unlink d/new", w && x},
		} {
			text += fmt.Sprintf("%s %s = %s\n", who, step.op, want(step.ok))
			if step.op == "create d/new" && !step.ok {
				text += "create d/new\n" // so that unlink has something to be refused
			} else if step.op == "unlink d/new" && !step.ok {
				text += "unlink d/new\n"
			}
		}
	}
	return text
}

// exclWinner lets many threads on both sides create the same names.
func exclWinner(c *C, sides ...func(string) string) {
	for round := range 50 {
		var won atomic.Int32
		var fns []func()
		for i := range 8 {
			path := sides[i%len(sides)](num2("x", round))
			fns = append(fns, func() {
				fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
				if err == nil {
					won.Add(1)
					unix.Close(fd)
				} else {
					c.Want(unix.EEXIST, err, "the loser's open")
				}
			})
		}
		c.Go(fns...)
		Eq(c, won.Load(), 1, "winners of O_EXCL")
	}
}

func directIO(c *C) {
	const block = 4096
	buf := alignedBuf(8 * block)
	for i := range buf {
		buf[i] = byte(i / block)
	}
	fd := c.open(c.P("f"), unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT)
	_, err := unix.Pwrite(fd, buf, 0)
	c.OK(err, "direct write")
	c.same(c.get(c.Q("f")), buf, "contents")
	got := alignedBuf(2 * block)
	n, err := unix.Pread(fd, got, 3*block)
	c.OK(err, "direct read")
	c.same(got[:n], buf[3*block:5*block], "direct read")
	c.OK(writeAll(c.open(c.Q("f"), unix.O_RDWR), []byte("buffered"), 3*block), "buffered write")
	_, err = unix.Pread(fd, got, 3*block)
	c.OK(err, "direct read")
	c.same(got[:8], []byte("buffered"), "direct read after a buffered write")
	c.OK(unix.Ftruncate(fd, 2*block+100), "truncate")
	n, err = unix.Pread(fd, got, 2*block)
	c.OK(err, "direct read at the end")
	Eq(c, n, 100, "bytes read at the end")
}

func alignedBuf(n int) []byte {
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	return buf
}

// copyProgram puts sleep(1) onto the filesystem.
func copyProgram(c *C, name string) {
	src, err := filepath.EvalSymlinks("/bin/sleep")
	c.OK(err, "find sleep")
	data, err := os.ReadFile(src)
	c.OK(err, "read sleep")
	c.put(c.P(name), data)
	c.OK(unix.Chmod(c.P(name), 0o755), "chmod")
}

func textBusy(c *C) {
	copyProgram(c, "prog")
	p := start(c, c.P("prog"), "1000")
	_, err := unix.Open(c.P("prog"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	c.Want(unix.ETXTBSY, err, "open of a running program for writing")
	_, err = unix.Open(c.P("prog"), unix.O_RDWR|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	c.Want(unix.ETXTBSY, err, "open of a running program with O_TRUNC")
	c.Want(unix.ETXTBSY, unix.Truncate(c.P("prog"), 0), "truncate of a running program")
	c.OK(unix.Rename(c.P("prog"), c.P("moved")), "rename of a running program")
	c.OK(unix.Unlink(c.P("moved")), "unlink of a running program")
	p.kill()
}

var tmpfileCases = []Case{
	Script("O_TMPFILE has no name and is gone when closed", `
		mkdir d 755
		h=tmpfile d O_RDWR 640
		fstat h type,mode,nlink,size = file 0640 0 0
		ls d = ""
		fwrite h data
		pread h 10 0 = data
		close h
		ls d = ""
		rmdir d
	`, CapTmpfile),
	Script("O_TMPFILE gets a name by linkat, once", `
		mkdir d 755
		h=tmpfile d O_RDWR 600
		fwrite h data
		create d/taken
		flink h d/taken = EEXIST
		flink h d/f
		fstat h nlink = 1
		read d/f = data
		stat d/f mode = 0600
		flink h d/g
		fstat h nlink = 2
		ls d = f g taken
		unlink d/f
		unlink d/g
		fstat h nlink = 0
		flink h d/again = success|ENOENT
	`, CapTmpfile),
	Script("O_TMPFILE with O_EXCL never gets a name", `
		h=tmpfile . O_RDWR|O_EXCL 600
		flink h f = ENOENT
		ls . = ""
	`, CapTmpfile),
	Script("O_TMPFILE umask, owner and permission", `
		mkdir d 755
		1001:1001 tmpfile d O_RDWR 600 = EACCES
		chmod d 777
		umask=077 h=tmpfile d O_RDWR 666
		fstat h mode = 0600
		1001:2001 g=tmpfile d O_RDWR 644
		fstat g uid,gid = 1001 2001
		chown d 0 3001
		chmod d 2777
		1001:2001 i=tmpfile d O_RDWR 644
		fstat i gid = 3001
		tmpfile d O_RDONLY = EINVAL
		tmpfile none O_RDWR = ENOENT
		create f
		tmpfile f O_RDWR = ENOTDIR
	`, CapTmpfile),
	Script("O_TMPFILE does not move the directory's times until linked", `
		mkdir d 755
		mark d
		h=tmpfile d O_RDWR 600
		moved d = -
		flink h d/f
		moved d = mc
	`, CapTmpfile),
}
