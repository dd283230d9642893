package raftlog

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/snapshot"
)

// Config is what one replica's group is made of.
type Config struct {
	// FS and Dir are the replica's volume and the folder on it that belongs to
	// the log. The machine keeps its own state elsewhere.
	FS  disk.FS
	Dir string

	// Expect is what the host recorded of this replica: Open refuses a folder
	// that is not exactly this one.
	Expect Identity

	Machine   Machine
	Transport Transport
	Clock     Clock
	Rand      Rand
	Log       *zap.Logger
	// Observe is told how long things took; nil: nobody is.
	Observe Observer

	// Rebuilds bounds what all groups of a process send to members that need a
	// checkpoint. nil stands for bounds of this group's own.
	Rebuilds *snapshot.Limits

	Timing Timing
	Limits Limits

	// Manual makes a group that does nothing by itself: Start, Tick, Pump and
	// Close take the place of Run, for simulations that have to repeat exactly.
	Manual bool
}

// Timing is the group's clockwork. The zero value of a field stands for the
// default.
type Timing struct {
	// Tick is the unit in which the group counts time while it is active (20 ms).
	Tick time.Duration
	// HeartbeatTicks is how often a leader is heard (5: 100 ms).
	HeartbeatTicks int
	// ElectionTicks is how long a leader that is not heard keeps its followers
	// from voting for another, and a leader without a quorum its office (30:
	// 600 ms). Followers stand for election 60 to 480 ms later, in turns.
	ElectionTicks int
	// IdleFactor is how many times slower the clockwork of a group without
	// sessions is (100: a tick is 2 s, a heartbeat 10 s).
	IdleFactor int
	// IdleAfter is how many ticks without traffic and sessions it takes (250: 5 s).
	IdleAfter int
	// SyncLimit is the longest time a journal write may take before the
	// replica gives up leadership (2 s).
	SyncLimit time.Duration
}

// Limits bounds a group. The zero value of a field stands for the default.
type Limits struct {
	// Proposals and ProposalBytes bound what was proposed and is not applied
	// (4096; 32 MiB, an eighth of JournalBytes at most). Beyond them Propose returns ErrBusy.
	Proposals     int
	ProposalBytes int64
	// EntryBytes is the largest proposal (2 MiB; a quarter of a segment at most).
	EntryBytes int
	// MessageBytes is how much of the log one message carries at most, unless
	// a single entry is larger (1 MiB).
	MessageBytes int
	// InflightMessages bounds the messages to a member that it has not
	// acknowledged (256).
	InflightMessages int
	// CacheBytes is how much of the newest log is kept in memory for members
	// that are a little behind (1 MiB).
	CacheBytes int
	// CheckpointBytes is how much journal may be written between two
	// checkpoints (64 MiB; a quarter of JournalBytes at most).
	CheckpointBytes int64
	// JournalBytes bounds the disk space of the journal (256 MiB). When it is
	// nearly reached a checkpoint is taken at once, whoever is behind.
	JournalBytes int64
	// SegmentBytes is the size of one file of the journal (the journal's default).
	SegmentBytes int64
}

func (t Timing) withDefaults() Timing {
	orDefault(&t.Tick, 20*time.Millisecond)
	orDefault(&t.HeartbeatTicks, 5)
	orDefault(&t.ElectionTicks, 30)
	orDefault(&t.IdleFactor, 100)
	orDefault(&t.IdleAfter, 250)
	orDefault(&t.SyncLimit, 2*time.Second)
	return t
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.Proposals, 4096)
	orDefault(&l.ProposalBytes, 32<<20)
	orDefault(&l.EntryBytes, 2<<20)
	if l.SegmentBytes > 0 {
		l.EntryBytes = min(l.EntryBytes, int(l.SegmentBytes/4))
	}
	orDefault(&l.MessageBytes, 1<<20)
	orDefault(&l.InflightMessages, 256)
	orDefault(&l.CacheBytes, 1<<20)
	orDefault(&l.CheckpointBytes, 64<<20)
	orDefault(&l.JournalBytes, 256<<20)
	// Room for two checkpoints' worth of journal, and for what is not applied yet.
	l.CheckpointBytes = min(l.CheckpointBytes, l.JournalBytes/4)
	l.ProposalBytes = min(l.ProposalBytes, l.JournalBytes/8)
	return l
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (c Config) validate() error {
	switch {
	case c.FS == nil || c.Dir == "":
		return errors.New("group without a folder")
	case c.Machine == nil || c.Transport == nil || c.Clock == nil || c.Rand == nil || c.Log == nil:
		return errors.New("group without machine, transport, clock, randomness or log")
	case c.Timing.HeartbeatTicks >= c.Timing.ElectionTicks:
		return fmt.Errorf("%d heartbeat ticks are not fewer than %d election ticks",
			c.Timing.HeartbeatTicks, c.Timing.ElectionTicks)
	}
	return c.Expect.validate()
}
