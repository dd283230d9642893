package kernel

import (
	"context"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// listBugs are about listings, and about remembering what another mount changes.
var listBugs = []bug{
	{
		name:  "a position in a directory is a count of entries",
		cases: []string{"readdir/a position stays valid while others come and go"},
		plant: answering(indexCookies),
	},
	{
		name:  "a listing that goes on leaves one entry out",
		cases: []string{"readdir/small buffers see everything too", "readdir/seekdir returns to where telldir was"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.ReadDir, next call) (*fsop.Reply, error) {
			rep, err := next(ctx, req)
			if ok(rep, err) && op.Cookie != 0 && len(rep.Entries) > 0 {
				rep.Entries = rep.Entries[1:]
			}
			return rep, err
		}),
	},
	{
		name:  "a listing that goes on repeats one entry",
		cases: []string{"readdir/small buffers see everything too", "readdir/seekdir returns to where telldir was"},
		plant: changing(func(op *fsop.ReadDir) { op.Cookie = max(op.Cookie, 1) - 1 }),
	},
	{
		name:  "a listing shows every entry as a file",
		cases: []string{"readdir/types and inode numbers agree with lstat"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.ReadDir, next call) (*fsop.Reply, error) {
			rep, err := next(ctx, req)
			if err == nil {
				for i := range rep.Entries {
					rep.Entries[i].Type = fsop.TypeFile >> 12
				}
			}
			return rep, err
		}),
	},
	{
		name: "a name that was absent stays so", mounts: 2,
		cases: []string{"nodes/a name that was absent appears at once"},
		plant: rememberAbsence,
	},
	{
		name: "a mount remembers attributes until it changes them itself", mounts: 2,
		cases: []string{"nodes/size, times, mode and owner are never stale"},
		plant: rememberAttrs,
	},
}

// indexCookies lists from the start every time and counts.
func indexCookies(ctx context.Context, req *fsop.Request, op *fsop.ReadDir, next call) (*fsop.Reply, error) {
	from := max(op.Cookie, posDotDot) - posDotDot
	var all []fsop.DirEntry
	for cookie := uint64(0); ; cookie = all[len(all)-1].Cookie {
		rep, err := next.with(ctx, req, &fsop.ReadDir{Ino: op.Ino, Cookie: cookie, MaxBytes: 1 << 20, Plus: op.Plus})
		if !ok(rep, err) {
			return rep, err
		}
		all = append(all, rep.Entries...)
		if rep.EOF || len(rep.Entries) == 0 {
			break
		}
	}
	all = all[min(from, uint64(len(all))):]
	for i := range all {
		all[i].Cookie = posDotDot + from + uint64(i) + 1
	}
	return &fsop.Reply{Entries: all, EOF: true}, nil
}

// rememberAbsence answers ENOENT for a name until this mount changes something in
// its directory.
func rememberAbsence(_ *oneSession, next call) call {
	type ref struct {
		parent fsop.Ino
		name   string
	}
	var mu sync.Mutex
	absent := map[ref]bool{}
	return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		op, lookup := req.Op.(*fsop.Lookup)
		if !lookup {
			if req.Op.Kind().Mutation() {
				clear(absent)
			}
			return next(ctx, req)
		}
		at := ref{op.Parent, string(op.Name)}
		if absent[at] {
			return &fsop.Reply{Errno: fsop.ENOENT}, nil
		}
		rep, err := next(ctx, req)
		absent[at] = err == nil && rep.Errno == fsop.ENOENT
		return rep, err
	}
}

// rememberAttrs answers GETATTR from what this mount saw last.
func rememberAttrs(_ *oneSession, next call) call {
	var mu sync.Mutex
	seen := map[fsop.Ino]fsop.Attr{}
	return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		if op, getattr := req.Op.(*fsop.GetAttr); getattr {
			if a, known := seen[op.Ino]; known {
				return &fsop.Reply{Attrs: []fsop.Attr{a}}, nil
			}
		}
		rep, err := next(ctx, req)
		if err == nil {
			attrsOf(rep, func(a *fsop.Attr) { seen[a.Ino] = *a })
		}
		return rep, err
	}
}
