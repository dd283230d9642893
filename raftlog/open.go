package raftlog

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/snapshot"
	"tak-os.org/tak-replicated/raftlog/wal"
)

// Open opens a replica that was initialised. It returns a *StateLostError when
// the folder is not what cfg.Expect says, or can't be trusted. It starts nothing.
func Open(cfg Config) (*Group, error) {
	cfg.Timing, cfg.Limits = cfg.Timing.withDefaults(), cfg.Limits.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Rand = &sharedRand{rand: cfg.Rand}
	if cfg.Observe == nil {
		cfg.Observe = unobserved{}
	}
	rec, err := readRecord(cfg.FS, cfg.Dir)
	if errors.Is(err, ErrNotInitialised) {
		return nil, &StateLostError{Reason: "identity is missing"}
	}
	if err != nil {
		return nil, err
	}
	if err := forcedUnfinished(cfg); err != nil {
		return nil, err
	}
	if rec.Identity != cfg.Expect {
		return nil, &StateLostError{Reason: fmt.Sprintf("folder is of %s, not of %s", rec.Identity, cfg.Expect)}
	}
	if err := removeSmall(cfg.FS, cfg.Dir, initialisingName); err != nil {
		return nil, fmt.Errorf("remove mark of initialisation: %w", err)
	}
	j, found, err := wal.Open(cfg.journal())
	if err != nil {
		return nil, lost(err)
	}
	o := opening{cfg: cfg, record: rec, journal: j, found: *found}
	g, err := o.open()
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return g, nil
}

// opening puts together what a replica's folder holds.
type opening struct {
	cfg     Config
	record  record
	journal *wal.Journal
	found   wal.Recovered

	index, term uint64 // of the machine
	checkpoint  *CheckpointMeta
	membership  *membership
	// stateless: the machine's state is not what the journal goes on from.
	stateless bool
}

func (o *opening) open() (*Group, error) {
	if err := o.machine(); err != nil {
		return nil, err
	}
	if err := o.finishInstall(); err != nil {
		return nil, err
	}
	base, last := o.found.Base.Index, o.found.Last.Index
	if o.index == 0 && base == genesisPlace.index {
		// Nothing was applied yet; the machine gets the beginning as an entry.
		o.index, o.term = genesisPlace.index, genesisPlace.term
		if err := o.cfg.Machine.Apply([]Entry{{Index: o.index, Term: o.term}}); err != nil {
			return nil, fmt.Errorf("apply the beginning: %w", err)
		}
	}
	if o.index > last {
		return nil, &StateLostError{Reason: fmt.Sprintf(
			"state is that of entry %d, the journal goes from %d to %d", o.index, base+1, last)}
	}
	if o.index < base {
		if err := o.withoutState(); err != nil {
			return nil, err
		}
	}
	end := o.contentsEnd()
	o.cfg.Machine.SetFence(end.index, end.term)
	return o.assemble()
}

// contentsEnd is how new the machine's contents may be: the journal's last entry, and
// the latest term of any that it may have held.
func (o *opening) contentsEnd() entryID {
	return entryID{o.found.Last.Index, max(o.found.Last.Term, o.found.Fence.Term)}
}

