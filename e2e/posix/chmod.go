package posix

var chmodGroup = Group{"chmod", Join(
	Each("changes the mode of", NonLinks, `
		make $K n 644
		chmod n 111
		stat n type,mode = $K 0111
		symlink n l
		chmod l 222
		stat n mode = 0222
		lstat l type = symlink
		chmod n 0
		stat n mode = 0000
	`),
	Each("keeps all twelve bits of", NonLinks, `
		make $K n 644
		chmod n 7777
		stat n mode = 7777
		chmod n 4000
		stat n mode = 4000
		chmod n 2000
		stat n mode = 2000
		chmod n 1000
		stat n mode = 1000
		chmod n 0755
		stat n mode = 0755
	`),
	Each("by its owner and not by others on", NonLinks, `
		mkdir d 755
		chown d 1001 1001
		make $K d/n 644
		chown d/n 1001 1001
		1001:1001 chmod d/n 0642
		stat d/n mode = 0642
		1002:1002 chmod d/n 0777 = EPERM
		1002:1001 chmod d/n 0777 = EPERM
		1002:1002:1001 chmod d/n 0777 = EPERM
		stat d/n mode = 0642
		chown d/n 1002 1002
		1001:1001 chmod d/n 0640 = EPERM
		1002:1002 chmod d/n 0640
		stat d/n mode = 0640
	`),
	Each("moves ctime only, and nothing when refused, of", NonLinks, `
		make $K n 644
		mark n
		chmod n 444
		moved n = c
		mark n
		1001:1001 chmod n 777 = EPERM
		moved n = -
	`),
	Each("drops set-gid when the owner is not in the group of", NonLinks, `
		make $K n 644
		chown n 1001 2001
		1001:1001 chmod n 2755
		stat n mode = 0755
		1001:1001:2001 chmod n 2755
		stat n mode = 2755
		1001:2001 chmod n 6711
		stat n mode = 6711
		1001:1001:2002,2003 chmod n 6711
		stat n mode = 4711
		chmod n 2755
		stat n mode = 2755
	`),
	[]Case{
		Script("sticky bit by an ordinary owner", `
			create f 644
			mkdir d 755
			chown f 1001 1001
			chown d 1001 1001
			1001:1001 chmod f 1644
			stat f mode = 1644
			1001:1001 chmod d 1755
			stat d mode = 1755
		`),
		Script("of the case's own directory by dot", `
			mkdir d 755
			chmod d/. 700
			stat d mode = 0700
			mkdir d/e 755
			chmod d/e/.. 711
			stat d mode = 0711
		`),
		Script("needs search permission on the way and nothing else", `
			mkdir d 755
			mkdir d/e 755
			create d/e/f 644
			chown d/e/f 1001 1001
			chmod d/e 644
			1001:1001 chmod d/e/f 600 = EACCES
			chmod d/e 711
			1001:1001 chmod d/e/f 600
			stat d/e/f mode = 0600
		`),
		Script("of a missing name and a trailing slash", `
			create f 644
			mkdir d 755
			chmod none 644 = ENOENT
			chmod f/ 644 = ENOTDIR
			chmod d/ 700
			stat d mode = 0700
			symlink none dangling
			chmod dangling 644 = ENOENT
		`),
		Script("fchmod on open, read-only and unlinked files", `
			h=open f O_RDONLY|O_CREAT 600
			fchmod h 6755
			stat f mode = 6755
			unlink f
			fchmod h 640
			fstat h mode,nlink = 0640 0
			mkdir d 755
			g=open d O_RDONLY|O_DIRECTORY
			fchmod g 1777
			stat d mode = 1777
		`),
		Script("fchmod is refused to others and on O_PATH", `
			create f 666
			1001:1001 h=open f O_RDWR
			1001:1001 fchmod h 777 = EPERM
			p=open f O_PATH
			fchmod p 777 = EBADF
			stat f mode = 0666
		`),
		Script("an open handle keeps working after permissions go", `
			create f 666
			1001:1001 h=open f O_RDWR
			chmod f 0
			1001:1001 open f O_RDONLY = EACCES
			1001:1001 fwrite h still
			1001:1001 pread h 10 0 = still
		`),
		Script("every hard link shows the new mode", `
			create f 644
			link f g
			chmod g 4711
			stat f mode,nlink = 4711 2
		`),
	},
)}
