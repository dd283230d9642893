package raftlog

import "time"

// stallMost is how long a member may do nothing about a checkpoint that it is being sent.
// It needs longest before it says that it has everything: it syncs that, and checks the
// metadata, of which it reads gigabytes in the time.
const stallMost = 10 * time.Minute

// hopeless is called at each tick, period after the one before, and says why there is no
// use in going on with a transfer, nothing if there is. A member whose disk hangs keeps
// its connection all the same, and would hold for ever one of the few places that a
// process has for transfers, and the checkpoint with all contents that were removed since.
func (o *outbound) hopeless(m *membership, period time.Duration) string {
	if o.ended || o.ctx.Err() != nil {
		return ""
	}
	if _, ok := m.member(o.to); !ok {
		return "it is no member any more"
	}
	if moves := o.moves.Load(); moves != o.seen || moves == 0 { // 0: it waits for its place
		o.seen, o.still = moves, 0
		return ""
	}
	if o.still += period; o.still < stallMost {
		return ""
	}
	return "it has done nothing about it for " + stallMost.String()
}
