package kernel

import (
	"context"
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// attrBugs are about times, modes and counts.
var attrBugs = []bug{
	{
		name:  "set-id bits outlive a write",
		cases: []string{"setid/write by another user clears", "setid/writing through a handle clears, each time"},
		plant: func(s *oneSession, next call) call {
			write := changing(func(op *fsop.Write) { op.KillPriv = false })
			// What the kernel sends before the write.
			before := changing(func(op *fsop.SetAttr) {
				if op.Valid&^fsop.KillPriv == fsop.SetCtimeOnly || op.Valid == fsop.KillPriv {
					op.Valid = fsop.SetCtimeOnly
				}
			})
			return write(s, before(s, next))
		},
	},
	{
		name:  "set-id bits outlive truncate",
		cases: []string{"setid/truncate by another user clears", "setid/O_TRUNC by another user clears"},
		plant: changing(func(op *fsop.SetAttr) { op.Valid &^= fsop.KillPriv }),
	},
	{
		name:  "set-id bits outlive chown",
		cases: []string{"chown/clears set-id bits*of file"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.SetAttr, next call) (*fsop.Reply, error) {
			before, err := next.do(ctx, &fsop.GetAttr{Ino: op.Ino})
			if !ok(before, err) || op.Valid&(fsop.SetUID|fsop.SetGID) == 0 {
				return next(ctx, req)
			}
			if rep, err := next(ctx, req); !ok(rep, err) {
				return rep, err
			}
			return next.do(ctx, &fsop.SetAttr{Ino: op.Ino, Valid: fsop.SetMode, Mode: before.Attrs[0].Mode & fsop.ModePerm})
		}),
	},
	{
		name:  "a new name leaves the directory's mtime",
		cases: []string{"mkdir/mkdir times", "open/O_CREAT times", "symlink/symlink times"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.Create, next call) (*fsop.Reply, error) {
			before, err := next.do(ctx, &fsop.GetAttr{Ino: op.Parent})
			if !ok(before, err) {
				return before, err
			}
			rep, err := next(ctx, req)
			if !ok(rep, err) {
				return rep, err
			}
			if back, err := next.do(ctx, &fsop.SetAttr{Ino: op.Parent, Valid: fsop.SetMtime, Mtime: before.Attrs[0].Mtime}); !ok(back, err) {
				return back, err
			}
			return rep, nil
		}),
	},
	{
		name:  "link leaves the ctime of the file",
		cases: []string{"link/moves ctime of the file and both times of the directory for file"},
		plant: stillCtime[*fsop.Link],
	},
	{
		name:  "rename leaves the ctime of the file",
		cases: []string{"rename/times of both directories and ctime of the file"},
		plant: stillCtime[*fsop.Rename],
	},
	{
		name:  "unlink leaves the ctime of a file that has other names",
		cases: []string{"unlink/moves ctime of what is left, and the directory's times, for file"},
		plant: stillCtime[*fsop.Unlink],
	},
	{
		name:  "times have microseconds",
		cases: []string{"utimensat/sets both times to the nanosecond on file"},
		plant: changing(func(op *fsop.SetAttr) {
			op.Atime.Nsec -= op.Atime.Nsec % 1000
			op.Mtime.Nsec -= op.Mtime.Nsec % 1000
		}),
	},
	{
		name:  "times have 32 bits",
		cases: []string{"utimensat/after 2038 and 2106"},
		plant: changing(func(op *fsop.SetAttr) { op.Mtime.Sec = int64(int32(op.Mtime.Sec)) }),
	},
	{
		name:  "reading moves atime",
		cases: []string{"times/only utimensat moves atime"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.Read, next call) (*fsop.Reply, error) {
			rep, err := next(ctx, req)
			if ok(rep, err) {
				if moved, err := next.do(ctx, &fsop.SetAttr{Ino: op.Ino, Valid: fsop.SetAtime, Atime: fsop.TimeOf(time.Now())}); !ok(moved, err) {
					return moved, err
				}
			}
			return rep, err
		}),
	},
	{
		name:  "truncation to the same size is nothing",
		cases: []string{"truncate/times move also when the size stays"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.SetAttr, next call) (*fsop.Reply, error) {
			now, err := next.do(ctx, &fsop.GetAttr{Ino: op.Ino})
			if ok(now, err) && op.Valid&fsop.SetSize != 0 && now.Attrs[0].Size == op.Size {
				return now, nil
			}
			return next(ctx, req)
		}),
	},
	{
		name:  "a directory does not count its subdirectories",
		cases: []string{"mkdir/link counts of the directory and its parent"},
		plant: func(_ *oneSession, next call) call {
			return next.showing(func(a *fsop.Attr) {
				if a.IsDir() {
					a.Nlink = min(a.Nlink, 2)
				}
			})
		},
	},
}

// stillCtime hides that an operation moved the ctime of what is no directory.
func stillCtime[P fsop.Op](_ *oneSession, next call) call {
	type times struct{ is, shown fsop.Time }
	var mu sync.Mutex
	still := map[fsop.Ino]times{}
	last := map[fsop.Ino]fsop.Time{}
	return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		rep, err := next(ctx, req)
		if err != nil {
			return rep, err
		}
		_, hides := req.Op.(P)
		attrsOf(rep, func(a *fsop.Attr) {
			if shown, known := last[a.Ino]; known && hides && !a.IsDir() {
				still[a.Ino] = times{a.Ctime, shown}
			}
			if s := still[a.Ino]; s.is == a.Ctime {
				a.Ctime = s.shown
			}
			last[a.Ino] = a.Ctime
		})
		return rep, nil
	}
}
