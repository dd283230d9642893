package kernel

import (
	"context"
	"os"
	"sync"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// fakeCaller answers by a function and remembers what it was asked.
type fakeCaller struct {
	answer func(*fsop.Request) (*fsop.Reply, error)

	mu       sync.Mutex
	asked    []*fsop.Request
	finished []uint64
}

func (f *fakeCaller) Call(_ context.Context, req *fsop.Request) (*fsop.Reply, error) {
	f.mu.Lock()
	f.asked = append(f.asked, req)
	f.mu.Unlock()
	if f.answer != nil {
		return f.answer(req)
	}
	return anything(req)
}

func (f *fakeCaller) Finish(tag uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finished = append(f.finished, tag)
}

// anything is a reply that has all that its kind promises.
func anything(req *fsop.Request) (*fsop.Reply, error) {
	rep := &fsop.Reply{Attrs: []fsop.Attr{{Ino: 2, Mode: fsop.TypeFile | 0o644, Nlink: 1}}}
	switch op := req.Op.(type) {
	case *fsop.GetLock:
		rep.Lock = &op.Lock
	case *fsop.StatFSQuery:
		rep.FS = &fsop.StatFS{}
	case *fsop.Write:
		rep.Count = uint32(len(op.Data))
	}
	return rep, nil
}

// fakeServer is a server on any descriptor instead of a device.
func fakeServer(t testing.TB, fd int) *server {
	if err := checkBazil(); err != nil {
		t.Fatal(err)
	}
	m := &Mount{log: zap.NewNop(), dev: os.NewFile(uintptr(fd), "device"), fd: fd, ledger: fakeLedger()}
	t.Cleanup(func() { m.dev.Close() })
	s := newServer(context.Background(), m, &fakeCaller{})
	s.baton.max = 0 // nobody else reads
	t.Cleanup(func() {
		s.cancel(errEnded)
		s.group.Wait()
	})
	return s
}

func fakeLedger() *Ledger {
	mem := make(memory, layoutSize)
	mem.format()
	return newLedgerOn(mem)
}

// devNull takes every answer.
func devNull(t testing.TB) int {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
