package raftlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/wal"
)

// initialisingName is a file that is there while a folder is being initialised:
// a journal beside it holds nothing yet.
const initialisingName = "initialising"

// genesisPlace is the place in the log of the first membership. A log begins
// with a checkpoint there that exists nowhere, so that whoever joins later
// never takes the log from its beginning without the membership.
var genesisPlace = entryID{index: 1, term: 1}

// Bootstrap initialises a replica for the first and only time. members are the
// members that the log starts with; all of them must be bootstrapped with the
// same list. Without members the replica joins an existing log: it waits as a
// learner until the leader sends it a checkpoint. After a crash the folder is
// not initialised or completely so; Bootstrap may be repeated with the same
// arguments, also after it succeeded.
//
// Of cfg it uses FS, Dir, Expect, Rand, Log and Limits.
func Bootstrap(cfg Config, members []Member) error {
	cfg.Limits = cfg.Limits.withDefaults()
	if err := cfg.Expect.validate(); err != nil {
		return err
	}
	if err := validateGenesis(cfg.Expect, members); err != nil {
		return err
	}
	want := record{Identity: cfg.Expect, genesis: slices.Clone(members)}
	sortMembers(want.genesis)
	switch have, err := readRecord(cfg.FS, cfg.Dir); {
	case err == nil && have.Identity == want.Identity && slices.Equal(have.genesis, want.genesis):
		return nil
	case err == nil:
		return &StateLostError{Reason: fmt.Sprintf("folder is of %s, not of %s", have.Identity, want.Identity)}
	case !errors.Is(err, ErrNotInitialised):
		return err
	}
	return initialise(cfg, want)
}

func validateGenesis(self Identity, members []Member) error {
	if len(members) == 0 {
		return nil
	}
	if len(members) > membersMost {
		return fmt.Errorf("%d members", len(members))
	}
	seen := map[uint64]bool{}
	for _, m := range members {
		if m.ID == 0 || seen[m.ID] || len(m.Replica) == 0 || len(m.Replica) > 255 || m.Learner {
			return fmt.Errorf("first members contain an unfit one: %+v", m)
		}
		seen[m.ID] = true
		if m.ID == self.Member && (m.Replica != self.Replica || m.Incarnation != self.Incarnation) {
			return fmt.Errorf("member %d is %s of incarnation %d", m.ID, m.Replica, m.Incarnation)
		}
	}
	if !seen[self.Member] {
		return fmt.Errorf("member %d is not among the first members", self.Member)
	}
	return nil
}

// initialise makes mark, journal and identity, in this order, and removes the
// mark. Only the identity makes a replica.
func initialise(cfg Config, want record) error {
	if err := disk.MkdirDurable(cfg.FS, cfg.Dir); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	begun, err := exists(cfg, initialisingName)
	if err != nil {
		return err
	}
	journal := cfg.journal()
	if there, err := exists(cfg, "journal"); err != nil {
		return err
	} else if there && !begun {
		return &StateLostError{Reason: "there is a journal without an identity"}
	}
	if err := writeSmall(cfg.FS, cfg.Dir, initialisingName, nil); err != nil {
		return fmt.Errorf("mark initialisation: %w", err)
	}
	if err := cfg.FS.RemoveAll(journal.Dir); err != nil {
		return fmt.Errorf("remove unfinished journal: %w", err)
	}
	base := wal.Position{}
	if len(want.genesis) > 0 {
		base = wal.Position{Index: genesisPlace.index, Term: genesisPlace.term}
	}
	if err := createJournal(journal, base); err != nil {
		return err
	}
	if err := writeSmall(cfg.FS, cfg.Dir, identityName, want.encode()); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	if err := removeSmall(cfg.FS, cfg.Dir, initialisingName); err != nil {
		return fmt.Errorf("remove mark of initialisation: %w", err)
	}
	return nil
}

func exists(cfg Config, name string) (bool, error) {
	_, err := cfg.FS.Stat(path.Join(cfg.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// createJournal makes a journal that begins after base.
func createJournal(cfg wal.Config, base wal.Position) error {
	if err := wal.Create(cfg); err != nil {
		return fmt.Errorf("create journal: %w", err)
	}
	if base == (wal.Position{}) {
		return nil
	}
	j, _, err := wal.Open(cfg)
	if err != nil {
		return fmt.Errorf("open new journal: %w", err)
	}
	l := &diskLog{Journal: j}
	if err := l.Reset(&pb.HardState{Term: new(base.Term), Vote: new(uint64(0)), Commit: new(uint64(0))}, base.Index, base.Term); err != nil {
		return errors.Join(fmt.Errorf("begin journal: %w", err), j.Close())
	}
	if err := j.Close(); err != nil {
		return fmt.Errorf("close new journal: %w", err)
	}
	return nil
}
