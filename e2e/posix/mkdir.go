package posix

import "strings"

// newNode is what every call that makes a node has to do; $C is the call up to
// the new path with a mode of 755, $T what stat calls the result.
const newNode = `
	$C n $M
	lstat n type,uid,gid,nlink = $T 0 0 $N
	$C n $M = EEXIST
	$C none/n $M = ENOENT
	create f 644
	$C f/n $M = ENOTDIR
	$C f $M = EEXIST
	symlink dangling l
	$C l $M = EEXIST
	symlink loop loop
	$C loop $M = EEXIST
	$C loop/n $M = ELOOP
	$C {n255} $M
	lstat {n255} type = $T
	$C {n256} $M = ENAMETOOLONG
	$C {n256}/n $M = ENAMETOOLONG
`

const newNodeOwner = `
	mkdir d 755
	chown d 1001 1001
	1001:1001 $C d/own $M
	lstat d/own type,uid,gid = $T 1001 1001
	1002:1002 $C d/no $M = EACCES
	chmod d 777
	1002:2002:2003 $C d/grp $M
	lstat d/grp uid,gid = 1002 2002
	chmod d 2777
	chown d 1001 3001
	1002:2002 $C d/inh $M
	lstat d/inh uid,gid = 1002 3001
	chmod d 666
	1002:1002 $C d/nosearch $M = EACCES
	chmod d 1777
	1002:1002 $C d/sticky $M
	mkdir e 770
	chown e 0 2005
	1002:1002 $C e/no $M = EACCES
	1002:1002:2004,2005 $C e/supp $M
	lstat e/supp uid,gid = 1002 1002
`

const newNodeTimes = `
	mkdir d 755
	mark d
	$C d/n $M
	moved d = mc
	lstat d/n type = $T
	moved d/n d = mc
	mark d
	$C d/n $M = EEXIST
	moved d = -
`

// newNodeCases instantiates the three for a call.
func newNodeCases(name, call, mode, kind, nlink string) []Case {
	r := strings.NewReplacer("$C", call, "$M", mode, "$T", kind, "$N", nlink)
	return []Case{
		Script(name+" makes it and refuses bad names", r.Replace(newNode)),
		Script(name+" owner, group and permission", r.Replace(newNodeOwner)),
		Script(name+" times", r.Replace(newNodeTimes)),
	}
}

var mkdirGroup = Group{"mkdir", Join(
	newNodeCases("mkdir", "mkdir", "755", "dir", "2"),
	Each("over an existing", Kinds, `
		make $K n 644
		mkdir n 755 = EEXIST
		lstat n type = $K
	`),
	[]Case{
		Script("mode and umask", `
			mkdir a 755
			stat a mode = 0755
			mkdir b 1777
			stat b mode = 1777
			umask=022 mkdir c 777
			stat c mode = 0755
			umask=077 mkdir d 777
			stat d mode = 0700
			umask=777 mkdir e 777
			stat e mode = 0000
			umask=070 mkdir f 151
			stat f mode = 0101
			umask=501 mkdir g 345
			stat g mode = 0244
			mkdir h 0
			stat h mode = 0000
		`),
		Script("set-uid and set-gid of the argument are ignored", `
			mkdir a 6755
			stat a mode = 0755
		`),
		Script("set-gid of the parent is inherited, umask or not", `
			mkdir p 755
			chown p 1001 3001
			chmod p 2777
			mkdir p/a 755
			stat p/a mode,gid = 2755 3001
			umask=077 mkdir p/b 777
			stat p/b mode,gid = 2700 3001
			1002:1002 mkdir p/c 755
			stat p/c mode,uid,gid = 2755 1002 3001
			mkdir p/a/x 700
			stat p/a/x mode,gid = 2700 3001
			create p/a/x/f 644
			stat p/a/x/f mode,gid = 0644 3001
		`),
		Script("link counts of the directory and its parent", `
			mkdir p 755
			stat p nlink = 2
			mkdir p/a 755
			mkdir p/b 755
			stat p nlink = 4
			stat p/a nlink = 2
			create p/f 644
			stat p nlink = 4
			rmdir p/a
			stat p nlink = 3
		`),
		Script("dot, dot-dot and trailing slashes", `
			mkdir d 755
			mkdir d/. 755 = EEXIST
			mkdir d/.. 755 = EEXIST
			mkdir d/x/. 755 = ENOENT
			mkdir d/y/ 755
			stat d/y type = dir
			mkdir d/z// 755
			mkdir ./d//w 755
			ls d = w y z
			symlink gone l
			mkdir l/ 755 = EEXIST
		`),
		Script("new directory is empty and lists nothing", `
			mkdir d 755
			ls d = ""
			stat d type,nlink = dir 2
			same d d/. = yes
			same . d/.. = yes
		`),
	},
)}

var rmdirGroup = Group{"rmdir", Join(
	[]Case{
		Script("removes an empty directory", `
			mkdir d 755
			rmdir d
			lstat d = ENOENT
			rmdir d = ENOENT
			mkdir d 755
			ls d = ""
		`),
		Script("dot, dot-dot and trailing slashes", `
			mkdir d 755
			mkdir d/e 755
			rmdir d/e/. = EINVAL
			rmdir d/e/.. = ENOTEMPTY
			rmdir d/e/
			lstat d/e = ENOENT
			symlink d l
			rmdir l = ENOTDIR
			rmdir l/ = ENOTDIR
			lstat l type = symlink
		`),
		Script("times of the parent", `
			mkdir p 755
			mkdir p/d 755
			mark p
			rmdir p/d
			moved p = mc
			mkdir p/d 755
			create p/d/f 644
			mark p p/d
			rmdir p/d = ENOTEMPTY
			moved p = -
			moved p/d = -
		`),
		Script("parent not writable or not searchable", `
			mkdir p 755
			mkdir p/d 777
			1001:1001 rmdir p/d = EACCES
			chmod p 666
			1001:1001 rmdir p/d = EACCES
			chmod p 777
			1001:1001 rmdir p/d
		`),
		Script("an open directory that was removed", `
			mkdir d 755
			h=open d O_RDONLY|O_DIRECTORY
			rmdir d
			fstat h type,nlink = dir 0
			fls h = ENOENT|
			fchmod h 700
			fstat h mode = 0700
			lstat d = ENOENT
		`),
		Script("nothing is made in a removed directory", `
			mkdir d 755
			h=open d O_RDONLY|O_DIRECTORY
			rmdir d
			mkdir d 711
			fstat h nlink = 0
			create d/f 644
			fls h = ENOENT|
			ls d = f
		`),
	},
	Each("not empty because of a", Kinds, `
		mkdir d 755
		make $K d/n 644
		rmdir d = ENOTEMPTY|EEXIST
		lstat d/n type = $K
	`),
	Each("is ENOTDIR on a", NonDirs, `
		make $K n 644
		rmdir n = ENOTDIR
		lstat n type = $K
	`),
)}
