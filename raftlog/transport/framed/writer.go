package framed

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
)

// inlineMost is the size up to which Send encrypts and writes in the caller's
// goroutine.
const inlineMost = 16 << 10

// Errors of sending.
var (
	ErrQueueFull = errors.New("send queue is full")
	ErrClosed    = errors.New("connection is closed")
)

// writer keeps the order of frames and decides who writes them. At any time at
// most one goroutine writes: the one that found busy false and set it, or the
// one that it handed that on to.
type writer struct {
	tls  *tls.Conn
	sock *sock
	most int
	fail func(error) // called once, without mu, by whoever writes

	mu      sync.Mutex
	changed sync.Cond // room was made, or the writer came to rest
	busy    bool
	err     error
	queued  int   // bytes of next and cur
	next    batch // gathers while busy
	cur     batch // owned by whoever writes
}

func newWriter(t *tls.Conn, s *sock, fail func(error)) *writer {
	w := &writer{tls: t, sock: s, fail: fail}
	w.changed.L = &w.mu
	return w
}

// send queues one frame, and writes it when nobody else does. With wait it
// blocks while the queue is full.
func (w *writer) send(h Header, parts [][]byte, release func(), wait bool) error {
	w.mu.Lock()
	for wait && w.full(h) {
		w.changed.Wait()
	}
	err := w.addLocked(h, parts, release)
	w.unlockAndWrite()
	return err
}

// sendAll queues frames until one is refused, and returns how many it took.
func (w *writer) sendAll(header func(i int) (Header, error), frames [][][]byte) (n int, err error) {
	w.mu.Lock()
	for ; n < len(frames); n++ {
		var h Header
		if h, err = header(n); err != nil {
			break
		}
		if err = w.addLocked(h, frames[n], nil); err != nil {
			break
		}
	}
	w.unlockAndWrite()
	return n, err
}

// full tells whether there is no room; a frame that is larger than the bound
// finds room in an empty queue.
func (w *writer) full(h Header) bool {
	return w.err == nil && w.queued > 0 && w.queued+HeaderSize+int(h.Length) > w.most
}

func (w *writer) addLocked(h Header, parts [][]byte, release func()) error {
	if w.err != nil {
		return w.err
	}
	if w.full(h) {
		return ErrQueueFull
	}
	w.next.add(h, parts, release)
	w.queued += HeaderSize + int(h.Length)
	return nil
}

// unlockAndWrite writes what has gathered, unless somebody is writing.
func (w *writer) unlockAndWrite() {
	if w.busy || w.err != nil || w.next.empty() {
		w.mu.Unlock()
		return
	}
	w.busy = true
	inline := w.next.size <= inlineMost && w.sock.raw != nil
	w.mu.Unlock()
	if inline {
		w.writeInline()
	} else {
		go w.writeAll()
	}
}

// writeInline writes one batch without waiting for anything, and leaves what
// remains to a goroutine.
func (w *writer) writeInline() {
	if !w.take() {
		return
	}
	w.sock.begin(false)
	err := w.cur.writeTo(w.tls)
	all := false
	if err == nil {
		all, err = w.sock.tryFlush()
	}
	if err != nil {
		w.stop(err)
		return
	}
	if !all || !w.rest() {
		go w.writeAll()
	}
}

// writeAll writes until the queue is empty.
func (w *writer) writeAll() {
	err := w.sock.flush() // what an inline write left
	for err == nil && w.take() {
		w.sock.begin(true)
		if err = w.cur.writeTo(w.tls); err == nil {
			err = w.sock.flush()
		}
	}
	if err != nil {
		w.stop(err)
	}
}

// take moves what has gathered to cur, after the last batch there has been
// written. With nothing gathered, the writer is at rest and take is false.
func (w *writer) take() bool {
	written := w.cur.size
	w.cur.done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queued -= written
	if w.next.empty() || w.err != nil {
		w.busy = false
		w.changed.Broadcast()
		return false
	}
	if written > 0 {
		w.changed.Broadcast()
	}
	w.next, w.cur = w.cur, w.next
	return true
}

// rest ends the caller's turn if nothing has gathered meanwhile.
func (w *writer) rest() bool {
	written := w.cur.size
	w.cur.done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queued -= written
	if !w.next.empty() && w.err == nil {
		return false
	}
	w.busy = false
	w.changed.Broadcast()
	return true
}

// stop ends the caller's turn because writing has failed.
func (w *writer) stop(err error) {
	err = fmt.Errorf("write frames: %w", err)
	w.cur.done()
	w.close(err)
	w.mu.Lock()
	w.busy = false
	w.changed.Broadcast()
	w.mu.Unlock()
	w.fail(err)
}

// close makes every later send fail with err and forgets what has gathered.
func (w *writer) close(err error) {
	w.mu.Lock()
	var left batch
	if w.err == nil {
		w.err = err
		left, w.next = w.next, batch{}
		w.queued -= left.size
	}
	w.changed.Broadcast()
	w.mu.Unlock()
	left.done()
}

// wait blocks until nobody writes any more; close comes first.
func (w *writer) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy {
		w.changed.Wait()
	}
}

// queuedBytes is what has been sent and not yet been handed to the socket.
func (w *writer) queuedBytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued
}

// await blocks until no more than most bytes are queued.
func (w *writer) await(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && w.queued > most {
		w.changed.Wait()
	}
}
