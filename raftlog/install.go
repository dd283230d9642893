package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"path"

	pb "go.etcd.io/raft/v3/raftpb"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// incoming is a completely received checkpoint on its way into the machine.
type incoming struct {
	meta       CheckpointMeta
	writer     CheckpointWriter
	fence      uint64
	membership *membership
	done       chan error
}

// offerIncoming tells the protocol of a received checkpoint, and reports whether
// it wants it.
func (c *core) offerIncoming(in *incoming, from, term uint64) bool {
	if c.incoming != nil || term == 0 || term < c.term {
		return false
	}
	c.incoming = in
	c.step(&pb.Message{
		Type: pb.MsgSnap.Enum(), To: new(c.id), From: new(from), Term: new(term),
		Snapshot: snapshotOf(&in.meta, in.membership),
	})
	c.flush()
	taken := c.incoming == nil
	c.incoming = nil
	return taken
}

// takeIncoming returns the checkpoint that the protocol has decided to take.
func (c *core) takeIncoming(s *pb.Snapshot) *incoming {
	in := c.incoming
	if in == nil || in.meta.Index != s.GetMetadata().GetIndex() {
		panic(fmt.Sprintf("checkpoint %d was not offered", s.GetMetadata().GetIndex()))
	}
	c.incoming = nil
	return in
}

// install makes a received checkpoint this replica's state and begins its
// journal anew after it. A mark says that the two belong together: once the
// machine has the new state, Open finishes what a crash interrupted.
func (p *persister) install(w *journalWrite) error {
	in := w.install
	m := mark{entryID{in.meta.Index, in.meta.Term}}
	g := p.g
	if err := writeSmall(g.cfg.FS, g.cfg.Dir, markName, m.encode()); err != nil {
		return fmt.Errorf("mark checkpoint %d: %w", m.index, err)
	}
	err := g.applier.ask(func() error { return g.applier.install(in) })
	if err != nil {
		in.done <- err
		return fmt.Errorf("install checkpoint %d: %w", m.index, err)
	}
	if err := p.log.Reset(w.hard, m.index, m.term); err != nil {
		return fmt.Errorf("begin journal after checkpoint %d: %w", m.index, err)
	}
	if err := removeSmall(g.cfg.FS, g.cfg.Dir, markName); err != nil {
		return fmt.Errorf("remove mark of checkpoint %d: %w", m.index, err)
	}
	done := &appendDone{reset: &entryID{m.index, m.term}, installed: in, writes: 1}
	done.first, done.before = p.log.Bounds()
	done.entries = [][]*pb.Entry{}
	if len(w.entries) > 0 {
		if err := p.log.Append(w.hard, [][]*pb.Entry{w.entries}); err != nil {
			return fmt.Errorf("append after checkpoint %d: %w", m.index, err)
		}
		done.entries = append(done.entries, w.entries)
	}
	done.responses = p.answer(w.responses)
	g.post(event{kind: eventAppended, appended: done})
	in.done <- nil
	return nil
}

// install replaces the machine's state. It runs on the applying goroutine.
func (a *applier) install(in *incoming) error {
	if err := a.g.cfg.Machine.Install(in.writer, in.fence); err != nil {
		return err
	}
	a.index, a.term = in.meta.Index, in.meta.Term
	a.membership = in.membership
	a.checkpoint.last, a.checkpoint.replayed = a.index, entryID{in.fence, math.MaxUint64}
	a.checkpoint.began = a.g.persister.written.Load()
	a.g.applied.set(a.index)
	return nil
}

// The mark of a checkpoint that is being installed, integers little endian:
//
//	magic   8 bytes "takinstl"
//	version u16, 1
//	index   u64
//	term    u64
//	crc     u32, CRC-32C of everything before
type mark struct{ entryID }

const (
	markName    = "install"
	markVersion = 1
)

var markMagic = []byte("takinstl")

func (m mark) encode() []byte {
	b := binary.LittleEndian.AppendUint16(append([]byte(nil), markMagic...), markVersion)
	b = binary.LittleEndian.AppendUint64(b, m.index)
	b = binary.LittleEndian.AppendUint64(b, m.term)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeMark(b []byte) (mark, error) {
	body, err := checkedBody(b, markMagic, markVersion)
	if err != nil {
		return mark{}, err
	}
	d := decoder{rest: body}
	m := mark{entryID{index: d.u64(), term: d.u64()}}
	return m, d.end()
}

// readMark returns the mark, or nil.
func readMark(fsys disk.FS, dir string) (*mark, error) {
	b, err := readSmall(fsys, path.Join(dir, markName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read mark: %w", err)
	}
	m, err := decodeMark(b)
	if err != nil {
		return nil, &StateLostError{Reason: "mark of an installation is damaged", Err: err}
	}
	return &m, nil
}
