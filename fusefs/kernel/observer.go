package kernel

import (
	"time"

	"bazil.org/fuse"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Observer is told of each request of the kernel that was answered. It must not
// block.
type Observer interface {
	Answered(class Class, took time.Duration, errno fsop.Errno)
}

// Class is a kind of requests that are like one another in what they cost.
type Class uint8

// Classes of requests.
const (
	ClassOther  Class = iota
	ClassLookup       // names and attributes
	ClassList         // directories
	ClassOpen         // open, release, flush
	ClassRead         // contents
	ClassWrite        // contents, space
	ClassChange       // names and attributes
	ClassSync
	ClassLock // waiting for a lock counts
	Classes   = iota
)

func (c Class) String() string {
	return [...]string{"other", "lookup", "list", "open", "read", "write", "change", "sync", "lock"}[c]
}

// Observe has o told of the requests that Serve answers. It is called before Serve.
func (m *Mount) Observe(o Observer) { m.observer = o }

func classOf(req fuse.Request) Class {
	switch q := req.(type) {
	case *fuse.LookupRequest, *fuse.GetattrRequest, *fuse.ReadlinkRequest, *fuse.GetxattrRequest, *fuse.ListxattrRequest:
		return ClassLookup
	case *fuse.ReadRequest:
		if q.Dir {
			return ClassList
		}
		return ClassRead
	case *fuse.WriteRequest, *fuse.FAllocateRequest:
		return ClassWrite
	case *fuse.OpenRequest, *fuse.ReleaseRequest, *fuse.FlushRequest:
		return ClassOpen
	case *fuse.FsyncRequest:
		return ClassSync
	case *fuse.CreateRequest, *fuse.SetattrRequest, *fuse.SymlinkRequest, *fuse.MknodRequest, *fuse.MkdirRequest,
		*fuse.RemoveRequest, *fuse.RenameRequest, *fuse.LinkRequest, *fuse.SetxattrRequest, *fuse.RemovexattrRequest:
		return ClassChange
	case *fuse.LockRequest, *fuse.LockWaitRequest, *fuse.UnlockRequest, *fuse.QueryLockRequest:
		return ClassLock
	case *fuse.UnrecognizedRequest:
		return classOfRaw(q.Opcode)
	}
	return ClassOther
}

func classOfRaw(opcode uint32) Class {
	switch opcode {
	case opReadDirPlus:
		return ClassList
	case opRename2, opTmpfile:
		return ClassChange
	case opLseek:
		return ClassLookup
	case opCopyFileRange:
		return ClassWrite
	case opSyncFS:
		return ClassSync
	}
	return ClassOther
}

// observe tells of the answer that has just been given.
func (x *exchange) observe() {
	if o := x.s.observer; o != nil {
		o.Answered(x.class, time.Since(x.began), x.errno)
	}
}
