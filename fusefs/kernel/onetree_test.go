package kernel

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// oneTree is a whole volume without a log or a network: one tree, in memory.
type oneTree struct {
	tree *tree.Tree

	mu      sync.Mutex
	changed *sync.Cond
	index   uint64
	all     []*oneSession
}

func newOneTree(t testing.TB) *oneTree {
	tr, err := tree.Open(tree.Config{FS: disk.NewMem(1), Dir: "/replica", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	o := &oneTree{tree: tr}
	o.changed = sync.NewCond(&o.mu)
	t.Cleanup(func() { tr.Close() })
	return o
}

// apply runs one operation of a session. The caller holds mu.
func (o *oneTree) apply(it fsop.Item) (tree.Result, error) {
	o.index++
	e := &fsop.Entry{Stamp: fsop.TimeOf(time.Now()), Items: []fsop.Item{it}}
	res, err := o.tree.Apply(o.index, 1, e)
	o.changed.Broadcast()
	if err != nil {
		return tree.Result{}, fsop.Fail(fsop.StateLost, "%v", err)
	}
	return res[0], nil
}

// open starts a session.
func (o *oneTree) open(t testing.TB, ledger *Ledger) *oneSession {
	o.mu.Lock()
	defer o.mu.Unlock()
	res, err := o.apply(fsop.Item{Op: &fsop.OpenSession{Nonce: [16]byte{byte(o.index)}, Name: []byte("test")}})
	if err != nil {
		t.Fatal(err)
	}
	s := &oneSession{o: o, id: res.Reply.Session, ledger: ledger}
	o.all = append(o.all, s)
	return s
}

// oneSession is a mount's session: the fsop.Caller that kernel is given.
type oneSession struct {
	o      *oneTree
	id     uint64
	epoch  uint64
	seq    uint64
	ledger *Ledger
	drop   func(parent fsop.Ino, name []byte) // has the mount forget a name
}

var (
	_ fsop.Caller = (*oneSession)(nil)
	_ Cacher      = (*oneSession)(nil)
)

func (s *oneSession) Call(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
	switch op := req.Op.(type) {
	case *fsop.GetLock:
		return s.getLock(op), nil
	case *fsop.WaitLock:
		return s.waitLock(ctx, op)
	}
	if req.Op.Kind().Query() {
		return s.o.tree.Read(ctx, req.Op)
	}
	rep, err := s.mutate(req)
	if op, ok := req.Op.(*fsop.Rename); ok && err == nil && rep.Errno == fsop.OK {
		s.moved(op)
	}
	return rep, err
}

// moved has the other mounts forget the names that a rename took away, as a
// coordinator asks them to, but waits only so long.
func (s *oneSession) moved(op *fsop.Rename) {
	var done sync.WaitGroup
	for _, other := range s.o.sessions() {
		if other != s && other.drop != nil {
			done.Go(func() {
				other.drop(op.Parent, op.Name)
				if op.Flags&fsop.RenameExchange != 0 {
					other.drop(op.NewParent, op.NewName)
				}
			})
		}
	}
	all := make(chan struct{})
	go func() { done.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(20 * time.Millisecond):
	}
}

func (o *oneTree) sessions() []*oneSession {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

func (s *oneSession) mutate(req *fsop.Request) (*fsop.Reply, error) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.seq++
	res, err := s.o.apply(fsop.Item{Session: s.id, Epoch: s.epoch, Seq: s.seq, Ack: s.seq - 1, Op: req.Op})
	if err != nil {
		return nil, err
	}
	if res.Status != tree.Applied {
		return nil, fsop.Fail(fsop.Fenced, "status %d", res.Status)
	}
	s.record(req, res.Reply)
	if s.seq%64 == 0 {
		return res.Reply, s.o.reap()
	}
	return res.Reply, nil
}

// record has the ledger know what counts as open from an answer on. The caller
// holds mu: nothing is reaped before.
func (s *oneSession) record(req *fsop.Request, rep *fsop.Reply) {
	if rep.Errno != fsop.OK {
		return
	}
	switch req.Op.(type) {
	case *fsop.Unlink, *fsop.Rename:
		for _, a := range rep.Attrs {
			if a.Nlink == 0 {
				s.ledger.Hold(a.Ino)
			}
		}
	}
	if req.Open && len(rep.Attrs) > 0 {
		_ = s.ledger.Open(req.Tag, rep.Attrs[0].Ino) // the server asks again, and tells
	}
}

// reap removes the orphans that nobody has open. The caller holds mu.
func (o *oneTree) reap() error {
	all := o.tree.Orphans(0, 1000)
	open := map[fsop.Ino]bool{}
	for _, s := range o.all {
		for _, ino := range s.ledger.OpenOf(all) {
			open[ino] = true
		}
	}
	var gone []fsop.Ino
	for _, ino := range all {
		if !open[ino] {
			gone = append(gone, ino)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	_, err := o.apply(fsop.Item{Op: &fsop.Reap{Inos: gone}})
	return err
}

// TryCall answers queries inline, as a session with leases does.
func (s *oneSession) TryCall(req *fsop.Request) (*fsop.Reply, bool) {
	switch req.Op.(type) {
	case *fsop.GetLock, *fsop.WaitLock:
		return nil, false
	}
	rep, err := s.o.tree.Read(context.Background(), req.Op)
	return rep, err == nil
}

func (s *oneSession) getLock(op *fsop.GetLock) *fsop.Reply {
	l, held := s.o.tree.Conflict(op.Ino, s.id, op.Lock)
	if !held {
		l = op.Lock
		l.Type = fsop.LockUnlock
	}
	return &fsop.Reply{Lock: &l}
}

func (s *oneSession) waitLock(ctx context.Context, op *fsop.WaitLock) (*fsop.Reply, error) {
	stop := context.AfterFunc(ctx, func() {
		s.o.mu.Lock()
		defer s.o.mu.Unlock()
		s.o.changed.Broadcast()
	})
	defer stop()
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	for {
		if _, held := s.o.tree.Conflict(op.Ino, s.id, op.Lock); !held {
			return &fsop.Reply{}, nil
		}
		if ctx.Err() != nil {
			return nil, fsop.Fail(fsop.NoQuorum, "%v", ctx.Err())
		}
		s.o.changed.Wait()
	}
}
