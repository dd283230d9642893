package posix

var chownGroup = Group{"chown", Join(
	Each("root gives any owner and group to", Kinds, `
		make $K n 755
		lchown n 123 456
		lstat n type,uid,gid = $K 123 456
		lchown n 0 -1
		lstat n uid,gid = 0 456
		lchown n -1 7
		lstat n uid,gid = 0 7
		lchown n 4294967294 4294967294
		lstat n uid,gid = 4294967294 4294967294
		lchown n 70000 80000
		lstat n uid,gid = 70000 80000
	`),
	Each("follows a symlink to", NonLinks, `
		make $K n 755
		symlink n l
		chown l 1001 1002
		stat n uid,gid = 1001 1002
		lstat l uid,gid = 0 0
		lchown l 1003 1004
		lstat l uid,gid = 1003 1004
		stat n uid,gid = 1001 1002
	`),
	Each("owner gives a group that is his own to", Kinds, `
		make $K n 755
		lchown n 1001 1001
		1001:1001:2001,2002 lchown n -1 2001
		lstat n uid,gid = 1001 2001
		1001:1001:2001,2002 lchown n 1001 2002
		lstat n uid,gid = 1001 2002
		1001:1001 lchown n -1 1001
		lstat n uid,gid = 1001 1001
		1001:1001:2001 lchown n -1 2002 = EPERM
		1001:1001 lchown n 1002 -1 = EPERM
		1001:1001 lchown n 0 0 = EPERM
		1001:1001 lchown n 1002 1001 = EPERM
		1002:1001:1001 lchown n -1 1001 = EPERM
		1002:1002 lchown n 1002 1002 = EPERM
		lstat n uid,gid = 1001 1001
	`),
	Each("clears set-id bits, also for root and for -1 -1, of", PlainKinds, `
		make $K n 644
		chmod n 6555
		chown n 1001 1001
		stat n mode = 0555
		chmod n 6555
		1001:1001:2001 chown n -1 2001
		stat n mode = 0555
		chmod n 6555
		chown n 0 0
		stat n mode = 0555
		chown n 1001 2001
		chmod n 4711
		chown n -1 -1
		stat n mode = 0711
		chmod n 4711
		1001:2001 chown n -1 -1
		stat n mode = 0711
	`),
	[]Case{
		Script("keeps the set-id and sticky bits of a directory", `
			mkdir d 755
			chmod d 7755
			chown d 1001 1001
			stat d mode = 7755
			1001:1001:2001 chown d -1 2001
			stat d mode = 7755
		`),
		Script("set-gid without group execute stays for a member", `
			create f 644
			chmod f 2644
			chown f 1001 1001
			chmod f 2644
			1001:1001 chown f -1 1001
			stat f mode = 2644
		`),
		Script("minus one minus one by somebody else changes nothing", `
			create f 644
			chmod f 644
			1001:1001 chown f -1 -1
			stat f mode,uid,gid = 0644 0 0
			mkdir d 755
			1001:1001 chown d -1 -1
			stat d mode,uid,gid = 0755 0 0
		`),
	},
	Each("moves ctime only, and nothing when refused, of", Kinds, `
		make $K n 644
		mark n
		lchown n 1001 1002
		moved n = c
		mark n
		1002:1002 lchown n 1002 1002 = EPERM
		moved n = -
		mark n
		lchown n 1001 1002
		moved n = c
	`),
	[]Case{
		Script("missing names, trailing slashes and dangling links", `
			create f 644
			chown none 0 0 = ENOENT
			chown f/ 0 0 = ENOTDIR
			symlink none l
			chown l 1 1 = ENOENT
			lchown l 1 1
			lstat l uid,gid = 1 1
		`),
		Script("search permission on the way", `
			mkdir d 700
			create d/f 644
			chown d/f 1001 1001
			1001:1001 chown d/f -1 1001 = EACCES
			chmod d 711
			1001:1001 chown d/f -1 1001
		`),
		Script("fchown on an open and on an unlinked file", `
			h=open f O_RDWR|O_CREAT 600
			fchown h 1001 1002
			stat f uid,gid = 1001 1002
			1002:1002 fchown h 1002 1002 = EPERM
			unlink f
			fchown h 3 4
			fstat h uid,gid,nlink = 3 4 0
		`),
		Script("of an O_PATH handle", `
			create f 644
			h=open f O_PATH
			fchown h 1 1 = EBADF
		`),
		Script("gives access at once and takes it at once", `
			mkdir d 700
			create d/f 600
			chown d/f 1001 1001
			1001:1001 read d/f = EACCES
			chown d 1001 0
			1001:1001 read d/f = ""
			chown d 0 0
			1001:1001 read d/f = EACCES
		`),
	},
)}
