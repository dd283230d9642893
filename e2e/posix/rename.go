package posix

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

var renameGroup = Group{"rename", Join(
	Each("keeps the inode of", Kinds, `
		make $K a 644
		lchown a 1001 1002
		link a keep = success|EPERM
		mkdir d 755
		rename a b
		lstat a = ENOENT
		lstat b type,uid,gid = $K 1001 1002
		rename b d/c
		lstat b = ENOENT
		lstat d/c type,uid,gid = $K 1001 1002
		rename d/c a
		lstat a type,uid,gid = $K 1001 1002
		ls d = ""
	`),
	renameOverCases(),
	renameFlagCases(),
	Each("times of both directories and ctime of the", Kinds, `
		mkdir d 755
		mkdir e 755
		make $K d/n 644
		mark d e d/n
		rename d/n e/m
		moved d = mc
		moved e = mc
		moved e/m d/n = c
		mark e e/m
		rename e/m e/k
		moved e = mc
		moved e/k e/m = c
		mark e
		rename e/none e/x = ENOENT
		moved e = -
	`),
	renameTreeCases,
	renamePermCases,
)}

// renameOverCases is the matrix of every kind over every kind.
func renameOverCases() (cases []Case) {
	for _, from := range strings.Fields(Kinds) {
		for _, to := range append(strings.Fields(Kinds), "fulldir") {
			cases = append(cases, Script(fmt.Sprintf("%s over %s", from, to), renameOver(from, to, "")),
				Script(fmt.Sprintf("NOREPLACE %s over %s", from, to), renameNoreplace(from, to)),
				Script(fmt.Sprintf("EXCHANGE %s with %s", from, to), renameExchange(from, to)))
		}
	}
	return cases
}

// makeTarget is the text that makes a target of a kind, and what lstat calls it.
func makeTarget(to string) (text, kind string) {
	if to == "fulldir" {
		return "mkdir b 755\n create b/child 644\n", "dir"
	}
	return "make " + to + " b 644\n", to
}

func renameOver(from, to, flag string) string {
	text, kind := makeTarget(to)
	text = "make " + from + " a 644\n" + text
	want := ""
	switch {
	case from == "dir" && kind != "dir":
		want = "ENOTDIR"
	case from != "dir" && kind == "dir":
		want = "EISDIR"
	case to == "fulldir":
		want = "ENOTEMPTY|EEXIST"
	}
	if want != "" {
		return text + "mark .\n rename a b = " + want + "\n lstat a type = " + from + "\n lstat b type = " + kind + "\n moved . = -\n"
	}
	keep := ""
	if kind != "dir" {
		keep = "link b keep\n lstat keep nlink = 2\n"
	}
	text += keep + "mark . b\n rename a b\n lstat a = ENOENT\n lstat b type = " + from + "\n moved . = mc\n"
	if keep != "" {
		text += "lstat keep type,nlink = " + kind + " 1\n moved keep b = c\n"
	} else {
		text += "stat . nlink = 3\n"
	}
	return text
}

func renameNoreplace(from, to string) string {
	text, kind := makeTarget(to)
	return "make " + from + " a 644\n" + text + `
		mark . a b
		rename a b noreplace = EEXIST
		lstat a type = ` + from + `
		lstat b type = ` + kind + `
		moved . = -
		moved a = -
		moved b = -
		rename a c noreplace
		lstat c type = ` + from + `
		lstat a = ENOENT
		moved c a = c
	`
}

func renameExchange(from, to string) string {
	text, kind := makeTarget(to)
	text = "mkdir d 755\nmake " + from + " a 644\n" + text + `
		rename b d/b
		mark . d a d/b
		rename a d/b exchange
		lstat a type = ` + kind + `
		lstat d/b type = ` + from + `
		moved . = mc
		moved d = mc
		moved a d/b = c
		moved d/b a = c
	`
	links := func(path string, n int, dirs ...string) {
		for _, k := range dirs {
			if k == "dir" {
				n++
			}
		}
		text += fmt.Sprintf("stat %s nlink = %d\n", path, n)
	}
	links(".", 3, kind)
	links("d", 2, from)
	if to == "fulldir" {
		text += "ls a = child\n"
	}
	if from == "dir" {
		text += "same d/b/.. d = yes\n"
	}
	if kind == "dir" {
		text += "same a/.. . = yes\n"
	}
	return text + "rename a d/b exchange\n lstat a type = " + from + "\n lstat d/b type = " + kind + "\n"
}

