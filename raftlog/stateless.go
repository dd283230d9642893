package raftlog

import (
	"fmt"

	"go.uber.org/zap"
)

// A replica whose journal is whole but whose machine lost its state, or has one
// from before the journal's beginning, is stateless. It keeps its votes and
// confirms nothing: the protocol is shown an empty log, so that the leader sends
// a checkpoint, and a fence at the journal's end, so that no log that lacks what
// this replica confirmed gets its vote, and it does not stand for election. The
// journal itself stays on the disk until the checkpoint is installed: should the
// others be lost meanwhile, it can still be exported. A crash at any point leaves
// the replica stateless, or with the checkpoint installed.

// withoutState decides that the replica goes on stateless. A replica that is the
// only voter has nobody to get a checkpoint from.
func (o *opening) withoutState() error {
	last := o.found.Last
	if voters := o.membership.voters(); len(voters) == 1 && voters[0] == o.cfg.Expect.Member {
		return &StateLostError{Reason: fmt.Sprintf(
			"state is that of entry %d, the journal goes from %d to %d, and there is no other replica",
			o.index, o.found.Base.Index+1, last.Index)}
	}
	if o.found.Fence.Before(last) {
		o.found.Fence = last
	}
	o.cfg.Log.Warn("state is missing or too old; waiting for a checkpoint from the leader",
		zap.Uint64("state", o.index), zap.Uint64("first", o.found.Base.Index+1), zap.Uint64("last", last.Index))
	o.stateless, o.index, o.term, o.checkpoint = true, 0, 0, nil
	return nil
}
