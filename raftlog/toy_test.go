package raftlog_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// toySlots is how many files a toy has.
const toySlots = 8

// toyState is what a toy replicates: a chain over all entries and some files, of
// which each entry replaces one.
type toyState struct {
	Index, Term uint64
	Chain       uint64
	Count       uint64
	Slots       [toySlots][]byte
	Stamps      [toySlots]uint64
}

// toy is a machine on a disk that may crash. Checkpoints are folders
// "ck-INDEX"; what is received is in "recv".
type toy struct {
	fs  disk.FS
	dir string

	mu     sync.Mutex
	state  toyState
	fence  uint64
	named  []uint64 // checkpoints, oldest first
	leads  []uint64
	follow int
	hold   chan struct{} // finish waits for it, if set
	seen   func(e raftlog.Entry)
	failed error
}

var _ raftlog.Machine = (*toy)(nil)

type toyMeta struct {
	State toyState // without slots
	Extra []byte
	Sizes [toySlots]int
}

func openToy(fsys disk.FS, dir string) (*toy, error) {
	m := &toy{fs: fsys, dir: dir}
	if err := disk.MkdirDurable(fsys, dir); err != nil {
		return nil, err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var index uint64
		if strings.HasSuffix(name, ".tmp") {
			if err := fsys.RemoveAll(path.Join(dir, name)); err != nil {
				return nil, err
			}
		} else if n, _ := fmt.Sscanf(name, "ck-%020d", &index); n == 1 {
			m.named = append(m.named, index)
		}
	}
	slices.Sort(m.named)
	if len(m.named) > 0 {
		_, m.state, err = m.load(m.named[len(m.named)-1])
	}
	return m, err
}

func ckName(index uint64) string { return fmt.Sprintf("ck-%020d", index) }

func (m *toy) load(index uint64) (toyMeta, toyState, error) {
	var meta toyMeta
	dir := path.Join(m.dir, ckName(index))
	b, err := disk.ReadFile(m.fs, path.Join(dir, "meta"), 1<<20)
	if err != nil {
		return meta, toyState{}, err
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return meta, toyState{}, err
	}
	s := meta.State
	for i := range s.Slots {
		if s.Slots[i], err = disk.ReadFile(m.fs, path.Join(dir, fmt.Sprintf("slot-%d", i)), 1<<26); err != nil {
			return meta, s, err
		}
		if len(s.Slots[i]) != meta.Sizes[i] {
			return meta, s, fmt.Errorf("slot %d of checkpoint %d has %d bytes, not %d", i, index, len(s.Slots[i]), meta.Sizes[i])
		}
	}
	return meta, s, nil
}

// toyEntry makes a proposal: which slot, and what it becomes.
func toyEntry(slot int, content string) []byte {
	return append([]byte{byte(slot)}, content...)
}

func (s *toyState) apply(e raftlog.Entry) {
	s.Index, s.Term = e.Index, e.Term
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, []uint64{s.Chain, e.Index, e.Term})
	h.Write(e.Data)
	s.Chain = h.Sum64()
	if len(e.Data) == 0 {
		return
	}
	s.Count++
	slot := int(e.Data[0]) % toySlots
	s.Slots[slot] = slices.Clone(e.Data[1:])
	s.Stamps[slot] = e.Index
}

func (m *toy) Apply(entries []raftlog.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return m.failed
	}
	for _, e := range entries {
		if e.Index != m.state.Index+1 {
			return fmt.Errorf("toy at %d got entry %d", m.state.Index, e.Index)
		}
		m.state.apply(e)
		if m.seen != nil {
			m.seen(e)
		}
	}
	return nil
}

func (m *toy) Lead(term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leads = append(m.leads, term)
}

func (m *toy) Follow(term, leader uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.follow++
}

func (m *toy) Applied() (uint64, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Index, m.state.Term
}

func (m *toy) SetFence(index, _ uint64) { m.fence = max(m.fence, index) }

func (m *toy) snapshot() toyState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

