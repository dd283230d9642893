package kernel

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

var _ client.Ledger = (*Ledger)(nil)

// backend serves one tree to serving processes that come and go: a coordinator
// without replication. One session, whose stream is applied in order and once.
type backend struct {
	o    *oneTree
	sess *oneSession
	path string

	mu      sync.Mutex
	turn    *sync.Cond
	conn    *net.UnixConn // the last one to come
	ended   bool
	serving sync.WaitGroup

	hold    atomic.Pointer[held] // whose answers are held back; nil: nobody's
	dropped chan struct{}        // a token each time that a name was dropped
}

// held are answers that are held back.
type held struct {
	whose          func(fsop.Op) bool
	asked, release chan struct{}
}

func newBackend(t *testing.T, o *oneTree) *backend {
	mem, f, err := newMemory()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	b := &backend{o: o, path: filepath.Join(t.TempDir(), "backend"), dropped: make(chan struct{}, 1)}
	b.sess = o.open(t, newLedger(mem))
	b.turn = sync.NewCond(&b.mu)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: b.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the tree is closed thereafter
		l.Close()
		b.mu.Lock()
		b.ended = true
		if b.conn != nil {
			b.conn.Close()
		}
		b.turn.Broadcast()
		b.mu.Unlock()
		b.serving.Wait()
	})
	b.serving.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			b.serving.Go(func() { b.serve(c) })
		}
	})
	return b
}

func (b *backend) serve(c *net.UnixConn) {
	defer c.Close()
	b.mu.Lock()
	ended := b.ended
	b.conn = c
	b.mu.Unlock()
	for !ended {
		buf := make([]byte, 256<<10)
		n, err := c.Read(buf)
		if err != nil || n < 8 {
			return
		}
		if binary.NativeEndian.Uint64(buf) == 0 {
			b.dropped <- struct{}{}
			continue
		}
		req, err := fsop.DecodeRequest(buf[8:n])
		if err != nil {
			panic(err)
		}
		b.serving.Go(func() {
			if h := b.hold.Load(); h != nil && h.whose(req.Op) {
				offer(h.asked)
				<-h.release
			}
			if rep := b.answer(req); rep != nil {
				c.Write(fsop.AppendReply(binary.NativeEndian.AppendUint64(nil, binary.NativeEndian.Uint64(buf)), rep))
			}
		})
	}
}

