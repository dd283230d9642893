package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Link is a serving process's connection to its keeper. Safe for concurrent
// use.
type Link struct {
	log  *zap.Logger
	conn *net.UnixConn
	pid  int // the keeper's

	mu      sync.Mutex // one request at a time
	answers chan *message

	notifies bool // the keeper knows how to
	notifier notifier

	stop  chan struct{} // closed when the keeper wants this process to end
	gone  chan struct{} // closed when the connection has ended
	why   error         // valid after gone
	group sync.WaitGroup
}

// ErrStop says that the keeper wants its serving process to end.
var ErrStop = errors.New("the keeper ends")

// keeperTimeout bounds the wait for an answer of the keeper. Before it hands
// over it may have to wait for a killed process to be gone.
const keeperTimeout = killTimeout + 5*time.Second

// DialKeeper makes this process the one that serves the keeper's mounts: the
// one before has ended when it returns. The mounts wait for Serve. One that
// cannot be taken over is ended, so that its users get ENOTCONN and do not wait
// for ever; the log says why. A keeper of another instance refuses.
func DialKeeper(ctx context.Context, socket, instance string, log *zap.Logger) (*Link, []*Mount, error) {
	if err := checkBazil(); err != nil {
		return nil, nil, err
	}
	l := &Link{log: log, answers: make(chan *message, 1), stop: make(chan struct{}), gone: make(chan struct{})}
	conn, err := new(net.Dialer).DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the keeper: %w", err)
	}
	l.conn = conn.(*net.UnixConn)
	mounts, lost, err := l.hello(instance)
	if err != nil {
		l.conn.Close()
		return nil, nil, fmt.Errorf("take over from the keeper: %w", err)
	}
	l.group.Go(l.read)
	for _, m := range lost {
		l.giveUp(m)
	}
	return l, mounts, nil
}

// Close ends the link. The keeper takes that for the process's end.
func (l *Link) Close() error {
	err := l.conn.Close()
	l.group.Wait()
	return err
}

// Keeper is the keeper's process id, 0 if it is in another process table.
func (l *Link) Keeper() int { return l.pid }

// Wait returns ErrStop when the keeper wants this process to end, and another
// error when the keeper has gone; nil when ctx has ended. The keeper holds what
// this process has until Close, also while it ends.
func (l *Link) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.stop:
		return ErrStop
	case <-l.gone:
		return fmt.Errorf("the keeper has gone: %w", l.why)
	}
}

// read takes what the keeper says until the connection ends.
func (l *Link) read() {
	defer close(l.gone)
	for stop := sync.OnceFunc(func() { close(l.stop) }); ; {
		m, files, err := recvMessage(l.conn)
		if err != nil {
			l.why = err
			return
		}
		closeAll(files)
		switch m.Op {
		case opStop:
			stop()
		case opNotified:
			l.notified(m)
		default:
			select {
			case l.answers <- m:
			default: // nobody waits for it
			}
		}
	}
}

func (l *Link) hello(instance string) (mounts []*Mount, lost []*message, err error) {
	l.conn.SetDeadline(time.Now().Add(keeperTimeout))
	defer l.conn.SetDeadline(time.Time{})
	if l.pid, err = peerPID(l.conn); err != nil {
		return nil, nil, err
	}
	if err := sendMessage(l.conn, &message{Op: opHello, Instance: instance}); err != nil {
		return nil, nil, err
	}
	for {
		m, files, err := recvMessage(l.conn)
		if err != nil {
			return nil, nil, err
		}
		switch m.Op {
		case opKept:
			mount, err := l.adopt(m, files)
			if err != nil {
				l.log.Error("mount cannot be taken over", zap.String("dir", string(m.Dir)), zap.Error(err))
				lost = append(lost, m)
				continue
			}
			mounts = append(mounts, mount)
		case opEnd:
			l.notifies = m.Notifies
			return mounts, lost, holdForEver(files)
		case opRefused:
			closeAll(files)
			return nil, nil, errors.New(m.Error)
		default:
			closeAll(files)
			return nil, nil, fmt.Errorf("unexpected message %q", m.Op)
		}
	}
}

// holdForEver keeps files open as long as this process lives, whoever forgets them:
// a lock on them says that it does.
func holdForEver(files []*os.File) error {
	defer closeAll(files)
	for _, f := range files {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return fmt.Errorf("hold what the keeper gave: %w", err)
		}
	}
	return nil
}

// adopt builds a mount from what the keeper held.
func (l *Link) adopt(k *message, files []*os.File) (*Mount, error) {
	if len(files) != 2 {
		closeAll(files)
		return nil, fmt.Errorf("%d descriptors instead of 2", len(files))
	}
	m := &Mount{
		log: l.log, id: k.ID, dir: string(k.Dir), spec: k.Spec, link: l, resumed: true,
		dev: files[0], fd: int(files[0].Fd()), shared: files[1], gone: make(chan struct{}), names: make(chan struct{}, namesAtOnce),
	}
	mem, err := openMemory(int(files[1].Fd()))
	if err == nil {
		m.mem = mem
		_, out := mem.init()
		m.features, err = agreed(out)
	}
	if err != nil {
		m.release()
		return nil, err
	}
	m.ledger = newLedger(m.mem)
	m.memo.note(memoNow()) // by the process before
	m.pages.adopted = memoNow()
	return m, nil
}

// giveUp ends a mount that nobody can serve.
func (l *Link) giveUp(m *message) {
	if err := forceUnmount(string(m.Dir)); err != nil {
		l.log.Warn("unmount", zap.String("dir", string(m.Dir)), zap.Error(err))
	}
	l.drop(m.ID)
}

// put hands a mount to the keeper.
func (l *Link) put(m *Mount) error {
	err := l.ask(&message{Op: opPut, ID: m.id, Dir: []byte(m.dir), Spec: m.spec}, m.dev, m.shared)
	if err != nil {
		return fmt.Errorf("hand over to the keeper: %w", err)
	}
	return nil
}

// drop takes a mount that has ended from the keeper.
func (l *Link) drop(id string) {
	if err := l.ask(&message{Op: opDrop, ID: id}); err != nil {
		l.log.Warn("keeper still holds a mount that has ended", zap.String("mount", id), zap.Error(err))
	}
}

func (l *Link) ask(m *message, files ...*os.File) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn.SetWriteDeadline(time.Now().Add(keeperTimeout))
	if err := sendMessage(l.conn, m, files...); err != nil {
		return err
	}
	late := time.NewTimer(keeperTimeout)
	defer late.Stop()
	select {
	case r := <-l.answers:
		switch r.Op {
		case opOK:
			return nil
		case opRefused:
			return errors.New(r.Error)
		}
		return fmt.Errorf("unexpected message %q", r.Op)
	case <-l.gone:
		return fmt.Errorf("the keeper has gone: %w", l.why)
	case <-late.C:
		l.conn.Close() // the answer would be taken for another's: the next process begins anew
		return fmt.Errorf("no answer within %v", keeperTimeout)
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// AskKeeper returns what the keeper behind a socket says of itself.
func AskKeeper(ctx context.Context, socket string) (*KeeperStatus, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the keeper: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	u := conn.(*net.UnixConn)
	if err := sendMessage(u, &message{Op: opStatus}); err != nil {
		return nil, fmt.Errorf("ask the keeper: %w", err)
	}
	r, files, err := recvMessage(u)
	if err != nil {
		return nil, fmt.Errorf("ask the keeper: %w", err)
	}
	closeAll(files)
	if r.Status == nil {
		return nil, fmt.Errorf("ask the keeper: unexpected message %q", r.Op)
	}
	return r.Status, nil
}
