package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// ErrSucceeded says that another keeper has taken a keeper's place: the mounts go
// on without it.
var ErrSucceeded = errors.New("another keeper has taken over")

// Handed are mounts that a keeper has handed over. Given to RunKeeper they belong
// to it; otherwise Close ends them.
type Handed struct{ mounts []*kept }

// Len is the number of mounts.
func (h *Handed) Len() int { return len(h.mounts) }

// Close ends the mounts that were not given to a keeper.
func (h *Handed) Close() {
	for _, m := range h.mounts {
		closeAll(m.files)
	}
	h.mounts = nil
}

func (h *Handed) moveTo(mounts map[string]*kept) {
	if h == nil {
		return
	}
	for _, m := range h.mounts {
		mounts[m.id] = m
	}
	h.mounts = nil
}

// takenTimeout is how long a keeper waits, once it has handed everything over,
// for its successor to say so.
const takenTimeout = 5 * time.Second

// handOver gives every mount to the keeper at the other end. The serving process
// ends first: two never read from one device. Requests wait in the kernel until
// the successor's serving process asks for them. False: the successor is gone,
// and this keeper goes on.
func (k *keeper) handOver(ctx context.Context, p *peer) bool {
	k.log.Info("handing over to another keeper", zap.Int("mounts", len(k.mounts)))
	k.closed = "the keeper is handing over"
	defer func() { k.closed = "" }()
	if err := k.endServing(ctx); err != nil {
		k.answer(p, err)
		return false
	}
	for _, m := range k.mounts {
		k.tell(p, &message{Op: opKept, ID: m.id, Dir: []byte(m.dir), Spec: m.spec}, m.files...)
	}
	k.tell(p, &message{Op: opEnd})
	late := time.NewTimer(takenTimeout)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-late.C:
			k.log.Warn("the successor does not say that it has taken over")
			p.conn.Close() // so that it does not believe it has
			return false
		case e := <-k.events:
			switch {
			case e.peer == p && e.msg != nil && e.msg.Op == opTaken:
				k.answer(p, nil)
				return true
			case e.peer == p && e.err != nil:
				k.handle(e)
				return false
			case e.child == nil:
				k.handle(e)
			}
		}
	}
}

// endServing kills the serving process and waits until it is gone.
func (k *keeper) endServing(ctx context.Context) error {
	if p := k.server; p != nil {
		k.server = nil
		k.restarts++
		if err := k.end(p); err != nil {
			return err
		}
	}
	if k.child == nil {
		return nil
	}
	_ = k.child.cmd.Process.Signal(syscall.SIGKILL) // it may not have said hello yet
	for {
		select {
		case <-k.child.gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case e := <-k.events:
			if e.child == nil {
				k.handle(e)
			}
		}
	}
}

// Succeed takes every mount from the keeper behind a socket, which is then done.
// The error unwraps to os.ErrNotExist or syscall.ECONNREFUSED when there is none.
func Succeed(ctx context.Context, socket string) (*Handed, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the keeper: %w", err)
	}
	conn := c.(*net.UnixConn)
	defer conn.Close()
	if err := ownPeer(conn); err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(keeperTimeout))
	h := &Handed{}
	if err := h.receive(conn); err != nil {
		h.abandon()
		return nil, fmt.Errorf("take over from the keeper: %w", err)
	}
	return h, nil
}

// NoKeeper reports whether an error of Succeed says that there is none.
func NoKeeper(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// ownPeer makes sure that it is root or the own user who hands mounts over.
func ownPeer(conn *net.UnixConn) error {
	p, err := identify(conn)
	if err != nil {
		return fmt.Errorf("ask who the keeper is: %w", err)
	}
	if p.pidfd >= 0 {
		return syscall.Close(p.pidfd)
	}
	return nil
}

func (h *Handed) receive(conn *net.UnixConn) error {
	if err := sendMessage(conn, &message{Op: opSucceed}); err != nil {
		return err
	}
	for {
		m, files, err := recvMessage(conn)
		if err != nil {
			return err
		}
		switch {
		case m.Op == opKept && len(files) == filesMax:
			h.mounts = append(h.mounts, &kept{id: m.ID, dir: string(m.Dir), spec: m.Spec, files: files})
			continue
		case m.Op == opEnd:
			return confirmTaken(conn)
		}
		closeAll(files)
		if m.Op == opRefused {
			return errors.New(m.Error)
		}
		return fmt.Errorf("unexpected message %q", m.Op)
	}
}

// confirmTaken tells the keeper that everything has arrived, and returns when it
// holds nothing any more.
func confirmTaken(conn *net.UnixConn) error {
	if err := sendMessage(conn, &message{Op: opTaken}); err != nil {
		return err
	}
	m, files, err := recvMessage(conn)
	closeAll(files)
	switch {
	case err != nil:
		return err
	case m.Op != opOK:
		return fmt.Errorf("unexpected message %q", m.Op)
	}
	return nil
}

// abandon lets go of mounts that the other keeper still has.
func (h *Handed) abandon() { h.Close() }
