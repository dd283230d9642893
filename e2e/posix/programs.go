package posix

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// programsGroup uses the filesystem as real programs do.
var programsGroup = Group{"programs", []Case{
	{Name: "git", Needs: []Cap{CapPrograms}, Deadline: 240e9, Fn: gitProgram},
	{Name: "sqlite3 from both sides", Needs: []Cap{CapPrograms, CapLocks}, Deadline: 240e9, Fn: func(c *C) { sqliteProgram(c, "delete") }},
	{Name: "sqlite3 with a write-ahead log on one side", Needs: []Cap{CapPrograms, CapLocks, CapSharedMmap}, Deadline: 240e9, Fn: sqliteWAL},
	{Name: "rsync -aHX", Needs: []Cap{CapPrograms}, Deadline: 240e9, Fn: rsyncProgram},
	{Name: "tar --xattrs", Needs: []Cap{CapPrograms}, Deadline: 240e9, Fn: tarProgram},
	{Name: "gcc and running the result", Needs: []Cap{CapPrograms}, Deadline: 240e9, Fn: gccProgram},
	{Name: "go build with its cache", Needs: []Cap{CapPrograms}, Deadline: 300e9, Fn: goProgram},
	{Name: "cp, mv, find, du, sort and rm", Needs: []Cap{CapPrograms}, Deadline: 240e9, Fn: coreutils},
	{Name: "a shell script run from the filesystem", Needs: []Cap{CapPrograms}, Fn: func(c *C) {
		c.put(c.P("run.sh"), []byte("#!/bin/sh\necho \"$0 $1\" > out\ncat out\n"))
		c.OK(unix.Chmod(c.P("run.sh"), 0o755), "chmod")
		Eq(c, c.sh(c.Q("."), "./run.sh arg"), "./run.sh arg", "output")
		c.same(c.get(c.P("out")), []byte("./run.sh arg\n"), "file")
	}},
}}