func (m *toy) BeginCheckpoint(extra []byte) (func(context.Context) (uint64, error), error) {
	state, hold := m.snapshot(), m.hold
	return func(ctx context.Context) (uint64, error) {
		if hold != nil {
			select {
			case <-hold:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		return m.name(state, extra)
	}, nil
}

// name writes a checkpoint and drops all but the newest two.
func (m *toy) name(state toyState, extra []byte) (uint64, error) {
	final := path.Join(m.dir, ckName(state.Index))
	if _, err := m.fs.Stat(final); err == nil {
		return m.oldest(state.Index)
	}
	tmp := final + ".tmp"
	if err := disk.MkdirDurable(m.fs, tmp); err != nil {
		return 0, err
	}
	meta := toyMeta{State: state, Extra: extra}
	for i, b := range state.Slots {
		meta.Sizes[i] = len(b)
		if err := disk.WriteFile(m.fs, path.Join(tmp, fmt.Sprintf("slot-%d", i)), b); err != nil {
			return 0, err
		}
	}
	meta.State.Slots = [toySlots][]byte{}
	b, err := json.Marshal(meta)
	if err != nil {
		return 0, err
	}
	if err := disk.WriteFile(m.fs, path.Join(tmp, "meta"), b); err != nil {
		return 0, err
	}
	if err := m.fs.Rename(tmp, final); err != nil {
		return 0, err
	}
	if err := m.fs.SyncDir(m.dir); err != nil {
		return 0, err
	}
	return m.oldest(state.Index)
}

func (m *toy) oldest(added uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.named, added) {
		m.named = append(m.named, added)
		slices.Sort(m.named)
	}
	for len(m.named) > 2 {
		if err := m.fs.RemoveAll(path.Join(m.dir, ckName(m.named[0]))); err != nil {
			return 0, err
		}
		m.named = m.named[1:]
	}
	return m.named[0], nil
}

func (m *toy) newest() (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.named) == 0 {
		return 0, false
	}
	return m.named[len(m.named)-1], true
}

// Checkpoint reads the newest checkpoint into memory: that pins it.
func (m *toy) Checkpoint() (raftlog.CheckpointReader, error) {
	index, ok := m.newest()
	if !ok {
		return nil, fs.ErrNotExist
	}
	meta, state, err := m.load(index)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	return &toyReader{meta: meta, state: state, raw: raw}, nil
}

type toyReader struct {
	meta  toyMeta
	state toyState
	raw   []byte
	next  int
}

func (r *toyReader) Meta() raftlog.CheckpointMeta {
	return raftlog.CheckpointMeta{Index: r.state.Index, Term: r.state.Term, Extra: r.meta.Extra}
}

func (r *toyReader) Next() (raftlog.Part, error) {
	defer func() { r.next++ }()
	switch {
	case r.next == 0:
		return raftlog.Part{Name: "meta", Size: uint64(len(r.raw)), Stamp: r.state.Index}, nil
	case r.next <= toySlots:
		i := r.next - 1
		return raftlog.Part{Name: fmt.Sprintf("slot-%d", i), Size: uint64(len(r.state.Slots[i])), Stamp: r.state.Stamps[i]}, nil
	}
	return raftlog.Part{}, io.EOF
}

func (r *toyReader) Open(name string) (raftlog.PartReader, error) {
	if name == "meta" {
		return toyPart{strings.NewReader(string(r.raw)), r.state.Index}, nil
	}
	var i int
	if _, err := fmt.Sscanf(name, "slot-%d", &i); err != nil {
		return nil, fs.ErrNotExist
	}
	return toyPart{strings.NewReader(string(r.state.Slots[i])), r.state.Index}, nil
}

type toyPart struct {
	r     io.ReaderAt
	index uint64
}

func (p toyPart) ReadAt(b []byte, off int64) (int, uint64, error) {
	n, err := p.r.ReadAt(b, off)
	return n, p.index, err
}

func (toyPart) Close() error { return nil }

func (toyPart) Hole(uint64) (n, index uint64, err error) { return 0, 0, nil }

func (r *toyReader) NewestIndex() uint64 { return r.state.Index }
func (r *toyReader) Close() error        { return nil }