func offer(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// holdBack has operations wait until release is called; asked says when one has come.
func (b *backend) holdBack(whose func(fsop.Op) bool) (asked <-chan struct{}, release func()) {
	h := &held{whose, make(chan struct{}, 1), make(chan struct{})}
	b.hold.Store(h)
	return h.asked, sync.OnceFunc(func() {
		b.hold.Store(nil)
		close(h.release)
	})
}

// moved tells the serving process that a directory has left a name, as a coordinator
// does: request 0.
func (b *backend) moved(t *testing.T, parent fsop.Ino, name string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	m := binary.NativeEndian.AppendUint64(make([]byte, 8), uint64(parent))
	_, err := b.conn.Write(append(m, name...))
	must(t, err)
}

// answer applies a mutation in its turn, and once. It returns nil when the test has
// ended meanwhile.
func (b *backend) answer(req *fsop.Request) *fsop.Reply {
	if req.Op.Kind().Query() {
		rep, err := b.sess.Call(context.Background(), req)
		if err != nil {
			panic(err)
		}
		return rep
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.ended {
		b.o.mu.Lock()
		res, err := b.o.apply(fsop.Item{Session: b.sess.id, Seq: req.Seq, Ack: req.Ack, Op: req.Op})
		b.o.mu.Unlock()
		if err != nil {
			panic(err)
		}
		switch {
		case res.Status == tree.Gap:
			b.turn.Wait()
			continue
		case res.Reply == nil:
			panic(fmt.Sprintf("answer %d is wanted again and was acknowledged", req.Seq))
		}
		b.turn.Broadcast()
		return res.Reply
	}
	return nil
}

// remoteSession is the serving process's side: what a client's session does
// with its ledger, and nothing more.
type remoteSession struct {
	conn   *net.UnixConn
	ledger *Ledger
	drop   func(parent fsop.Ino, name []byte)

	mu        sync.Mutex
	id, next  uint64
	waiting   map[uint64]chan *fsop.Reply
	inherited map[fsop.Pending]uint64
	byTag     map[uint64][]uint64
	open      map[uint64]bool // numbers that are not finished
}

var (
	_ Finisher = (*remoteSession)(nil)
	_ Resumer  = (*remoteSession)(nil)
)

func dialBackend(path string, ledger *Ledger, drop func(parent fsop.Ino, name []byte)) (*remoteSession, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	if ledger.Identity().Session == 0 {
		if err := ledger.SetIdentity(fsop.Identity{Session: 1}); err != nil {
			return nil, err
		}
	}
	s := &remoteSession{
		conn: c, ledger: ledger, drop: drop, next: ledger.LastSeq(), waiting: map[uint64]chan *fsop.Reply{},
		inherited: map[fsop.Pending]uint64{}, byTag: map[uint64][]uint64{}, open: map[uint64]bool{},
	}
	for _, p := range ledger.Pending() {
		s.inherited[fsop.Pending{Tag: p.Tag, Sub: p.Sub}] = p.Seq
		s.byTag[p.Tag] = append(s.byTag[p.Tag], p.Seq)
		s.open[p.Seq] = true
	}
	go s.receive()
	return s, nil
}

func (s *remoteSession) receive() {
	for {
		buf := make([]byte, 256<<10)
		n, err := s.conn.Read(buf)
		if err != nil || n < 8 {
			os.Exit(3) // the backend has ended
		}
		if binary.NativeEndian.Uint64(buf) == 0 {
			go func() {
				s.drop(fsop.Ino(binary.NativeEndian.Uint64(buf[8:])), buf[16:n])
				s.conn.Write(make([]byte, 8))
			}()
			continue
		}
		rep, err := fsop.DecodeReply(buf[8:n])
		if err != nil {
			panic(err)
		}
		s.mu.Lock()
		ch := s.waiting[binary.NativeEndian.Uint64(buf)]
		s.mu.Unlock()
		ch <- rep
	}
}

func (s *remoteSession) Call(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
	ch := make(chan *fsop.Reply, 1)
	if err := s.send(req, ch); err != nil {
		return nil, fsop.Fail(fsop.Busy, "%v", err)
	}
	select {
	case rep := <-ch:
		return rep, nil
	case <-ctx.Done():
		return nil, fsop.Fail(fsop.NoQuorum, "%v", ctx.Err())
	}
}

func (s *remoteSession) send(req *fsop.Request, ch chan *fsop.Reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Op.Kind().Mutation() {
		if err := s.number(req); err != nil {
			return err
		}
	}
	s.id++
	s.waiting[s.id] = ch
	_, err := s.conn.Write(fsop.AppendRequest(binary.NativeEndian.AppendUint64(nil, s.id), req))
	return err
}

// number gives a mutation the number it had, or the next.
func (s *remoteSession) number(req *fsop.Request) error {
	key := fsop.Pending{Tag: req.Tag, Sub: req.Sub}
	if seq, ok := s.inherited[key]; ok {
		req.Seq = seq
	} else {
		s.next++
		req.Seq = s.next
		if err := s.ledger.Begin(req.Tag, req.Sub, req.Seq); err != nil {
			return err
		}
		s.byTag[req.Tag] = append(s.byTag[req.Tag], req.Seq)
		s.open[req.Seq] = true
	}
	req.Ack = s.next
	for seq := range s.open {
		req.Ack = min(req.Ack, seq-1)
	}
	return nil
}

func (s *remoteSession) Finish(tag uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(tag)
}

func (s *remoteSession) finish(tag uint64) {
	s.ledger.Finish(tag)
	for _, seq := range s.byTag[tag] {
		delete(s.open, seq)
	}
	delete(s.byTag, tag)
	maps.DeleteFunc(s.inherited, func(p fsop.Pending, _ uint64) bool { return p.Tag == tag })
}

func (s *remoteSession) Resumed(tags []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	back := map[uint64]bool{}
	for _, tag := range tags {
		back[tag] = true
	}
	for key := range s.inherited {
		if !back[key.Tag] {
			s.finish(key.Tag)
		}
	}
}