// machine asks what the machine has, and who the members were then.
func (o *opening) machine() error {
	o.index, o.term = o.cfg.Machine.Applied()
	o.membership = genesis(o.record.genesis)
	ck, err := o.cfg.Machine.Checkpoint()
	if errors.Is(err, fs.ErrNotExist) {
		if o.index > genesisPlace.index {
			return &StateLostError{Reason: fmt.Sprintf("state of entry %d without a checkpoint", o.index)}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read checkpoint: %w", err)
	}
	meta := ck.Meta()
	if err := ck.Close(); err != nil {
		return fmt.Errorf("close checkpoint: %w", err)
	}
	if meta.Index != o.index {
		return &StateLostError{Reason: fmt.Sprintf("state is that of entry %d, the checkpoint of %d", o.index, meta.Index)}
	}
	m, err := decodeMembership(meta.Extra)
	if err != nil {
		return &StateLostError{Reason: "membership in the checkpoint is damaged", Err: err}
	}
	o.checkpoint, o.membership = &meta, m
	return nil
}

// finishInstall completes or forgets the installation of a checkpoint during
// which the replica went down.
func (o *opening) finishInstall() error {
	m, err := readMark(o.cfg.FS, o.cfg.Dir)
	if err != nil || m == nil {
		return err
	}
	if m.index == o.index && m.index != o.found.Base.Index {
		to, last := wal.Position{Index: m.index, Term: m.term}, o.found.Last
		if err := o.journal.ResetFenced(to, last); err != nil {
			return fmt.Errorf("begin journal after checkpoint %d: %w", m.index, err)
		}
		if o.found.Fence.Before(last) {
			o.found.Fence = last
		}
		o.found.Base, o.found.Last = to, to
		if !to.Before(o.found.Fence) {
			o.found.Fence = wal.Position{}
		}
	}
	if err := removeSmall(o.cfg.FS, o.cfg.Dir, markName); err != nil {
		return fmt.Errorf("remove mark of checkpoint %d: %w", m.index, err)
	}
	return nil
}

// assemble builds the group.
func (o *opening) assemble() (*Group, error) {
	cfg := o.cfg
	id := cfg.Expect.Member
	g := &Group{cfg: cfg, log: cfg.Log.With(zap.Uint64("member", id))}
	g.receiver.turn = make(chan struct{}, 1)
	end := o.found.Last
	if end.Before(o.found.Fence) {
		end = o.found.Fence
	}
	g.openedEnd = entryID{end.Index, end.Term}
	g.stop.done = make(chan struct{})
	g.removed = make(chan struct{})
	g.inbox.handover = make(chan struct{}, 1)
	g.inbox.idle = sync.NewCond(&g.inbox)
	g.applied.index.Store(o.index)
	g.persister = &persister{g: g, log: o.log(), wake: make(chan struct{}, 1)}
	g.applier = &applier{g: g, wake: make(chan struct{}, 1), membership: o.membership, index: o.index, term: o.term}
	g.applier.checkpoint.a = g.applier
	g.applier.checkpoint.replayed = o.contentsEnd()
	if o.checkpoint != nil {
		g.applier.checkpoint.last = o.checkpoint.Index
	}
	g.persister.written.Store(o.journal.Usage().LiveBytes)
	c := &core{
		probed: map[uint64]uint64{},
		g:      g, log: g.log, id: id, membership: o.membership, checkpoint: o.checkpoint,
		clock: clockwork{timing: cfg.Timing}, owed: map[uint64]*pb.Message{},
	}
	g.core = c
	c.noteRemoval()
	limits := cfg.Rebuilds
	if limits == nil {
		limits = snapshot.NewLimits(0, 0)
	}
	c.rebuilds = rebuilds{g: g, limits: limits, start: make(chan *outbound, membersMost)}
	hard := o.hardState()
	c.store = &storage{
		journal: o.journal, hard: hard, conf: o.membership.conf, checkpoint: c.checkpointForMember,
		first: o.found.Base.Index + 1, last: o.found.Last.Index, before: o.found.Base.Term,
		cacheFirst: o.found.Last.Index + 1, cacheMost: cfg.Limits.CacheBytes,
	}
	if o.stateless {
		c.stateless = true
		c.store.reset(0, 0)
	}
	if o.found.Fence.Index != 0 {
		c.fence = newFence(entryID{o.found.Fence.Index, o.found.Fence.Term})
		c.log.Warn("what may have been confirmed is not there",
			zap.Uint64("index", o.found.Fence.Index), zap.Uint64("last", c.store.last))
		c.checkFence()
	}
	return g, c.newProtocol(hard, o.index)
}

// log is the journal as it is going to be written.
func (o *opening) log() *diskLog {
	l := &diskLog{Journal: o.journal}
	if o.stateless {
		l.fence = o.found.Last
	}
	return l
}

// hardState is the vote as found, with a commit index that covers what the
// machine has.
func (o *opening) hardState() *pb.HardState {
	h := o.found.Hard
	if o.stateless {
		return &pb.HardState{Term: new(h.GetTerm()), Vote: new(h.GetVote()), Commit: new(uint64(0))}
	}
	commit := max(h.GetCommit(), o.index)
	if last := o.found.Last.Index; commit > last && o.found.Fence.Index != 0 {
		commit = last
	}
	return &pb.HardState{Term: new(max(h.GetTerm(), o.term)), Vote: new(h.GetVote()), Commit: new(commit)}
}

// newProtocol makes the protocol's value from what is stored.
func (c *core) newProtocol(hard *pb.HardState, applied uint64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &StateLostError{Reason: fmt.Sprintf("journal and state do not fit: %v", r)}
		}
	}()
	t, l := c.g.cfg.Timing, c.g.cfg.Limits
	c.rn, err = raft.NewRawNode(&raft.Config{
		ID:                        c.id,
		ElectionTick:              t.ElectionTicks,
		HeartbeatTick:             t.HeartbeatTicks,
		Storage:                   c.store,
		Applied:                   applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             uint64(l.MessageBytes),
		MaxCommittedSizePerReady:  uint64(4 * l.MessageBytes),
		MaxInflightMsgs:           l.InflightMessages,
		MaxInflightBytes:          uint64(8 * l.MessageBytes),
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    newProtocolLog(c.log),
	})
	if err != nil {
		return fmt.Errorf("begin protocol: %w", err)
	}
	c.voteTerm, c.vote = hard.GetTerm(), hard.GetVote()
	c.term, c.commit, c.logged = hard.GetTerm(), hard.GetCommit(), entryID{index: c.store.last}
	c.role = c.roleOf(raft.StateFollower)
	return nil
}

// journal is the configuration of the replica's journal.
func (c Config) journal() wal.Config {
	return wal.Config{
		FS: c.FS, Dir: path.Join(c.Dir, "journal"), Identity: c.Expect.journalID(), Rand: c.Rand,
		Log: c.Log, SegmentSize: c.Limits.SegmentBytes, MaxSegments: c.segments(), CacheBytes: 1,
	}
}

// segments is how many files the journal may use.
func (c Config) segments() int {
	size := c.Limits.SegmentBytes
	if size == 0 {
		size = wal.DefaultSegmentSize
	}
	return int(max(c.Limits.JournalBytes/size, 4))
}

// sharedRand lets the protocol and the journal draw from one source.
type sharedRand struct {
	mu   sync.Mutex
	rand Rand
}

func (r *sharedRand) Uint64() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rand.Uint64()
}

// journalID is what the journal writes into its records, so that it never
// takes those of another replica or of an earlier life for its own.
func (id Identity) journalID() [16]byte {
	b := appendString(nil, id.Volume)
	b = appendString(b, id.Replica)
	b = binary.LittleEndian.AppendUint64(b, id.Incarnation)
	b = binary.LittleEndian.AppendUint64(b, id.Member)
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}
