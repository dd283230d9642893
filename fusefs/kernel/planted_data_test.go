package kernel

import (
	"context"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// dataBugs are about contents, space and extended attributes.
var dataBugs = []bug{
	{
		name: "an append goes to the end that the mount knew", mounts: 2,
		cases: []string{"open/O_APPEND writes at the end whatever the offset", "nodes/O_APPEND from both sides loses and mixes nothing"},
		plant: staleAppend,
	},
	{
		name:  "what a truncation cut off comes back",
		cases: []string{"truncate/shrinks and grows with zeros", "truncate/across block boundaries leaves no stale bytes"},
		plant: keptTail,
	},
	{
		name:  "a block that a truncation cuts keeps its bytes",
		cases: []string{"truncate/across block boundaries leaves no stale bytes"},
		plant: keptBlock,
	},
	{
		name:  "punching leaves blocks that are not whole",
		cases: []string{"fallocate/punch and zero at every edge against a byte array"},
		plant: changing(func(op *fsop.Fallocate) {
			if op.Mode&fsop.FallocPunchHole != 0 {
				end := (op.Offset + op.Length) &^ 4095
				op.Offset = (op.Offset + 4095) &^ 4095
				op.Length = max(end, op.Offset+1) - op.Offset
			}
		}),
	},
	{
		name:  "offsets have 32 bits",
		cases: []string{"truncate/grows to terabytes without blocks", "io/a large sparse offset works on every side"},
		plant: func(s *oneSession, next call) call {
			write := changing(func(op *fsop.Write) { op.Offset &= 1<<32 - 1 })
			read := changing(func(op *fsop.Read) { op.Offset &= 1<<32 - 1 })
			return write(s, read(s, next))
		},
	},
	{
		name:  "a read ends at a border of 64 KiB",
		cases: []string{"io/a large write and reads of every size"},
		plant: changing(func(op *fsop.Read) {
			border := (op.Offset | (64<<10 - 1)) + 1
			op.Length = uint32(min(uint64(op.Length), border-op.Offset))
		}),
	},
	{
		name:  "SEEK_HOLE finds none before the end",
		cases: []string{"seek/data between holes", "seek/a file that is all hole", "seek/sparse files cost what they hold"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.Seek, next call) (*fsop.Reply, error) {
			rep, err := next.do(ctx, &fsop.GetAttr{Ino: op.Ino})
			if !ok(rep, err) || op.Whence != fsop.SeekHole || op.Offset >= rep.Attrs[0].Size {
				return next(ctx, req)
			}
			return &fsop.Reply{Offset: rep.Attrs[0].Size}, nil
		}),
	},
	{
		name:  "statfs never changes",
		cases: []string{"statfs/allocating a lot makes free space smaller"},
		plant: func(_ *oneSession, next call) call {
			var once sync.Once
			var first fsop.StatFS
			return answering(func(ctx context.Context, req *fsop.Request, _ *fsop.StatFSQuery, next call) (*fsop.Reply, error) {
				rep, err := next(ctx, req)
				if ok(rep, err) {
					once.Do(func() { first = *rep.FS })
					fs := first
					rep.FS = &fs
				}
				return rep, err
			})(nil, next)
		},
	},
	{
		name:  "XATTR_CREATE replaces",
		cases: []string{"xattr/user on a file"},
		plant: changing(func(op *fsop.SetXattr) { op.Flags &^= fsop.XattrCreate }),
	},
	{
		name:  "an empty extended attribute is none",
		cases: []string{"xattr/user on a file", "xattr/values of many sizes"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.SetXattr, next call) (*fsop.Reply, error) {
			if len(op.Value) > 0 {
				return next(ctx, req)
			}
			rep, err := next.do(ctx, &fsop.RemoveXattr{Ino: op.Ino, Name: op.Name})
			if err == nil && rep.Errno == fsop.ENODATA {
				rep.Errno = fsop.OK
			}
			return rep, err
		}),
	},
	{
		name:  "values of extended attributes end at a zero byte",
		cases: []string{"xattr/user on a file", "xattr/names are bytes"},
		plant: changing(func(op *fsop.SetXattr) {
			for i, b := range op.Value {
				if b == 0 {
					op.Value = op.Value[:i]
					return
				}
			}
		}),
	},
}

