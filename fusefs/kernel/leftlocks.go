package kernel

import (
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// unlockAgain is how long after a failed release the locks are released again.
const unlockAgain = time.Second

// leftLocks are locks whose descriptors are closed and that could not be released:
// without a quorum, for instance. They would keep others away as long as the mount
// lasts. The ledger has their holders, so a process that takes over finds them.
type leftLocks struct {
	mu      sync.Mutex
	holders []holder
	running bool
}

// add has locks released as soon as that is possible.
func (l *leftLocks) add(s *server, holders ...holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders = append(l.holders, holders...)
	if !l.running && len(l.holders) > 0 {
		l.running = true
		s.group.Go(func() { l.run(s) })
	}
}

func (l *leftLocks) run(s *server) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(unlockAgain):
		}
		for _, h := range l.take() {
			if s.unlockLeft(h) != fsop.OK {
				l.keep(h)
			}
		}
		if l.done() {
			return
		}
	}
}

func (l *leftLocks) take() []holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.holders
	l.holders = nil
	return all
}

func (l *leftLocks) keep(h holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders = append(l.holders, h)
}

func (l *leftLocks) done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = len(l.holders) > 0
	return !l.running
}

// unlockLeft releases locks of a closed descriptor, unless the owner has none any
// more. Whoever asks for a lock meanwhile comes behind it.
func (s *server) unlockLeft(h holder) fsop.Errno {
	defer s.releases.begin(h.Ino)()
	if !s.ledger.left(h) {
		return fsop.OK
	}
	return s.unlockAll(h)
}
