package kernel

import (
	"context"
	"sync"
	"unicode/utf8"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// nameBugs are about making, moving and removing names.
var nameBugs = []bug{
	{
		name: "O_EXCL opens what is there", mounts: 2,
		cases: []string{"nodes/O_EXCL has one winner over both sides"},
		plant: changing(func(op *fsop.Create) { op.Excl = op.Excl && op.Mode&fsop.TypeMask != fsop.TypeFile }),
	},
	{
		name: "mkdir takes what is there", mounts: 2,
		cases: []string{"nodes/mkdir, link, symlink and rename NOREPLACE have one winner"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.Create, next call) (*fsop.Reply, error) {
			rep, err := next(ctx, req)
			if err == nil && rep.Errno == fsop.EEXIST && op.Mode&fsop.TypeMask == fsop.TypeDir {
				return next.do(ctx, &fsop.Lookup{Parent: op.Parent, Name: op.Name})
			}
			return rep, err
		}),
	},
	{
		name: "RENAME_NOREPLACE replaces", mounts: 2,
		cases: []string{"nodes/mkdir, link, symlink and rename NOREPLACE have one winner"},
		plant: changing(func(op *fsop.Rename) { op.Flags &^= fsop.RenameNoReplace }),
	},
	{
		name:  "RENAME_EXCHANGE replaces",
		cases: []string{"rename/EXCHANGE file with file", "rename/EXCHANGE keeps data with the inode"},
		plant: changing(func(op *fsop.Rename) { op.Flags &^= fsop.RenameExchange }),
	},
	{
		name:  "rmdir of a full directory says that it is gone",
		cases: []string{"rmdir/not empty because of a file", "rmdir/not empty because of a symlink"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.Unlink, next call) (*fsop.Reply, error) {
			rep, err := next(ctx, req)
			if op.Dir && err == nil && rep.Errno == fsop.ENOTEMPTY {
				rep.Errno = fsop.OK
			}
			return rep, err
		}),
	},
	{
		name:  "a name is gone and the file still counts it",
		cases: []string{"link/makes a second name of file", "unlink/each hard link is its own name"},
		plant: uncountedUnlink,
	},
	{
		name:  "an open file is reaped with its last name",
		cases: []string{"unlink/open file keeps its data, link count 0", "truncate/of an unlinked open file"},
		plant: func(s *oneSession, next call) call {
			return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
				rep, err := next(ctx, req)
				if _, unlink := req.Op.(*fsop.Unlink); unlink && ok(rep, err) {
					s.o.mu.Lock()
					defer s.o.mu.Unlock()
					if _, err := s.o.apply(fsop.Item{Op: &fsop.Reap{Inos: s.o.tree.Orphans(0, 1000)}}); err != nil {
						return nil, err
					}
				}
				return rep, err
			}
		},
	},
	{
		name:  "names have 254 bytes at most",
		cases: []string{"names/of 255 bytes with every call", "rename/names of 255 bytes work and 256 do not"},
		plant: refusingNames(fsop.ENAMETOOLONG, func(name []byte) bool { return len(name) > fsop.NameMax-1 }),
	},
	{
		name:  "names are UTF-8",
		cases: []string{"names/invalid UTF-8", "names/every single byte"},
		plant: refusingNames(fsop.EINVAL, func(name []byte) bool { return !utf8.Valid(name) }),
	},
	{
		name:  "link targets have 4094 bytes at most",
		cases: []string{"symlink/targets up to 4095 bytes"},
		plant: changing(func(op *fsop.Create) { op.Target = op.Target[:min(len(op.Target), fsop.TargetMax-1)] }),
	},
	{
		name:  "link targets end at a byte that is not ASCII",
		cases: []string{"symlink/targets of any bytes"},
		plant: changing(func(op *fsop.Create) {
			for i, b := range op.Target {
				if b >= 0x80 {
					op.Target = op.Target[:i+1]
					return
				}
			}
		}),
	},
	{
		name:  "device numbers have 16 bits",
		cases: []string{"mknod/device numbers of *"},
		plant: changing(func(op *fsop.Create) { op.Rdev &= 0xffff }),
	},
	{
		name:  "the group of a set-gid directory is not inherited",
		cases: []string{"setgid directories/give their group to a new file", "setgid directories/give their group also to another user's dir"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.Create, next call) (*fsop.Reply, error) {
			rep, err := next(ctx, req)
			if !ok(rep, err) || rep.Attrs[0].GID == op.GID {
				return rep, err
			}
			return next.do(ctx, &fsop.SetAttr{Ino: rep.Attrs[0].Ino, Valid: fsop.SetGID, GID: op.GID})
		}),
	},
	{
		name:  "a directory does not inherit set-gid itself",
		cases: []string{"mkdir/set-gid of the parent is inherited, umask or not"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.Create, next call) (*fsop.Reply, error) {
			rep, err := next(ctx, req)
			if !ok(rep, err) || !rep.Attrs[0].IsDir() || rep.Attrs[0].Mode&fsop.ModeSetGID == 0 {
				return rep, err
			}
			return next.do(ctx, &fsop.SetAttr{Ino: rep.Attrs[0].Ino, Valid: fsop.SetMode, Mode: op.Mode & fsop.ModePerm})
		}),
	},
}

// uncountedUnlink shows a link count that counts removed names too.
func uncountedUnlink(_ *oneSession, next call) call {
	var mu sync.Mutex
	extra := map[fsop.Ino]uint32{}
	return call(func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
		rep, err := next(ctx, req)
		if _, unlink := req.Op.(*fsop.Unlink); unlink && ok(rep, err) {
			mu.Lock()
			defer mu.Unlock()
			attrsOf(rep, func(a *fsop.Attr) {
				if !a.IsDir() && a.Nlink > 0 {
					extra[a.Ino]++
				}
			})
		}
		return rep, err
	}).showing(func(a *fsop.Attr) {
		mu.Lock()
		defer mu.Unlock()
		if a.Nlink > 0 {
			a.Nlink += extra[a.Ino]
		}
	})
}

// refusingNames refuses to make some names.
func refusingNames(errno fsop.Errno, bad func(name []byte) bool) func(*oneSession, call) call {
	return func(_ *oneSession, next call) call {
		return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
			var name []byte
			switch op := req.Op.(type) {
			case *fsop.Create:
				name = op.Name
			case *fsop.Link:
				name = op.Name
			case *fsop.Rename:
				name = op.NewName
			}
			if bad(name) {
				return &fsop.Reply{Errno: errno}, nil
			}
			return next(ctx, req)
		}
	}
}
