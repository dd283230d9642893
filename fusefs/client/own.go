package client

import (
	"context"
	"errors"
	"fmt"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// A session with an owner is that of a volume that one node at a time may use.
// It becomes the volume's owner before anything else is sent. When it ends in
// the log another node may have the volume: then it stays ended, and every call
// fails until the mount goes.

// OwnedError says that another node owns the volume.
type OwnedError struct{ Owner string }

func (e *OwnedError) Error() string {
	return fmt.Sprintf("the volume is in use on node %q: it must be unmounted there, or that node be silent for 60 s", e.Owner)
}

// Over returns why the session has ended for good while the mount has not, nil
// while it lasts.
func (s *Session) Over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.over == nil:
		return nil
	case s.mu.owner != "":
		return &OwnedError{s.mu.owner}
	}
	return s.mu.over
}

// OverSoon is closed when the session ends for good before its mount does.
func (s *Session) OverSoon() <-chan struct{} { return s.over }

// askToOwn asks for the ownership; the lock is held.
func (l *link) askToOwn(a *fsop.Attached) {
	l.welcome = a
	o := &fsop.Own{Session: a.Session, Owner: []byte(l.s.cfg.Owner)}
	l.send(idOwn, fsop.AppendMessage(nil, &fsop.Message{Kind: fsop.MessageOwn, Own: o}))
}

// ownAnswered installs the connection, or ends the session.
func (s *Session) ownAnswered(l *link, ans *fsop.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.welcome == nil:
	case ans.Failure != nil:
		s.refused(ans.Failure)
	case ans.Reply != nil && ans.Reply.Errno == fsop.OK:
		s.install(l, l.welcome)
	case ans.Reply != nil:
		s.mu.owner = string(ans.Reply.Data)
		s.finishFor(fsop.Fail(fsop.Fenced, "the volume is owned by %s", s.mu.owner))
	}
	l.welcome = nil
}

// awaitOwned waits until the connection is of use.
func (l *link) awaitOwned(ctx context.Context) error {
	if l.s.cfg.Owner == "" {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.closed:
		return errors.New("closed while asking for ownership")
	case <-l.s.cfg.Clock.After(attachTimeout):
		return errors.New("no answer to the question for ownership")
	case ans := <-l.owned:
		if ans.Failure != nil {
			return ans.Failure
		}
		if ans.Reply == nil || ans.Reply.Errno != fsop.OK {
			return errors.New("the volume is owned by another node")
		}
		return nil
	}
}

// finishFor ends the session for good: every call fails, now and later. The
// ledger keeps it, so that the next serving process finds it ended too. The
// lock is held.
func (s *Session) finishFor(f *fsop.Failure) {
	if s.mu.over != nil {
		return
	}
	s.mu.over = f
	close(s.over)
	s.cache.clear()
	s.failAll(f)
}
