package coord

import (
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// own makes an attached session the volume's owner. A session that may not own
// is of no use to anybody and ends.
func (c *Coordinator) own(l *Link, id uint64, o *fsop.Own) {
	c.confirmed(l, id, 0, func() {
		s := l.session
		if s == nil || s.id != o.Session {
			c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d is not attached here", o.Session))
			return
		}
		c.propose(o, func(r *fsop.Reply, f *fsop.Failure) {
			switch {
			case f != nil:
				c.fail(l, id, f)
				return
			case r.Errno == fsop.ESTALE:
				c.fail(l, id, fsop.Fail(fsop.Fenced, "session %d has ended", o.Session))
				return
			case r.Errno != fsop.OK:
				c.evictOnce(o.Session)
			case r.Session != 0:
				c.forget(r.Session)
				c.log.Info("session ended by a newer one of its owner", zap.Uint64("session", r.Session))
			}
			c.reply(l, id, r)
		})
	})
}
