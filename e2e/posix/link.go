package posix

import "golang.org/x/sys/unix"

var linkGroup = Group{"link", Join(
	Each("makes a second name of", NonDirs, `
		make $K a 644
		lstat a type,nlink = $K 1
		link a b
		lstat a type,nlink = $K 2
		lstat b type,nlink = $K 2
		same a b = yes
		link b c
		lstat a nlink = 3
		lchown b 1001 1002
		lstat c uid,gid = 1001 1002
		unlink a
		lstat a = ENOENT
		lstat b type,nlink,uid,gid = $K 2 1001 1002
		unlink b
		lstat c type,nlink = $K 1
		unlink c
		lstat c = ENOENT
	`),
	Each("existing target is EEXIST over", Kinds, `
		create a 644
		make $K b 644
		link a b = EEXIST
		stat a nlink = 1
	`),
	Each("moves ctime of the file and both times of the directory for", NonDirs, `
		mkdir d 755
		make $K a 644
		mark a d
		link a d/b
		moved a = c
		moved d = mc
		mark a d
		link a d/b = EEXIST
		moved a = -
		moved d = -
	`),
	[]Case{
		Script("of a directory is EPERM, also for root", `
			mkdir d 755
			link d e = EPERM
			symlink d l
			link l m
			lstat m type = symlink
			link l n follow = EPERM
			mkdir w 777
			chown d 1001 1001
			1001:1001 link d w/x = EPERM
		`),
		Script("follows a symlink only when asked", `
			create f 644
			symlink f l
			link l m
			lstat m type,nlink = symlink 2
			link l g follow
			lstat g type,nlink = file 2
			same f g = yes
		`),
		Script("needs to write the directory of the new name", `
			mkdir d 755
			mkdir e 755
			chown d 1001 1001
			1001:1001 create d/f 644
			1001:1001 link d/f e/g = EACCES
			chmod e 777
			1001:1001 link d/f e/g
			stat d/f nlink = 2
			chmod e 666
			1001:1001 link d/f e/h = EACCES
			chmod d 444
			chmod e 777
			1001:1001 link d/f e/h = EACCES
		`),
		Script("missing source, missing directory and trailing slashes", `
			create f 644
			mkdir d 755
			link none a = ENOENT
			link f none/a = ENOENT
			link f/ a = ENOTDIR
			link f a/ = ENOENT|ENOTDIR
			link f f = EEXIST
			link f d/. = EEXIST
			link f d = EEXIST
			symlink none l
			link f l = EEXIST
			stat f nlink = 1
		`),
		Script("of an unlinked file through its descriptor is ENOENT", `
			h=open f O_RDWR|O_CREAT
			unlink f
			flink h g = ENOENT
			ls . = ""
		`),
		Script("names of 255 bytes work and 256 do not", `
			create {n255} 644
			link {n255} b
			stat b nlink = 2
			link b {n256} = ENAMETOOLONG
			link {n256} c = ENAMETOOLONG
		`),
		Script("data written by one name is read by all", `
			create a 644
			link a b
			write a hello
			read b = hello
			append b -more
			read a = hello-more
			truncate b 3
			read a = hel
		`),
		{Name: "a thousand links count right", Fn: func(c *C) {
			c.OK(makeNode("file", c.P("f"), 0o644), "create")
			for i := range 1000 {
				c.OK(unix.Link(c.P("f"), c.P(num2("l", i))), "link %d", i)
			}
			Eq(c, statOf(c, c.Q("f")).Nlink, 1001, "link count")
			for i := range 1000 {
				c.OK(unix.Unlink(c.Q(num2("l", i))), "unlink %d", i)
			}
			Eq(c, statOf(c, c.P("f")).Nlink, 1, "link count after unlinking")
		}},
	},
)}