func renameFlagCases() []Case {
	return []Case{
		Script("NOREPLACE of a missing source, into a missing directory", `
			create f 644
			rename none x noreplace = ENOENT
			rename f none/x noreplace = ENOENT
			rename none f noreplace = ENOENT|EEXIST
			rename f f noreplace = EEXIST
		`),
		Script("EXCHANGE needs both names", `
			create f 644
			rename f none exchange = ENOENT
			rename none f exchange = ENOENT
			rename f none/x exchange = ENOENT
			stat f type = file
		`),
		Script("EXCHANGE of a name with itself and with its other link", `
			create f 644
			link f g
			rename f f exchange
			rename f g exchange
			stat f nlink = 2
			stat g nlink = 2
			same f g = yes
		`),
		Script("EXCHANGE with an ancestor or descendant is EINVAL", `
			mkdir a 755
			mkdir a/b 755
			mkdir a/b/c 755
			rename a a/b/c exchange = EINVAL
			rename a/b/c a exchange = EINVAL|ENOTEMPTY
			rename a a/b exchange = EINVAL
			ls a = b
		`),
		Script("EXCHANGE keeps data with the inode", `
			create a 644
			write a data-a
			create b 600
			write b data-b
			h=open a O_RDWR
			rename a b exchange
			read a = data-b
			read b = data-a
			stat b mode = 0644
			pread h 10 0 = data-a
			append b +
			pread h 10 0 = data-a+
		`),
		Script("EXCHANGE of trees keeps them whole", `
			mkdir x 755
			mkdir x/deep 755
			create x/deep/f 644
			write x/deep/f one
			create y 644
			write y two
			rename x y exchange
			read y/deep/f = one
			read x = two
			mkdir x/z 755 = ENOTDIR
			mkdir y/z 755
			ls y = deep z
		`),
		Script("contradicting and unknown flags are EINVAL", `
			create a 644
			create b 644
			rename a b both = EINVAL
			rename a b unknown = EINVAL
			lstat a type = file
		`),
	}
}

var renameTreeCases = []Case{
	Script("onto itself and onto its other link does nothing", `
		create f 644
		write f x
		rename f f
		link f g
		mark . f
		rename f g
		stat f nlink = 2
		stat g nlink = 2
		moved f = -
		mkdir d 755
		rename d d
		stat d type = dir
	`),
	Script("into its own subtree is EINVAL", `
		mkdir a 755
		mkdir a/b 755
		mkdir a/b/c 755
		rename a a/x = EINVAL
		rename a a/b/x = EINVAL
		rename a a/b/c = EINVAL
		rename a a/b = EINVAL
		rename a/b a/b/c/x = EINVAL
		ls a/b = c
	`),
	Script("onto an ancestor is ENOTEMPTY", `
		mkdir a 755
		mkdir a/b 755
		create a/b/f 644
		rename a/b/f a = ENOTEMPTY|EEXIST|EISDIR
		rename a/b a = ENOTEMPTY|EEXIST
		rename a/b/f a/b = ENOTEMPTY|EEXIST|EISDIR
	`),
	Script("dot and dot-dot are EINVAL or EBUSY", `
		mkdir d 755
		mkdir d/e 755
		rename d/. x = EINVAL|EBUSY
		rename d/.. x = EINVAL|EBUSY
		rename d/e/. d/x = EINVAL|EBUSY
		mkdir s 755
		rename s d/e/. = EINVAL|EBUSY
		rename s d/e/.. = EINVAL|EBUSY|ENOTEMPTY
		ls d = e
	`),
	Script("missing names, trailing slashes", `
		create f 644
		mkdir d 755
		rename none x = ENOENT
		rename none d = ENOENT
		rename f none/x = ENOENT
		rename f/ x = ENOTDIR
		rename f x/ = ENOTDIR
		rename f/x y = ENOTDIR
		rename d f/x = ENOTDIR
		rename d/ e
		rename e g/
		stat g type = dir
		rename "" x = ENOENT|EBUSY|EINVAL
	`),
	Script("a directory moved keeps its children and its parent changes", `
		mkdir a 755
		mkdir b 755
		mkdir a/d 755
		mkdir a/d/e 755
		create a/d/e/f 644
		write a/d/e/f deep
		stat a nlink = 3
		stat b nlink = 2
		rename a/d b/d
		stat a nlink = 2
		stat b nlink = 3
		same b/d/.. b = yes
		read b/d/e/f = deep
		stat a/d = ENOENT
		stat b/d/e/../../../a type = dir
	`),
	Script("a directory over an empty directory lowers the link count", `
		mkdir a 755
		mkdir b 755
		mkdir a/d 755
		mkdir b/d 700
		h=open b/d O_RDONLY|O_DIRECTORY
		rename a/d b/d
		stat a nlink = 2
		stat b nlink = 3
		stat b/d mode = 0755
		fstat h nlink = 0
		fls h = ENOENT|
	`),
	Script("over an open file keeps the old data for its handle", `
		create a 644
		write a new
		create b 644
		write b old
		h=open b O_RDWR
		rename a b
		read b = new
		pread h 10 0 = old
		fstat h nlink = 0
		pwrite h more 3
		pread h 10 0 = oldmore
		read b = new
	`),
	Script("an open file follows its name", `
		h=open a O_RDWR|O_CREAT
		rename a b
		fwrite h text
		read b = text
		fstat h nlink = 1
		mkdir d 755
		rename b d/c
		fwrite h +
		read d/c = text+
	`),
	Script("back and forth many times", `
		mkdir d 755
		create d/f 644
		`+strings.Repeat("rename d/f d/g\n rename d/g f\n rename f d/f\n", 20)+`
		ls d = f
		stat d/f nlink = 1
	`),
	Script("swap by three renames", `
		create a 644
		write a 1
		create b 644
		write b 2
		rename a t
		rename b a
		rename t b
		read a = 2
		read b = 1
		ls . = a b
	`),
	Script("names of 255 bytes work and 256 do not", `
		create {n255} 644
		rename {n255} a
		rename a {n255}
		stat {n255} type = file
		rename {n255} {n256} = ENAMETOOLONG
		rename {n256} b = ENAMETOOLONG
	`),
	Script("of a symlink renames the link", `
		create f 644
		symlink f l
		rename l m
		lstat m type = symlink
		readlink m = f
		create g 644
		rename g m
		lstat m type = file
		stat f type = file
		symlink f l
		rename f l
		lstat l type = file
	`),
	{Name: "deep trees move in one step", Fn: func(c *C) {
		path := "top"
		c.OK(unix.Mkdir(c.P("top"), 0o755), "mkdir top")
		for i := range 40 {
			path += "/" + num2("d", i)
			c.OK(unix.Mkdir(c.P(path), 0o755), "mkdir %s", path)
		}
		c.put(c.P(path+"/f"), []byte("bottom"))
		c.OK(unix.Rename(c.P("top"), c.P("moved")), "rename")
		c.same(c.get(c.Q(strings.Replace(path, "top", "moved", 1)+"/f")), []byte("bottom"), "file at the bottom")
		c.Want(unix.ENOENT, unix.Access(c.Q(path), unix.F_OK), "old path")
		c.Want(unix.EINVAL, unix.Rename(c.Q("moved"), c.Q(strings.Replace(path, "top", "moved", 1)+"/x")), "rename below itself")
	}},
}

