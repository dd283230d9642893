package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/wal"
)

// forcedName is a file that is there while a forced replacement is at work. Its
// content is the identity that the replica is going to have, as in the identity
// file. A replica that has it is not opened.
const forcedName = "forced"

// Force makes a replica the only member of its log, under a new identity: for
// the operator who knows that the quorum is lost for good. Everything that the
// replica's journal holds becomes part of the state, confirmed or not; what only
// the others had is lost. All former members are barred, this one's former id
// too. The replica must not be open anywhere; cfg.Expect is its identity as it
// was. Force may be repeated with the same arguments until it returns nil, also
// after a crash.
//
// Of cfg it uses FS, Dir, Expect, Machine, Rand, Log and Limits.
func Force(cfg Config, next Identity) error {
	cfg.Limits = cfg.Limits.withDefaults()
	if err := errors.Join(cfg.Expect.validate(), next.validate()); err != nil {
		return err
	}
	if next.Volume != cfg.Expect.Volume || next.Replica != cfg.Expect.Replica || next.Incarnation <= cfg.Expect.Incarnation || next.Member == cfg.Expect.Member {
		return fmt.Errorf("%s can't become %s", cfg.Expect, next)
	}
	f := forcing{cfg: cfg, next: next}
	rec, err := readRecord(cfg.FS, cfg.Dir)
	switch {
	case err != nil:
		return err
	case rec.Identity == next:
		return f.unmark()
	case rec.Identity != cfg.Expect:
		return &StateLostError{Reason: fmt.Sprintf("folder is of %s, not of %s", rec.Identity, cfg.Expect)}
	}
	f.genesis = rec.genesis
	if err := writeSmall(cfg.FS, cfg.Dir, forcedName, record{Identity: next}.encode()); err != nil {
		return fmt.Errorf("mark forced replacement: %w", err)
	}
	at, err := f.state()
	if err != nil {
		return err
	}
	return f.begin(at)
}

// forcing is a forced replacement at work.
type forcing struct {
	cfg     Config
	next    Identity
	genesis []Member
}

// state brings the machine to the end of the journal and names a checkpoint with
// the new membership there, unless an earlier attempt has.
func (f *forcing) state() (entryID, error) {
	ck, err := f.cfg.Machine.Checkpoint()
	if err == nil {
		meta := ck.Meta()
		if err := ck.Close(); err != nil {
			return entryID{}, err
		}
		m, err := decodeMembership(meta.Extra)
		if err == nil && len(m.members) == 1 && m.members[0].ID == f.next.Member {
			return entryID{meta.Index, meta.Term}, nil
		}
	}
	j, found, err := wal.Open(f.cfg.journal())
	if err != nil {
		return entryID{}, lost(err)
	}
	o := opening{cfg: f.cfg, record: record{f.cfg.Expect, f.genesis}, journal: j, found: *found}
	at, err := f.advance(&o)
	return at, errors.Join(err, j.Close())
}

// advance applies what the journal holds, and one entry more.
func (f *forcing) advance(o *opening) (entryID, error) {
	if err := o.machine(); err != nil {
		return entryID{}, err
	}
	if err := o.finishInstall(); err != nil {
		return entryID{}, err
	}
	if o.index == 0 && o.found.Base.Index == genesisPlace.index {
		o.index, o.term = genesisPlace.index, genesisPlace.term
		if err := f.cfg.Machine.Apply([]Entry{{Index: o.index, Term: o.term}}); err != nil {
			return entryID{}, fmt.Errorf("apply the beginning: %w", err)
		}
	}
	last := o.found.Last
	if o.index < o.found.Base.Index || o.index > last.Index {
		return entryID{}, &StateLostError{Reason: fmt.Sprintf(
			"state is that of entry %d, the journal goes from %d to %d", o.index, o.found.Base.Index+1, last.Index)}
	}
	if o.found.Fence.Index > last.Index {
		f.cfg.Log.Warn("the end of the journal does not read; what it held is lost",
			zap.Uint64("index", last.Index), zap.Uint64("held", o.found.Fence.Index))
	}
	end := o.contentsEnd()
	f.cfg.Machine.SetFence(end.index, end.term)
	for o.index < last.Index {
		if err := f.apply(o); err != nil {
			return entryID{}, err
		}
	}
	at := entryID{last.Index + 1, max(last.Term, o.found.Hard.GetTerm(), o.found.Fence.Term) + 1}
	if err := f.cfg.Machine.Apply([]Entry{{Index: at.index, Term: at.term}}); err != nil {
		return at, fmt.Errorf("apply the new beginning: %w", err)
	}
	finish, err := f.cfg.Machine.BeginCheckpoint(f.membership(o.membership).encode())
	if err != nil {
		return at, fmt.Errorf("begin checkpoint: %w", err)
	}
	if _, err := finish(context.Background()); err != nil {
		return at, fmt.Errorf("name checkpoint: %w", err)
	}
	return at, nil
}

// apply gives the machine the next entries of the journal.
func (f *forcing) apply(o *opening) error {
	const most = 1 << 20
	entries, err := o.journal.Entries(o.index+1, o.found.Last.Index+1, most)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	batch := make([]Entry, 0, len(entries))
	for _, e := range entries {
		cc, err := changeOf(e)
		if err != nil {
			return err
		}
		next := Entry{Index: e.GetIndex(), Term: e.GetTerm()}
		if cc == nil {
			next.Data = e.GetData()
		} else if o.membership, err = o.membership.apply(cc); err != nil {
			return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
		}
		batch = append(batch, next)
	}
	if err := f.cfg.Machine.Apply(batch); err != nil {
		return fmt.Errorf("apply entry %d: %w", o.index+1, err)
	}
	o.index = batch[len(batch)-1].Index
	return nil
}

// membership is this replica alone; everybody that was is barred.
func (f *forcing) membership(was *membership) *membership {
	removed := slices.Clone(was.removed)
	for _, m := range was.members {
		removed = append(removed, m.ID)
	}
	for _, m := range f.genesis {
		if !slices.Contains(removed, m.ID) {
			removed = append(removed, m.ID)
		}
	}
	self := Member{ID: f.next.Member, Replica: f.next.Replica, Incarnation: f.next.Incarnation}
	return newMembership(&pb.ConfState{Voters: []uint64{self.ID}}, []Member{self}, removed)
}

// begin makes journal and identity of the new life, in this order.
func (f *forcing) begin(at entryID) error {
	old, next := f.cfg, f.cfg
	next.Expect = f.next
	if err := old.FS.RemoveAll(old.journal().Dir); err != nil {
		return fmt.Errorf("remove the former journal: %w", err)
	}
	if err := createJournal(next.journal(), wal.Position{Index: at.index, Term: at.term}); err != nil {
		return err
	}
	if err := writeSmall(old.FS, old.Dir, identityName, record{Identity: f.next}.encode()); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return f.unmark()
}

func (f *forcing) unmark() error {
	if err := removeSmall(f.cfg.FS, f.cfg.Dir, forcedName); err != nil {
		return fmt.Errorf("remove mark of forced replacement: %w", err)
	}
	return nil
}

// forcedUnfinished refuses a replica in the middle of a forced replacement.
func forcedUnfinished(cfg Config) error {
	_, err := readSmall(cfg.FS, path.Join(cfg.Dir, forcedName))
	switch {
	case err == nil:
		return errors.New("a forced replacement is not finished: repeat it")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("look for a forced replacement: %w", err)
}
