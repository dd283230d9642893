package kernel

import (
	"context"
	"math"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// lockBugs are about advisory locks.
var lockBugs = []bug{
	{
		name:  "a conversion loses the lock",
		cases: []string{"fcntl/POSIX upgrading and downgrading part of a range", "flock/exclusive excludes, shared is shared"},
		plant: lostConversion,
	},
	{
		name:  "unlocking a part unlocks the whole",
		cases: []string{"fcntl/POSIX unlocking the middle splits", "fcntl/OFD unlocking the middle splits"},
		plant: changing(func(op *fsop.Lock) {
			if op.Lock.Type == fsop.LockUnlock {
				op.Lock.Start, op.Lock.End = 0, math.MaxUint64
			}
		}),
	},
	{
		name:  "locks cover whole files",
		cases: []string{"fcntl/POSIX writers exclude writers and readers", "fcntl/POSIX a refused request changes nothing"},
		plant: changing(func(op *fsop.Lock) { op.Lock.Start, op.Lock.End = 0, math.MaxUint64 }),
	},
	{
		name:  "readers exclude readers",
		cases: []string{"fcntl/POSIX readers share and keep writers out", "flock/exclusive excludes, shared is shared"},
		plant: changing(func(op *fsop.Lock) {
			if op.Lock.Type == fsop.LockRead {
				op.Lock.Type = fsop.LockWrite
			}
		}),
	},
	{
		name:  "closing leaves the locks",
		cases: []string{"fcntl/any close of the file drops the process's locks"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.Lock, next call) (*fsop.Reply, error) {
			if l := op.Lock; l.Type == fsop.LockUnlock && l.PID == 0 && l.End == math.MaxUint64 {
				return &fsop.Reply{}, nil
			}
			return next(ctx, req)
		}),
	},
	{
		name:  "F_GETLK finds nobody",
		cases: []string{"fcntl/F_GETLK names the lock in the way"},
		plant: answering(func(ctx context.Context, req *fsop.Request, op *fsop.GetLock, next call) (*fsop.Reply, error) {
			free := op.Lock
			free.Type = fsop.LockUnlock
			return &fsop.Reply{Lock: &free}, nil
		}),
	},
	{
		name: "a lock holds on its own mount only", mounts: 2,
		cases: []string{"flock/exclusive excludes, shared is shared", "fcntl/POSIX writers exclude writers and readers"},
		plant: ownMountOnly,
	},
	{
		name:  "flock and fcntl locks meet",
		cases: []string{"flock/flock and fcntl locks do not meet"},
		plant: changing(func(op *fsop.Lock) { op.Lock.Kind = fsop.Posix }),
	},
}

// lostConversion drops a lock when its owner asks for another type.
func lostConversion(_ *oneSession, next call) call {
	type owner struct {
		ino  fsop.Ino
		kind fsop.LockKind
		id   uint64
	}
	var mu sync.Mutex
	held := map[owner]fsop.LockType{}
	return answering(func(ctx context.Context, req *fsop.Request, op *fsop.Lock, next call) (*fsop.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		rep, err := next(ctx, req)
		if !ok(rep, err) {
			return rep, err
		}
		by := owner{op.Ino, op.Lock.Kind, op.Lock.Owner}
		before := held[by]
		held[by] = op.Lock.Type
		if op.Lock.Type == fsop.LockUnlock || before == op.Lock.Type || before == 0 || before == fsop.LockUnlock {
			return rep, nil
		}
		gone := op.Lock
		gone.Type = fsop.LockUnlock
		return next.do(ctx, &fsop.Lock{Ino: op.Ino, Lock: gone})
	})(nil, next)
}

// ownMountOnly grants what only another mount's locks are in the way of.
func ownMountOnly(s *oneSession, next call) call {
	var mu sync.Mutex
	mine := map[uint64]bool{}
	return answering(func(ctx context.Context, req *fsop.Request, op *fsop.Lock, next call) (*fsop.Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		mine[op.Lock.Owner] = true
		rep, err := next(ctx, req)
		if err != nil || rep.Errno != fsop.EAGAIN {
			return rep, err
		}
		if l, held := s.o.tree.Conflict(op.Ino, s.id, op.Lock); held && !mine[l.Owner] {
			rep.Errno = fsop.OK
		}
		return rep, nil
	})(nil, next)
}
