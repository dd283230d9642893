package coord

import (
	"bytes"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// A client reads contents that its leases cover from the replica on its own node.
// That replica needs no quorum: as long as the client holds the lease nobody else
// changes the file, so whatever a replica shows that has applied as much as the
// lease has seen is what the coordinator would show. The client looks at its lease
// once more when it has the answer.
//
// The replica has to follow the very coordinator that granted the lease. One that
// an operator's replacement has left behind may have applied other entries under
// the same numbers; it never learns of that coordinator's term.

// followerRead answers a read of contents from what is applied here.
func (c *Coordinator) followerRead(l *Link, id uint64, r *fsop.FollowerRead) {
	if err := l.authorized(r.Token); err != nil {
		l.refuse(id, fsop.Fail(fsop.Denied, "%v", err))
		return
	}
	c.lock()
	defer c.unlock()
	switch r.Op.(type) {
	case *fsop.Read, *fsop.ReadMany:
	default:
		c.fail(l, id, fsop.Fail(fsop.Malformed, "kind %d is not read without a session", r.Op.Kind()))
		return
	}
	switch {
	case !c.serves(r.Term):
		c.fail(l, id, c.notCoordinator())
	case l.queries >= c.limits.QueriesPerLink:
		c.fail(l, id, fsop.Fail(fsop.Busy, "%d queries are executing", l.queries))
	default:
		l.queries++
		c.cfg.Spawn(func() { c.answerFollower(l, id, r) })
	}
}

// tokenFor is how long a token that was good is not looked at again: that takes
// longer than to read.
const tokenFor = 10 * time.Second

// authorized reports whether a token is good.
func (l *Link) authorized(token []byte) error {
	c := l.c
	if c.cfg.Authorize == nil {
		return nil
	}
	if now := c.cfg.Clock.Mono(); now >= l.tokenUntil || !bytes.Equal(token, l.token) {
		if err := c.cfg.Authorize(token); err != nil {
			return err
		}
		l.token, l.tokenUntil = bytes.Clone(token), now+tokenFor
	}
	return nil
}

func (c *Coordinator) answerFollower(l *Link, id uint64, r *fsop.FollowerRead) {
	rep, failure := c.read(nil, r.Op, nil)
	c.lock()
	defer c.unlock()
	l.queries--
	switch {
	case failure != nil:
		c.fail(l, id, failure)
	case !c.serves(r.Term):
		c.fail(l, id, c.notCoordinator())
	case rep.Index < r.Index:
		c.fail(l, id, fsop.Fail(fsop.Busy, "entry %d is not applied here", r.Index))
	default:
		c.reply(l, id, rep)
	}
}

// serves reports whether this replica leads in the term or follows whoever does.
func (c *Coordinator) serves(term uint64) bool {
	if c.term != 0 {
		return c.term == term
	}
	return c.leader != 0 && c.followed == term
}
