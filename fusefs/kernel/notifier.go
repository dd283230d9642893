package kernel

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Notifications that wait.
//
// The kernel takes the lock of a directory to forget a name in it, and whoever looks
// up or changes names there holds that until he has the answer; and a page's lock to
// forget or to change it, which whoever reads holds until he has the answer. Nothing ends
// the wait, SIGKILL neither, and a process with a thread in it keeps all its descriptors.
// When it is the process that was to answer, it waits for ever: nobody takes its mounts
// over, and they don't end by themselves.
//
// So the keeper writes these notifications: what its threads wait for is answered by
// the serving process, or, when that has been killed, by the next one.

// Bounds of the notifications of one mount that the keeper writes at once: each takes a
// thread.
const (
	namesAtOnce = 16
	pagesAtOnce = 16
	notifyMost  = namesAtOnce + pagesAtOnce
)

// keeperNotifies reports whether somebody else can write what waits.
func (m *Mount) keeperNotifies() bool { return m.link != nil && m.link.notifies && m.Survives() }

// notifyAndWait gives the kernel a notification that must not be left out, and returns
// when it has taken it. Where the keeper can't, because there is none or it has still
// too many that wait for a serving process before this one, this process waits itself,
// and can't be ended as long as it does.
func (s *server) notifyAndWait(n []byte) {
	m := s.mount
	if m.keeperNotifies() {
		s.dropping <- struct{}{}
		err := m.link.notify(m, n)
		<-s.dropping
		if err == nil {
			return
		}
	}
	notifyKernel(m.dev, n) // ENOENT: nothing to forget
}

// notifier is a serving process's part: who waits for which notification.
type notifier struct {
	mu    sync.Mutex
	last  uint64
	waits map[uint64]chan error
}

func (n *notifier) add() (num uint64, done chan error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waits == nil {
		n.waits = map[uint64]chan error{}
	}
	n.last++
	done = make(chan error, 1)
	n.waits[n.last] = done
	return n.last, done
}

func (n *notifier) done(num uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if done := n.waits[num]; done != nil {
		done <- err
		delete(n.waits, num)
	}
}

// notify has the keeper write a notification, and returns when the kernel has taken it.
func (l *Link) notify(m *Mount, notification []byte) error {
	num, done := l.notifier.add()
	defer l.notifier.done(num, nil)
	l.conn.SetWriteDeadline(time.Now().Add(keeperTimeout))
	if err := sendMessage(l.conn, &message{Op: opNotify, ID: m.id, Num: num, Data: notification}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-m.gone:
		return errors.New("the mount has ended")
	case <-l.gone:
		return fmt.Errorf("the keeper has gone: %w", l.why)
	}
}

// notified takes the keeper's word that it is done with a notification.
func (l *Link) notified(m *message) {
	var err error
	if m.Error != "" {
		err = errors.New(m.Error)
	}
	l.notifier.done(m.Num, err)
}

// notify writes a notification for the serving process. Nobody waits for the goroutine
// but who has asked.
func (k *keeper) notify(e event) {
	m, err := k.mayNotify(e)
	if err != nil {
		k.tell(e.peer, &message{Op: opNotified, Num: e.msg.Num, Error: err.Error()})
		return
	}
	m.notifying.Add(1)
	go func() {
		notifyApart(m.files[0], e.msg.Data)
		m.notifying.Add(-1)
		k.tell(e.peer, &message{Op: opNotified, Num: e.msg.Num})
	}()
}

func (k *keeper) mayNotify(e event) (*kept, error) {
	m := k.mounts[e.msg.ID]
	switch {
	case e.peer != k.server:
		return nil, errors.New("not the serving process")
	case m == nil:
		return nil, fmt.Errorf("there is no mount %q", e.msg.ID)
	case !mayWait(e.msg.Data): // an answer, for instance, is not for the keeper to give
		return nil, errors.New("this is no notification that waits")
	case m.notifying.Load() >= notifyMost:
		return nil, fmt.Errorf("%d notifications wait already", notifyMost)
	}
	return m, nil
}

// free ends the mounts of which a notification waits. The write has the device open:
// that a keeper which ends closes its own copy would not end them, and it could not end
// itself.
func (k *keeper) free() {
	for _, m := range k.mounts {
		if m.notifying.Load() == 0 {
			continue
		}
		if err := forceUnmount(m.dir); err != nil {
			k.log.Error("end mount", zap.String("dir", m.dir), zap.Error(err))
		}
	}
}

// notifyApart is notifyKernel on a thread that takes no signals meanwhile. The kernel
// would choose the first thread for a signal to the process, even one that waits and
// can't take it, and SIGTERM would come when the wait is over.
func notifyApart(dev *os.File, n []byte) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	}
	notifyKernel(dev, n)
}

// notifyKernel writes to a device that may be closed meanwhile: not to its number, which
// may be another's then. It does not take its turn among others that write, as os.File
// would: one that blocks holds up none that does not.
func notifyKernel(dev *os.File, n []byte) {
	raw, err := dev.SyscallConn()
	if err != nil {
		return // closed: there is nobody to tell
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.Write(int(fd), n) }) // ENOENT: not known, as it should be
}
