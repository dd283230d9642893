package worker

import (
	"context"
	"sync/atomic"
	"time"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
)

// machine is what the log drives: entries go through the coordinator, which
// answers for them, to the tree; checkpoints are the tree's.
type machine struct {
	*tree.Tree
	coord *coord.Coordinator
	// leads is the term that this replica leads in, 0 for none.
	leads atomic.Uint64
	// moved tells the housekeeping that leadership has changed, or that the volume
	// is in use and was not.
	moved  chan struct{}
	inUse  bool // only Apply's goroutine
	bounds Bounds
	counts *counts   // nil: nobody counts
	scrub  *scrubber // nil: entries of scrubs only count
}

var _ raftlog.Machine = (*machine)(nil)

func newMachine(t *tree.Tree, c *coord.Coordinator) *machine {
	return &machine{Tree: t, coord: c, moved: make(chan struct{}, 1)}
}

func (m *machine) Apply(entries []raftlog.Entry) error {
	if m.counts != nil {
		began := time.Now()
		defer func() { m.counts.applies.Observe(time.Since(began).Seconds()) }()
	}
	for i := range entries {
		if isScrub(entries[i].Data) {
			if err := m.applyScrub(&entries[i]); err != nil {
				return err
			}
			continue
		}
		if err := m.coord.Apply(entries[i].Index, entries[i].Term, entries[i].Data); err != nil {
			return err
		}
	}
	if inUse := m.InUse(); inUse != m.inUse {
		m.inUse = inUse
		m.wake()
	}
	return nil
}

// applyScrub takes an entry that changes nothing.
func (m *machine) applyScrub(e *raftlog.Entry) error {
	if err := m.coord.Apply(e.Index, e.Term, nil); err != nil || m.scrub == nil {
		return err
	}
	return m.scrub.apply(e.Index, e.Data)
}

func (m *machine) Lead(term uint64) {
	m.coord.Lead(term)
	m.leads.Store(term)
	m.wake()
}

func (m *machine) Follow(term, leader uint64) {
	m.leads.Store(0)
	m.coord.Follow(term, leader)
	m.wake()
}

func (m *machine) wake() {
	select {
	case m.moved <- struct{}{}:
	default:
	}
}

func (m *machine) BeginCheckpoint(extra []byte) (func(context.Context) (uint64, error), error) {
	began := time.Now()
	finish, err := m.Tree.BeginCheckpoint(extra)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (uint64, error) {
		oldest, err := m.bounds.captured(ctx, finish)
		if err == nil && m.counts != nil {
			m.counts.checkpoints.Observe(time.Since(began).Seconds())
		}
		return oldest, err
	}, nil
}

func (m *machine) Checkpoint() (raftlog.CheckpointReader, error) {
	r, err := m.Tree.Checkpoint()
	if err != nil {
		return nil, err
	}
	return reader{r}, nil
}

func (m *machine) Receive(meta raftlog.CheckpointMeta) (raftlog.CheckpointWriter, error) {
	w, err := m.Tree.Receive(tree.Meta(meta))
	if err != nil {
		return nil, err
	}
	return writer{w}, nil
}

func (m *machine) Install(w raftlog.CheckpointWriter, fence uint64) error {
	return m.Tree.Install(w.(writer).CheckpointWriter, fence)
}

// reader and writer give the tree's checkpoints the log's types.
type reader struct{ *tree.CheckpointReader }

func (r reader) Meta() raftlog.CheckpointMeta {
	return raftlog.CheckpointMeta(r.CheckpointReader.Meta())
}

func (r reader) Next() (raftlog.Part, error) {
	p, err := r.CheckpointReader.Next()
	return raftlog.Part(p), err
}

func (r reader) Open(name string) (raftlog.PartReader, error) { return r.CheckpointReader.Open(name) }

type writer struct{ *tree.CheckpointWriter }

func (w writer) Have(p raftlog.Part) (uint64, error) { return w.CheckpointWriter.Have(tree.Part(p)) }

func (w writer) Write(p raftlog.Part, offset uint64, data []byte, readAt uint64) error {
	return w.CheckpointWriter.Write(tree.Part(p), offset, data, readAt)
}

func (w writer) Hole(p raftlog.Part, offset, n, readAt uint64) error {
	return w.CheckpointWriter.Hole(tree.Part(p), offset, n, readAt)
}
