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
)

// Link is a serving process's connection to its keeper. Safe for concurrent
// use.
type Link struct {
	log  *zap.Logger
	mu   sync.Mutex // one request at a time
	conn *net.UnixConn
}

// keeperTimeout bounds the wait for an answer of the keeper. Before it hands
// over it may have to wait for a killed process to be gone.
const keeperTimeout = killTimeout + 5*time.Second

// DialKeeper makes this process the one that serves the keeper's mounts: the
// one before has ended when it returns. The mounts wait for Serve. One that
// cannot be taken over is ended, so that its users get ENOTCONN and do not wait
// for ever; the log says why.
func DialKeeper(ctx context.Context, socket string, log *zap.Logger) (*Link, []*Mount, error) {
	if err := checkBazil(); err != nil {
		return nil, nil, err
	}
	l := &Link{log: log}
	conn, err := new(net.Dialer).DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the keeper: %w", err)
	}
	l.conn = conn.(*net.UnixConn)
	mounts, err := l.hello()
	if err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("take over from the keeper: %w", err)
	}
	return l, mounts, nil
}

// Close ends the link. The keeper takes that for the process's end.
func (l *Link) Close() error { return l.conn.Close() }

func (l *Link) hello() (mounts []*Mount, err error) {
	l.conn.SetDeadline(time.Now().Add(keeperTimeout))
	defer l.conn.SetDeadline(time.Time{})
	if err := sendMessage(l.conn, &message{Op: opHello}); err != nil {
		return nil, err
	}
	var lost []*message
	for {
		m, files, err := recvMessage(l.conn)
		if err != nil {
			return nil, err
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
			for _, m := range lost {
				l.giveUp(m)
			}
			return mounts, nil
		case opRefused:
			return nil, errors.New(m.Error)
		default:
			return nil, fmt.Errorf("unexpected message %q", m.Op)
		}
	}
}

// adopt builds a mount from what the keeper held.
func (l *Link) adopt(k *message, files []*os.File) (*Mount, error) {
	if len(files) != 2 {
		closeAll(files)
		return nil, fmt.Errorf("%d descriptors instead of 2", len(files))
	}
	m := &Mount{
		log: l.log, id: k.ID, dir: string(k.Dir), spec: k.Spec, link: l, resumed: true,
		dev: files[0], fd: int(files[0].Fd()), shared: files[1], gone: make(chan struct{}),
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
	l.conn.SetDeadline(time.Now().Add(keeperTimeout))
	defer l.conn.SetDeadline(time.Time{})
	if err := sendMessage(l.conn, m, files...); err != nil {
		return err
	}
	r, extra, err := recvMessage(l.conn)
	if err != nil {
		return err
	}
	closeAll(extra)
	switch r.Op {
	case opOK:
		return nil
	case opRefused:
		return errors.New(r.Error)
	}
	return fmt.Errorf("unexpected message %q", r.Op)
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
