package posix

var utimensGroup = Group{"utimensat", Join(
	Each("sets both times to the nanosecond on", NonLinks, `
		make $K n 644
		utimes n 1900000000.000000001 1900000001.999999999
		stat n atime,mtime = 1900000000.000000001 1900000001.999999999
		utimes n 1.0 2.5
		stat n atime,mtime = 1.000000000 2.000000005
		utimes n 0.0 0.0
		stat n atime,mtime = 0.000000000 0.000000000
	`),
	Each("moves ctime of", NonLinks, `
		make $K n 644
		utimes n 5.0 6.0
		mark n
		utimes n 5.0 6.0
		moved n = c
		mark n
		utimes n now now
		moved n = mc
	`),
	Each("UTIME_OMIT leaves one time of", NonLinks, `
		make $K n 644
		utimes n 100.7 200.8
		utimes n omit 300.9
		stat n atime,mtime = 100.000000007 300.000000009
		utimes n 400.1 omit
		stat n atime,mtime = 400.000000001 300.000000009
		mark n
		utimes n omit omit
		moved n = -
		stat n atime,mtime = 400.000000001 300.000000009
	`),
	[]Case{
		Script("UTIME_NOW is the present", `
			create f 644
			utimes f 1.0 1.0
			mark f
			utimes f omit now
			moved f = mc
			stat f atime = 1.000000000
			utimes f 2.0 2.0
			utimes f now omit
			stat f mtime = 2.000000000
		`),
		Script("of a symlink itself", `
			create f 644
			utimes f 1.0 2.0
			symlink f l
			utimes l 3.3 4.4 nofollow
			lstat l atime,mtime = 3.000000003 4.000000004
			stat l atime,mtime = 1.000000000 2.000000000
			utimes l 5.0 6.0
			stat f atime,mtime = 5.000000000 6.000000000
			lstat l mtime = 4.000000004
			symlink none m
			utimes m 1.0 1.0 = ENOENT
			utimes m 1.0 1.0 nofollow
			lstat m mtime = 1.000000000
		`),
		Script("before 1970", `
			create f 644
			utimes f -1.0 -1.999999999
			stat f atime,mtime = -1.000000000 -1.999999999
			utimes f -2147483648.0 -2147483647.5
			stat f atime,mtime = -2147483648.000000000 -2147483647.000000005
			utimes f -1000000000.123456789 0.0
			stat f atime,mtime = -1000000000.123456789 0.000000000
		`),
		Script("after 2038 and 2106", `
			create f 644
			utimes f 2147483648.1 4294967295.2
			stat f atime,mtime = 2147483648.000000001 4294967295.000000002
			utimes f 4294967296.3 9223372036.854775807
			stat f atime,mtime = 4294967296.000000003 9223372036.854775807
			utimes f 9223372037.0 15032385534.999999999
			stat f atime,mtime = 9223372037.000000000 15032385534.999999999
		`),
		Script("before 1901 and far after 2446", `
			create f 644
			utimes f -2147483649.1 -62135596800.0
			stat f atime,mtime = -2147483649.000000001 -62135596800.000000000
			utimes f 15032385536.7 253402300799.999999999
			stat f atime,mtime = 15032385536.000000007 253402300799.999999999
		`, CapWideTimes),
		Script("nanoseconds out of range are EINVAL", `
			create f 644
			utimes f 1.0 1.0
			utimes f 2.1000000000 2.0 = EINVAL
			utimes f 2.0 2.-1 = EINVAL
			utimes f 2.4294967295 2.0 = EINVAL
			stat f atime,mtime = 1.000000000 1.000000000
		`),
		Script("explicit times by the owner and root only", `
			mkdir d 755
			create d/f 666
			chown d/f 1001 1001
			1001:1001 utimes d/f 1.0 2.0
			1002:1002 utimes d/f 3.0 4.0 = EPERM
			1002:1002 utimes d/f omit 4.0 = EPERM
			1002:1002 utimes d/f now omit = EPERM
			1002:1002 utimes d/f omit now = EPERM
			stat d/f atime,mtime = 1.000000000 2.000000000
			utimes d/f 5.0 6.0
			stat d/f atime,mtime = 5.000000000 6.000000000
		`),
		Script("both now by whoever may write", `
			create f 664
			chown f 1001 2001
			utimes f 1.0 1.0
			1002:1002 utimes f now now = EACCES
			stat f atime,mtime = 1.000000000 1.000000000
			mark f
			1002:2001 utimes f now now
			moved f = mc
			mark f
			1003:1003:2001 utimes f now now
			moved f = mc
			chmod f 444
			1001:1001 utimes f now now
			1001:1001 utimes f 9.0 9.0
			stat f mtime = 9.000000000
			1002:2001 utimes f now now = EACCES
		`),
		Script("omit twice needs no permission", `
			create f 600
			1002:1002 utimes f omit omit
		`),
		Script("directories keep times that were set", `
			mkdir d 755
			utimes d 7.7 8.8
			stat d atime,mtime = 7.000000007 8.000000008
			create d/f 644
			mark d
			utimes d/f 1.1 1.1
			moved d = -
			ls d = f
			unlink d/f
		`),
		Script("times survive chmod, chown, link and rename", `
			create f 644
			utimes f 123.4 567.8
			chmod f 600
			chown f 1 1
			link f g
			rename f h
			setx h user.a b
			stat h atime,mtime = 123.000000004 567.000000008
			stat g mtime = 567.000000008
		`),
		Script("missing names and paths through files", `
			utimes none 1.0 1.0 = ENOENT
			create f 644
			utimes f/ 1.0 1.0 = ENOTDIR
			utimes f/x 1.0 1.0 = ENOTDIR
			mkdir d 700
			create d/f 666
			1001:1001 utimes d/f now now = EACCES
		`),
		Script("writing after setting moves mtime on", `
			create f 644
			utimes f 1.0 1.0
			mark f
			write f x
			moved f = mc
			stat f atime = 1.000000000
		`),
		Script("mtime may go far ahead and writing brings it back", `
			create f 644
			utimes f 4000000000.0 4000000000.0
			append f x
			utimes f omit now
			stat f atime,size = 4000000000.000000000 1
		`),
	},
)}
