package posix

import "strings"

// setidTable writes in one way to a file with every combination of set-id bits,
// and says what is left.
func setidTable(name, step string, root bool) Case {
	var text strings.Builder
	text.WriteString("create f 644\n truncate f 100\n")
	who := "1002:1002 "
	if root {
		who = ""
	}
	for _, m := range [][2]string{
		{"4777", "0777"}, {"2777", "0777"}, {"6777", "0777"}, {"2767", "0767"}, {"6767", "0767"},
		{"4666", "0666"}, {"1777", "1777"}, {"7777", "1777"}, {"0777", "0777"},
	} {
		want := m[1]
		if root {
			want = m[0]
		}
		text.WriteString("chmod f " + m[0] + "\n" + who + step + "\n stat f mode = " + want + "\n")
	}
	return Script(name, text.String())
}

var setidGroup = Group{"setid", Join(
	[]Case{
		setidTable("write by another user clears", "write f data", false),
		setidTable("write by root keeps", "write f data", true),
		setidTable("append by another user clears", "append f data", false),
		setidTable("truncate by another user clears", "truncate f 50", false),
		setidTable("truncate by root keeps", "truncate f 50", true),
		setidTable("O_TRUNC by another user clears", "open f O_WRONLY|O_TRUNC", false),
		setidTable("fallocate by another user clears", "falloc f plain 0 100", false),
		Script("writing through a handle clears, each time", `
			create f 666
			1001:1001 h=open f O_RDWR
			chmod f 6777
			1001:1001 fwrite h x
			stat f mode = 0777
			chmod f 4777
			1001:1001 pwrite h y 0
			stat f mode = 0777
			chmod f 4777
			1001:1001 ftruncate h 100
			stat f mode = 0777
		`),
		Script("set-gid without group execute stays for members", `
			create f 666
			chown f 0 2001
			chmod f 2666
			1001:2001 write f x
			stat f mode = 2666
			1001:1001:5,2001 truncate f 0
			stat f mode = 2666
			1001:1001 write f x
			stat f mode = 0666
		`),
		Script("the owner's own write clears", `
			create f 644
			chown f 1001 1001
			chmod f 6755
			1001:1001 write f x
			stat f mode = 0755
			chmod f 6755
			1001:1001 truncate f 0
			stat f mode = 0755
		`),
		Script("clearing by a write moves ctime and mtime", `
			create f 644
			chmod f 4777
			mark f
			1001:1001 write f x
			moved f = mc
			stat f mode = 0777
		`),
		Script("reading, failing writes and new links clear nothing", `
			create f 644
			chmod f 6755
			1001:1001 read f = ""
			1001:1001 write f x = EACCES
			1001:1001 truncate f 0 = EACCES
			link f g
			rename g h
			utimes f 1.0 1.0
			setx f user.a v
			stat f mode = 6755
		`),
		Script("chmod by the owner sets and clears", `
			create f 644
			chown f 1001 1001
			1001:1001 chmod f 6755
			stat f mode = 6755
			1001:1001 chmod f 755
			stat f mode = 0755
		`),
	},
)}

var setgidGroup = Group{"setgid directories", Join(
	Each("give their group to a new", Kinds, `
		mkdir p 755
		chown p 0 3001
		chmod p 2777
		make $K p/n 644
		lstat p/n gid = 3001
		chmod p 777
		make $K p/m 644
		lstat p/m gid = 0
	`),
	Each("give their group also to another user's", "file dir fifo sock symlink", `
		mkdir p 755
		chown p 0 3001
		chmod p 2777
		1001:1001 make $K p/n 644
		lstat p/n uid,gid = 1001 3001
		1001:1001:3001 make $K p/m 644
		lstat p/m uid,gid = 1001 3001
	`),
	[]Case{
		Script("a new set-gid program of a stranger loses set-gid", `
			mkdir p 755
			chown p 0 3001
			chmod p 2777
			1001:1001 open p/a O_RDWR|O_CREAT 2755
			stat p/a mode,gid = 0755 3001
			1001:1001:3001 open p/b O_RDWR|O_CREAT 2755
			stat p/b mode,gid = 2755 3001
			open p/c O_RDWR|O_CREAT 2755
			stat p/c mode,gid = 2755 3001
			1001:1001 open p/d O_RDWR|O_CREAT 2644
			stat p/d gid = 3001
		`),
		Script("chmod of a set-gid directory by a stranger to the group drops it", `
			mkdir p 755
			chown p 1001 3001
			chmod p 2755
			1001:1001 chmod p 2777
			stat p mode = 0777
			1001:1001:3001 chmod p 2777
			stat p mode = 2777
		`),
		Script("the new group decides who may write", `
			mkdir p 755
			chown p 0 3001
			chmod p 2777
			umask=002 1001:1001 open p/f O_RDWR|O_CREAT 666
			stat p/f mode,gid = 0664 3001
			1002:1002:3001 write p/f member
			1003:1003 write p/f stranger = EACCES
		`),
	},
)}
