package kernel

import (
	"context"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// A Caller that is a session implements more than [fsop.Caller]. Each of these
// is optional: kernel finds them by type assertion once, when a mount starts to
// serve.

// Cacher answers queries from memory. TryCall never blocks and never sends; false means
// that Call must be asked. It is called with the baton held, so it decides how
// fast a mount answers.
type Cacher interface {
	TryCall(req *fsop.Request) (*fsop.Reply, bool)
}

// Ahead answers mutations before they are in the log. TryChange never blocks;
// false means that nothing has happened and Call must be asked.
type Ahead interface {
	TryChange(req *fsop.Request) (*fsop.Reply, bool)
}

// Patient is for a session that gives operations up after a while. Deadline is when
// that is for one that comes now, for [fsop.Request]: what a request waits for
// before it asks is to count, too.
type Patient interface {
	Deadline() time.Duration
}

// Finisher learns that the kernel has its answer: tag will not come again, and
// replies to its mutations may be acknowledged and forgotten. It is called once
// for every request that made a mutation, and earlier for what changed nothing (a
// lock that is held, a name that is taken), after which the same tag may begin again.
type Finisher interface {
	Finish(tag uint64)
}

// Resumer learns, once after a takeover, which requests the previous process
// left unanswered: exactly those come again. What the ledger holds of any other
// tag was answered.
type Resumer interface {
	Resumed(tags []uint64)
}

// Syncer is for a session that answers mutations before they are durable.
type Syncer interface {
	// Sync is asked by fsync(2) and fdatasync(2) to make everything of an inode
	// durable.
	Sync(ctx context.Context, ino fsop.Ino, handle uint64) error
	// Owed is asked by close(2). It never blocks. Both report, once to each
	// handle, that work was lost: a [fsop.LostError].
	Owed(handle uint64) error
}
