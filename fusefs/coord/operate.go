package coord

import (
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// operate logs a control operation that an operator asks for, once a quorum has
// confirmed that this is the coordinator.
func (c *Coordinator) operate(l *Link, id uint64, op fsop.Op) {
	if !l.operator || !op.Kind().Operable() {
		l.refuse(id, fsop.Fail(fsop.Denied, "operation kind %d is not for this connection", op.Kind()))
		return
	}
	c.confirmed(l, id, 0, func() {
		c.propose(op, func(r *fsop.Reply, f *fsop.Failure) {
			if f != nil {
				c.fail(l, id, f)
				return
			}
			c.reply(l, id, r)
		})
	})
}