// Receive keeps parts in "recv", each beside a file with the index at which it
// was read.
func (m *toy) Receive(meta raftlog.CheckpointMeta) (raftlog.CheckpointWriter, error) {
	dir := path.Join(m.dir, "recv")
	return &toyWriter{m: m, dir: dir, meta: meta, parts: map[string]raftlog.Part{}}, disk.MkdirDurable(m.fs, dir)
}

type toyWriter struct {
	m     *toy
	dir   string
	meta  raftlog.CheckpointMeta
	parts map[string]raftlog.Part
}

// Have trusts only what was noted after it was synced, and nothing that is newer than
// the checkpoint: another sender's may be older.
func (w *toyWriter) Have(p raftlog.Part) (uint64, error) {
	w.parts[p.Name] = p
	note, err := disk.ReadFile(w.m.fs, path.Join(w.dir, p.Name+".at"), 16)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, w.fresh(p)
	}
	if err != nil {
		return 0, err
	}
	readAt, length := binary.LittleEndian.Uint64(note), binary.LittleEndian.Uint64(note[8:])
	if readAt < p.Stamp || readAt > w.meta.Index || length > p.Size {
		return 0, w.fresh(p)
	}
	return length, nil
}

// fresh empties a part, durably, before anything says how new it is.
func (w *toyWriter) fresh(p raftlog.Part) error {
	err := w.m.fs.Remove(path.Join(w.dir, p.Name+".at"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.m.fs.SyncDir(w.dir); err != nil {
		return err
	}
	return disk.WriteFile(w.m.fs, path.Join(w.dir, p.Name), nil)
}

func (w *toyWriter) Write(p raftlog.Part, offset uint64, data []byte, readAt uint64) error {
	name := path.Join(w.dir, p.Name)
	if offset > 0 {
		note, err := disk.ReadFile(w.m.fs, name+".at", 16)
		if err != nil {
			return err
		}
		readAt = min(readAt, binary.LittleEndian.Uint64(note))
	}
	f, err := w.m.fs.OpenRW(name, true)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(data, int64(offset)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	note := binary.LittleEndian.AppendUint64(nil, readAt)
	return disk.WriteFile(w.m.fs, name+".at", binary.LittleEndian.AppendUint64(note, offset+uint64(len(data))))
}

func (w *toyWriter) Hole(p raftlog.Part, offset, n, readAt uint64) error {
	return w.Write(p, offset, make([]byte, n), readAt)
}

func (w *toyWriter) Finish() error {
	for name, p := range w.parts {
		info, err := w.m.fs.Stat(path.Join(w.dir, name))
		if err != nil {
			return err
		}
		if uint64(info.Size()) < p.Size {
			return fmt.Errorf("part %s has %d bytes, not %d", name, info.Size(), p.Size)
		}
	}
	return nil
}

func (w *toyWriter) Abort() error { return nil }

func (m *toy) Install(cw raftlog.CheckpointWriter, fence uint64) error {
	w := cw.(*toyWriter)
	var meta toyMeta
	b, err := disk.ReadFile(m.fs, path.Join(w.dir, "meta"), 1<<20)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b[:w.parts["meta"].Size], &meta); err != nil {
		return err
	}
	state := meta.State
	for i := range state.Slots {
		if state.Slots[i], err = disk.ReadFile(m.fs, path.Join(w.dir, fmt.Sprintf("slot-%d", i)), 1<<26); err != nil {
			return err
		}
		// A longer rest was never noted.
		state.Slots[i] = state.Slots[i][:min(len(state.Slots[i]), meta.Sizes[i])]
		if len(state.Slots[i]) != meta.Sizes[i] {
			return fmt.Errorf("received slot %d has %d bytes, not %d", i, len(state.Slots[i]), meta.Sizes[i])
		}
	}
	if state.Index != w.meta.Index {
		return fmt.Errorf("received the state of %d as checkpoint %d", state.Index, w.meta.Index)
	}
	if _, err := m.name(state, meta.Extra); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.fence = state, max(m.fence, fence)
	return nil
}
