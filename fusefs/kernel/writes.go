package kernel

import (
	"context"
	"slices"
	"sync"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// underWay holds back requests about an inode behind others that are under way:
// what asks for a lock behind releases, and GETATTR and READ behind writes.
//
// The kernel copies a write into its page before it sends it, and a reader can
// see it there. Every read asks for attributes first, and a new mtime drops the
// pages. Attributes from before the write would drop what that reader has seen,
// and the next read would bring the old data back; as would a page that was dropped
// while its write was under way, and read again before that had happened.
type underWay struct {
	mu    sync.Mutex
	byIno map[fsop.Ino][]chan struct{}
}

// begin registers a request. The caller holds the baton, so everything that is
// read from the device later sees it.
func (w *underWay) begin(ino fsop.Ino) (done func()) {
	ch := make(chan struct{})
	w.mu.Lock()
	w.byIno[ino] = append(w.byIno[ino], ch)
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		list := w.byIno[ino]
		if i := slices.Index(list, ch); len(list) > 1 {
			w.byIno[ino] = slices.Delete(list, i, i+1)
		} else {
			delete(w.byIno, ino)
		}
		close(ch)
	}
}

// list returns what to wait for.
func (w *underWay) list(ino fsop.Ino) []chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.byIno[ino])
}

// getattr answers with attributes; forPages says that the kernel asks for them
// before it reads from its pages.
func (x *exchange) getattr(forPages bool) {
	x.afterWrites()
	if forPages {
		defer x.s.pages.ask(x.node)()
	}
	lease := x.s.lease(x.node)
	rep, errno := x.call(&fsop.GetAttr{Ino: x.node})
	if errno == fsop.OK {
		how := showsLooked
		if forPages {
			x.refresh(&rep.Attrs[0], lease)
			how = showsForPages
		}
		x.reveal(&rep.Attrs[0], how, lease)
	}
	x.attr(rep, errno)
}

// afterWrites waits for the writes that were under way when x came.
func (x *exchange) afterWrites() {
	if writes := x.s.writes.list(x.node); len(writes) > 0 {
		x.deadline = x.s.deadline()
		x.after(writes)
	}
}

// after waits for what was under way.
func (x *exchange) after(list []chan struct{}) {
	for _, done := range list {
		x.yield()
		if !wait(x.ctx, done) {
			return
		}
	}
}

func wait(ctx context.Context, done chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