func gitProgram(c *C) {
	c.need("git")
	env := []string{"HOME=" + c.P("."), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org"}
	c.sh(c.P("."), `
		git -c init.defaultBranch=main init -q repo
		cd repo
		git config gc.auto 0
		git config maintenance.auto false
		mkdir -p a/b/c
		for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo "file $i" > a/f$i; echo "deep $i" > a/b/c/g$i; done
		ln -s a/f1 link
		chmod +x a/f2
		git add -A
		git commit -qm first`, env...)
	Eq(c, c.sh(c.Q("repo"), "git status --porcelain", env...), "", "status on the other side")
	c.sh(c.Q("repo"), `
		echo changed >> a/f3; git mv a/f4 a/moved; git rm -q a/f5
		git add -A; git commit -qm second`, env...)
	c.sh(c.P("repo"), `
		test -z "$(git status --porcelain)"
		git checkout -q -b topic HEAD~1
		echo topic > topic; git add topic; git commit -qm topic
		git checkout -q main
		git merge -q -m merge topic
		git stash list
		git gc -q
		git fsck --full --strict 2>&1`, env...)
	c.sh(c.Q("."), `
		git clone -q --no-hardlinks repo clone
		cd clone; git fsck --full 2>&1
		test "$(git rev-parse HEAD)" = "$(git -C ../repo rev-parse HEAD)"
		test "$(cat a/f3)" = "file 3
changed"`, env...)
	Eq(c, c.sh(c.P("repo"), "git log --oneline | wc -l | tr -d ' '", env...), "4", "commits")
}

// sqliteProgram lets two processes, one a side, count up in one database.
func sqliteProgram(c *C, journal string) {
	c.need("sqlite3")
	c.sh(c.P("."), `sqlite3 db "pragma journal_mode=`+journal+`; create table t(id integer primary key, who text, body text); create table n(v integer); insert into n values(0);"`)
	const rounds = 25
	work := func(dir, who string) func() {
		return func() {
			var sql strings.Builder
			sql.WriteString(".timeout 60000\n.bail on\n")
			for i := range rounds {
				fmt.Fprintf(&sql, "begin immediate; update n set v = v + 1; insert into t(who, body) values('%s', hex(randomblob(%d))); commit;\n", who, 50+i*40)
			}
			c.sh(dir, "sqlite3 -batch db <<'END'\n"+sql.String()+"END")
		}
	}
	c.Go(work(c.P("."), "p"), work(c.Q("."), "q"))
	for _, side := range c.Sides() {
		Eq(c, c.sh(side("."), `sqlite3 db ".timeout 60000" "pragma integrity_check; select v from n; select who, count(*) from t group by who order by who;"`),
			fmt.Sprintf("ok\n%d\np|%d\nq|%d", 2*rounds, rounds, rounds), "database")
	}
}

// sqliteWAL uses shared memory, which one node provides.
func sqliteWAL(c *C) {
	c.need("sqlite3")
	c.sh(c.P("."), `sqlite3 db "pragma journal_mode=wal; create table t(v); "`)
	work := func(who string) func() {
		return func() {
			c.sh(c.P("."), "sqlite3 -batch db <<'END'\n.timeout 60000\n.bail on\n"+strings.Repeat("insert into t values('"+who+"');\n", 30)+"END")
		}
	}
	c.Go(work("a"), work("b"))
	Eq(c, c.sh(c.P("."), `sqlite3 db "pragma integrity_check; select count(*) from t; pragma wal_checkpoint(truncate);"`), "ok\n60\n0|0|0", "database")
	Eq(c, c.sh(c.Q("."), `sqlite3 db "pragma journal_mode=delete; select count(*) from t;"`), "delete\n60", "database on the other side")
}

// sampleTree makes a tree with everything that archives keep.
func sampleTree(c *C, top string) {
	c.sh(top, `
		mkdir -p tree/sub/deep tree/empty
		echo one > tree/one; echo two > tree/sub/two
		ln tree/one tree/sub/hard
		ln -s ../one tree/sub/soft; ln -s nowhere tree/dangling
		mkfifo tree/fifo; mknod tree/chr c 1 3; mknod tree/blk b 7 9
		truncate -s 1M tree/sparse; printf tail >> tree/sparse
		head -c 300000 /dev/urandom > tree/random
		chmod 4751 tree/one; chmod 1777 tree/empty; chmod 2755 tree/sub; chmod 0400 tree/random
		chown 1001:1002 tree/one tree/sub/soft tree/empty 2>/dev/null; chown -h 7:8 tree/dangling
		chmod 4751 tree/one
		printf x > "tree/name with  spaces and
newline"
		printf y > "$(printf 'tree/\377\376 bytes')"
		find tree -depth -exec touch -h -d '2010-01-02 03:04:05.987654321Z' {} +
		touch -d '2001-02-03 04:05:06.789012345Z' tree/sub/two tree/fifo
		touch -h -d '1999-12-31 23:59:59.5Z' tree/dangling
		touch -d '1969-07-20 20:17:40Z' tree/empty`)
	for _, p := range []string{"tree/one", "tree/sub", "tree/random"} {
		c.OK(unix.Setxattr(top+"/"+p, "user.comment", []byte("on "+p+"\x00\xff"), 0), "set an xattr")
	}
	c.OK(unix.Utimes(top+"/tree/sub", []unix.Timeval{{Sec: 1e9}, {Sec: 1e9 + 1}}), "times of a directory")
}

// compareTrees fails the case unless two trees agree in names, types, modes,
// owners, sizes, mtimes, link targets, hard links, devices, contents and xattrs.
func compareTrees(c *C, a, b string) {
	inodes := map[uint64]uint64{}
	var walk func(p string)
	walk = func(p string) {
		x, y := statOf(c, a+p), statOf(c, b+p)
		Eq(c, c.describe(y), strings.Replace(c.describe(x), fmt.Sprintf("size %d", x.Size), fmt.Sprintf("size %d", sizeOf(x, y)), 1), "attributes of %q", p)
		Eq(c, y.Mtim, x.Mtim, "mtime of %q", p)
		Eq(c, y.Rdev, x.Rdev, "device of %q", p)
		if other, ok := inodes[x.Ino]; ok && other != y.Ino {
			c.Errorf("%q is no longer the same file as its other name", p)
		}
		inodes[x.Ino] = y.Ino
		switch typeName(x.Mode) {
		case "file":
			c.same(c.get(b+p), c.get(a+p), p)
		case "symlink":
			s, _ := os.Readlink(a + p)
			t, _ := os.Readlink(b + p)
			Eq(c, t, s, "target of %q", p)
			return
		case "dir":
			left, err := listDir(a + p)
			c.OK(err, "read %q", p)
			right, err := listDir(b + p)
			c.OK(err, "read %q", p)
			Eq(c, len(right), len(left), "entries of %q", p)
			for _, e := range left {
				walk(p + "/" + e.name)
			}
		}
		buf := make([]byte, 100)
		n, err := unix.Getxattr(a+p, "user.comment", buf)
		if err == nil {
			checkXattr(c, b+p, "user.comment", buf[:n])
		}
	}
	walk("")
}

// sizeOf is the size wanted of y: that of x, except that directories may differ.
func sizeOf(x, y unix.Stat_t) int64 {
	if x.Mode&unix.S_IFMT == unix.S_IFDIR {
		return y.Size
	}
	return x.Size
}

func rsyncProgram(c *C) {
	c.need("rsync")
	sampleTree(c, c.P("."))
	local, err := os.MkdirTemp("", "posix-rsync")
	c.OK(err, "local directory")
	c.Cleanup(func() { os.RemoveAll(local) })
	c.sh(c.Q("."), "rsync -aHX --devices --specials tree/ "+local+"/out/")
	compareTrees(c, c.P("tree"), local+"/out")
	c.sh(c.P("."), "rsync -aHXS "+local+"/out/ back/")
	compareTrees(c, c.P("tree"), c.Q("back"))
	Eq(c, c.sh(c.Q("."), "rsync -aHXn --delete -i tree/ back/"), "", "differences that rsync sees")
	c.sh(c.Q("."), "echo more >> tree/sub/two; rm -r tree/empty; touch -d 2011-01-01 tree; rsync -aHX --delete tree/ back/")
	compareTrees(c, c.P("tree"), c.P("back"))
}

func tarProgram(c *C) {
	c.need("tar")
	sampleTree(c, c.P("."))
	c.sh(c.Q("."), `tar --xattrs --xattrs-include='*' --format=pax --sparse -cf all.tar tree
		mkdir out
		tar --xattrs --xattrs-include='*' --numeric-owner -C out -xpf all.tar`)
	compareTrees(c, c.P("tree"), c.Q("out/tree"))
	Eq(c, c.sh(c.P("."), "tar --compare -f all.tar 2>&1 | grep -v 'blk: Device number' || true"), "", "differences that tar sees")
}

func gccProgram(c *C) {
	c.need("gcc")
	c.put(c.P("sum.h"), []byte("int sum(int, int);\n"))
	c.put(c.P("sum.c"), []byte("#include \"sum.h\"\nint sum(int a, int b) { return a + b; }\n"))
	c.put(c.P("main.c"), []byte("#include <stdio.h>\n#include \"sum.h\"\nint main(void) { printf(\"%d\\n\", sum(40, 2)); return 0; }\n"))
	c.sh(c.P("."), "gcc -g -c sum.c -o sum.o; ar rcs libsum.a sum.o; gcc -g main.c -L. -lsum -o main; gcc -shared -fPIC sum.c -o libsum.so", "TMPDIR="+c.P("."))
	Eq(c, c.sh(c.Q("."), "./main"), "42", "output of the program on the other side")
	c.sh(c.Q("."), "gcc main.c -L. -l:libsum.so -Wl,-rpath,'$ORIGIN' -o dyn")
	Eq(c, c.sh(c.P("."), "./dyn"), "42", "output of the program with a shared library")
}

func goProgram(c *C) {
	c.need("go")
	mustMkdir(c, "cache", 0o755)
	mustMkdir(c, "mod", 0o755)
	c.put(c.P("mod/go.mod"), []byte("module example.org/tiny\n\ngo 1.21\n"))
	c.put(c.P("mod/main.go"), []byte("package main\n\nfunc main() { println(\"built here\") }\n"))
	env := []string{"GOCACHE=" + c.P("cache"), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOTMPDIR=" + c.P("."), "GOTOOLCHAIN=local",
		"GOPATH=" + c.P("gopath"), "CGO_ENABLED=0", "GOWORK=off", "HOME=" + c.P(".")}
	// Without this a process of go's own goes on in its home directory afterwards
	// and keeps the mount busy.
	c.sh(c.P("."), "mkdir -p .config/go/telemetry; echo off > .config/go/telemetry/mode")
	c.sh(c.P("mod"), "go build -trimpath -o tiny .", env...)
	Eq(c, c.sh(c.Q("mod"), "./tiny 2>&1"), "built here", "output on the other side")
	env[0] = "GOCACHE=" + c.Q("cache")
	c.sh(c.Q("mod"), "go build -trimpath -o again . && cmp tiny again", env...)
	c.sh(c.P("."), "chmod -R u+w gopath 2>/dev/null || true")
}

func coreutils(c *C) {
	sampleTree(c, c.P("."))
	c.sh(c.Q("."), "cp -a tree copy")
	compareTrees(c, c.P("tree"), c.Q("copy"))
	c.sh(c.P("."), "mv copy moved; cp --sparse=always moved/sparse s; cmp s tree/sparse; test $(du -k s | cut -f1) -lt 100")
	compareTrees(c, c.P("tree"), c.Q("moved"))
	Eq(c, c.sh(c.Q("."), "find tree -type f | wc -l; find tree -links 2 -type f | wc -l; find moved -newermt 2001-02-03 ! -newermt 2001-02-04 | sort | tr '\\n' ' '"),
		"8\n2\nmoved/fifo moved/sub/two ", "what find finds")
	c.sh(c.P("."), "seq 20000 | sort -R > n; sort -n -S 64k -T . n > m; seq 20000 | cmp - m; tail -c 6 m; rm -r moved tree")
	Eq(c, c.sh(c.Q("."), "ls"), "m\nn\ns", "what is left")
}
