package posix

import (
	"time"

	"golang.org/x/sys/unix"
)

var timesGroup = Group{"times", Join(
	Each("looking changes nothing of a", Kinds, `
		mkdir d 755
		make $K d/n 644
		mark d d/n
		lstat d/n type = $K
		stat d/n = success|ENOENT
		access d/n r = success|ENOENT
		readlink d/n = success|EINVAL
		ls d = n
		lsx d/n = ""
		getx d/n user.none = ENODATA|EPERM
		stat d/none = ENOENT
		moved d = -
		moved d/n = -
	`),
	[]Case{
		Script("opening and closing change nothing", `
			create f 644
			mark f
			open f O_RDWR
			open f O_RDWR|O_APPEND
			open f O_RDONLY|O_CREAT
			moved f = -
			mkdir d 755
			mark d
			open d O_RDONLY|O_DIRECTORY
			moved d = -
		`),
		Script("a change below leaves the directories above alone", `
			mkdir a 755
			mkdir a/b 755
			create a/b/f 644
			mark a a/b
			write a/b/f data
			chmod a/b/f 600
			setx a/b/f user.k v
			moved a = -
			moved a/b = -
			create a/b/g 644
			moved a = -
			moved a/b = mc
		`),
		Script("every change moves the times of what it changes", `
			create f 644
			mark f
			write f data
			moved f = mc
			mark f
			append f more
			moved f = mc
			mark f
			truncate f 2
			moved f = mc
			mark f
			falloc f plain 0 100
			moved f = mc
			mark f
			chmod f 600
			moved f = c
			mark f
			chown f 1 1
			moved f = c
			mark f
			setx f user.a b
			moved f = c
			mark f
			link f g
			moved f = c
			mark f
			unlink g
			moved f = c
			mark f
			rename f h
			moved h f = c
		`),
		Script("refused changes move nothing", `
			mkdir d 755
			create d/f 600
			mark d d/f
			1001:1001 write d/f x = EACCES
			1001:1001 append d/f x = EACCES
			1001:1001 truncate d/f 5 = EACCES
			1001:1001 chmod d/f 777 = EPERM
			1001:1001 chown d/f 1001 1001 = EPERM
			1001:1001 setx d/f user.a b = EACCES
			1001:1001 link d/f d/g = EACCES|EPERM
			1001:1001 rename d/f d/g = EACCES
			1001:1001 unlink d/f = EACCES
			1001:1001 utimes d/f 1.0 1.0 = EPERM
			1001:1001 create d/x = EACCES
			1001:1001 mkdir d/x 755 = EACCES
			1001:1001 symlink x d/x = EACCES
			mkdir d/f 755 = EEXIST
			link d/f d/f = EEXIST
			rmdir d/f = ENOTDIR
			unlink d/none = ENOENT
			moved d = -
			moved d/f = -
		`),
		Script("only utimensat moves atime", `
			create f 755
			write f "#!/bin/true"
			mkdir d 755
			create d/e 644
			symlink f l
			utimes f 1000.1 2000.0
			utimes d 1000.2 2000.0
			utimes l 1000.3 2000.0 nofollow
			tick
			read f = #!/bin/true
			stat f atime = 1000.000000001
			h=open f O_RDONLY
			fread h 5 = #!/bi
			pread h 5 0 = #!/bi
			stat f atime = 1000.000000001
			ls d = e
			stat d atime = 1000.000000002
			readlink l = f
			read l = #!/bin/true
			lstat l atime = 1000.000000003
			write f more
			truncate f 3
			chmod f 600
			stat f atime = 1000.000000001
			utimes f 5.0 omit
			stat f atime = 5.000000000
		`, CapStillAtime),
		{Name: "new files have the present as all their times", Fn: func(c *C) {
			from := time.Now().Add(-2 * time.Second)
			c.put(c.P("f"), []byte("x"))
			to := time.Now().Add(2 * time.Second)
			st := statOf(c, c.Q("f"))
			for name, ts := range map[string]unix.Timespec{"atime": st.Atim, "mtime": st.Mtim, "ctime": st.Ctim} {
				if t := time.Unix(ts.Unix()); t.Before(from) || t.After(to) {
					c.Errorf("%s is %v, not between %v and %v", name, t, from, to)
				}
			}
		}},
		{Name: "stamps never run backwards over both sides", Fn: func(c *C) {
			last := int64(0)
			for i := range 200 {
				p := c.Sides()[i%2](num2("f", i))
				c.put(p, nil)
				st := statOf(c, p)
				if st.Ctim.Nano() < last {
					c.Fatalf("file %d is %d ns older than the one before", i, last-st.Ctim.Nano())
				}
				last = st.Ctim.Nano()
			}
		}},
	},
)}