var renamePermCases = []Case{
	Script("needs to write both directories", `
		mkdir a 755
		mkdir b 755
		chown a 1001 1001
		chown b 1001 1001
		1001:1001 create a/f 644
		1001:1001 rename a/f b/g
		1001:1001 rename b/g a/f
		chmod b 555
		1001:1001 rename a/f b/g = EACCES
		chmod b 755
		chmod a 555
		1001:1001 rename a/f b/g = EACCES
		chmod a 644
		1001:1001 rename a/f b/g = EACCES
		chmod a 755
		chmod b 644
		1001:1001 rename a/f b/g = EACCES
		1002:1002 rename a/f b/g = EACCES
		ls a = f
	`),
	Script("another's file moves by directory permission alone", `
		mkdir a 777
		mkdir b 777
		create a/f 0
		1001:1001 rename a/f b/g
		stat b/g mode,uid = 0000 0
	`),
	Script("of another's directory to a new parent needs to write it", `
		mkdir a 777
		mkdir b 777
		mkdir a/d 755
		1001:1001 rename a/d b/d = EACCES
		1001:1001 rename a/d a/e
		chmod a/e 777
		1001:1001 rename a/e b/d
		stat b/d type = dir
	`),
	Script("own directory that cannot be written moves within its parent only", `
		mkdir a 777
		mkdir b 777
		1001:1001 mkdir a/d 555
		1001:1001 rename a/d a/e
		1001:1001 rename a/e b/e = EACCES
		rename a/e b/e
	`),
	Script("replacing needs no permission on the victim", `
		mkdir a 777
		create a/victim 0
		1001:1001 create a/mine 644
		1001:1001 rename a/mine a/victim
		stat a/victim uid = 1001
	`),
	Script("search permission on both ways", `
		mkdir a 777
		mkdir b 777
		create a/f 644
		chmod b 700
		1001:1001 rename a/f b/f = EACCES
		chmod b 777
		chmod a 700
		1001:1001 rename a/f b/f = EACCES
	`),
	Script("set-gid of the new parent is not applied", `
		mkdir p 755
		chown p 0 3001
		chmod p 2777
		create f 644
		mkdir d 755
		rename f p/f
		rename d p/d
		stat p/f gid = 0
		stat p/d gid,mode = 0 0755
	`),
}