// staleAppend writes at the size that this mount saw last.
func staleAppend(_ *oneSession, next call) call {
	var mu sync.Mutex
	size := map[fsop.Ino]uint64{}
	return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
		if op, write := req.Op.(*fsop.Write); write && op.Append {
			stale := *op
			mu.Lock()
			stale.Append, stale.Offset = false, size[op.Ino]
			mu.Unlock()
			req = &fsop.Request{Op: &stale, Tag: req.Tag, Sub: req.Sub}
		}
		rep, err := next(ctx, req)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			attrsOf(rep, func(a *fsop.Attr) { size[a.Ino] = a.Size })
		}
		return rep, err
	}
}

// keptTail writes what a truncation cut off again when the file grows.
func keptTail(_ *oneSession, next call) call {
	var mu sync.Mutex
	tails := map[fsop.Ino]*fsop.Write{}
	return answering(func(ctx context.Context, req *fsop.Request, op *fsop.SetAttr, next call) (*fsop.Reply, error) {
		if op.Valid&fsop.SetSize == 0 {
			return next(ctx, req)
		}
		mu.Lock()
		defer mu.Unlock()
		before, err := next.do(ctx, &fsop.GetAttr{Ino: op.Ino})
		if !ok(before, err) {
			return before, err
		}
		size := before.Attrs[0].Size
		if op.Size < size {
			cut, err := next.do(ctx, &fsop.Read{Ino: op.Ino, Offset: op.Size, Length: uint32(min(size-op.Size, fsop.DataMax))})
			if !ok(cut, err) {
				return cut, err
			}
			tails[op.Ino] = &fsop.Write{Ino: op.Ino, Offset: op.Size, Data: cut.Data}
			return next(ctx, req)
		}
		rep, err := next(ctx, req)
		if tail := tails[op.Ino]; tail != nil && ok(rep, err) {
			delete(tails, op.Ino)
			tail.Data = tail.Data[:min(uint64(len(tail.Data)), op.Size-min(op.Size, tail.Offset))]
			if wrote, err := next.do(ctx, tail); !ok(wrote, err) {
				return wrote, err
			}
			return next.do(ctx, &fsop.GetAttr{Ino: op.Ino})
		}
		return rep, err
	})(nil, next)
}

// keptBlock is keptTail for the rest of the block in which the cut is: what a
// tree does that frees blocks and forgets to zero the last.
func keptBlock(_ *oneSession, next call) call {
	return answering(func(ctx context.Context, req *fsop.Request, op *fsop.SetAttr, next call) (*fsop.Reply, error) {
		if op.Valid&fsop.SetSize == 0 || op.Size%4096 == 0 {
			return next(ctx, req)
		}
		cut, err := next.do(ctx, &fsop.Read{Ino: op.Ino, Offset: op.Size, Length: uint32(4096 - op.Size%4096)})
		if !ok(cut, err) {
			return cut, err
		}
		rep, err := next(ctx, req)
		if !ok(rep, err) || len(cut.Data) == 0 {
			return rep, err
		}
		if wrote, err := next.do(ctx, &fsop.Write{Ino: op.Ino, Offset: op.Size, Data: cut.Data}); !ok(wrote, err) {
			return wrote, err
		}
		// The size is right; only the bytes behind it are not what they should be.
		hidden := call(next).showing(func(a *fsop.Attr) {
			if a.Ino == op.Ino {
				a.Size = op.Size
			}
		})
		return hidden.do(ctx, &fsop.GetAttr{Ino: op.Ino})
	})(nil, next)
}
