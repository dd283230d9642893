package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A message between two members:
//
//	version  u8, 1
//	kind     u8: 1 a step of the protocol, 2 wake up, 3 a note, which follows,
//	         4 where does your log end, 5 it ends there
//	flags    u8: 1 the sender's clockwork goes slowly
//
// and for kind 1, integers as uvarint:
//
//	type, term, log term, index, commit, reject hint
//	reject   u8, 0 or 1
//	context  length, bytes
//	entries  count, and for each: type, term, index, length of its data
//	data     of the entries, one after the other
//
// for kinds 4 and 5, integers little endian:
//
//	inquiry  u64, never 0; that of the question in the answer
//
// and for kind 5 also
//
//	index and term of the last entry  u64 each
//	voters   u8 count, u64 each
//
// Sender and receiver are those of the connection. A checkpoint never travels
// in a message.
const (
	messageVersion = 1

	kindStep = 1
	kindWake = 2
	kindNote = 3
	kindAsk  = 4
	kindEnd  = 5

	flagSlow = 1

	contextMost = 64
	// entryBytesLeast is what an entry takes at least in the head of a message.
	entryBytesLeast = 4
)

// encodeWake returns the message that asks a leader to hurry.
func encodeWake() Message { return Message{{messageVersion, kindWake, 0}} }

// encodeNote returns the message that carries a member's note.
func encodeNote(note []byte) Message { return Message{{messageVersion, kindNote, 0}, note} }

// encodeStep encodes a message of the protocol. The entries' data is not copied.
func encodeStep(m *pb.Message, flags byte) Message {
	entries := m.GetEntries()
	b := make([]byte, 0, 48+24*len(entries)+len(m.GetContext()))
	b = append(b, messageVersion, kindStep, flags)
	b = binary.AppendUvarint(b, uint64(m.GetType()))
	for _, v := range [...]uint64{m.GetTerm(), m.GetLogTerm(), m.GetIndex(), m.GetCommit(), m.GetRejectHint()} {
		b = binary.AppendUvarint(b, v)
	}
	if m.GetReject() {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(m.GetContext())))
	b = append(b, m.GetContext()...)
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for _, e := range entries {
		b = binary.AppendUvarint(b, uint64(e.GetType()))
		b = binary.AppendUvarint(b, e.GetTerm())
		b = binary.AppendUvarint(b, e.GetIndex())
		b = binary.AppendUvarint(b, uint64(len(e.GetData())))
	}
	parts := make(Message, 1, 1+len(entries))
	parts[0] = b
	for _, e := range entries {
		if len(e.GetData()) > 0 {
			parts = append(parts, e.GetData())
		}
	}
	return parts
}

// inMessage is a decoded message and everything that its fields point to.
type inMessage struct {
	wake bool
	slow bool
	note []byte // of a note, else nil
	ask  uint64 // the inquiry of a question, else 0
	end  *logEnd
	step *pb.Message

	pb                                                pb.Message
	kind                                              pb.MessageType
	reject                                            bool
	to, from, term, logTerm, index, commit, rejectHnt uint64
}

// inEntry is an entry and what its fields point to.
type inEntry struct {
	pb    pb.Entry
	kind  pb.EntryType
	term  uint64
	index uint64
}

func (e *inEntry) point() *pb.Entry {
	e.pb.Type, e.pb.Term, e.pb.Index = &e.kind, &e.term, &e.index
	return &e.pb
}

// acceptedTypes are the messages that a member may send.
var acceptedTypes = map[pb.MessageType]bool{
	pb.MsgApp: true, pb.MsgAppResp: true,
	pb.MsgVote: true, pb.MsgVoteResp: true,
	pb.MsgPreVote: true, pb.MsgPreVoteResp: true,
	pb.MsgHeartbeat: true, pb.MsgHeartbeatResp: true,
	pb.MsgReadIndex: true, pb.MsgReadIndexResp: true,
	pb.MsgTimeoutNow: true,
}

// decodeMessage decodes what member from sent to member to. The result refers
// to b.
func decodeMessage(b []byte, from, to uint64) (*inMessage, error) {
	d := decoder{rest: b}
	if v := d.u8(); v != messageVersion {
		return nil, fmt.Errorf("message of version %d", v)
	}
	kind, flags := d.u8(), d.u8()
	m := &inMessage{slow: flags&flagSlow != 0, from: from, to: to}
	switch {
	case flags&^flagSlow != 0, flags != 0 && kind != kindStep:
		return nil, fmt.Errorf("message with flags %#x", flags)
	case kind == kindWake:
		m.wake = true
		return m, d.end()
	case kind == kindNote:
		if len(d.rest) == 0 || len(d.rest) > noteMost {
			return nil, fmt.Errorf("note of %d bytes", len(d.rest))
		}
		m.note = d.rest
		return m, nil
	case kind == kindAsk:
		m.ask = d.u64()
		return m, d.inquiry(m.ask)
	case kind == kindEnd:
		m.end = d.logEnd()
		return m, d.inquiry(m.end.inquiry)
	case kind != kindStep:
		return nil, fmt.Errorf("message of kind %d", kind)
	}
	d.step(m)
	if d.err != nil {
		return nil, d.err
	}
	return m, m.check()
}

func (d *decoder) step(m *inMessage) {
	m.kind = pb.MessageType(d.uvarint())
	m.term, m.logTerm, m.index, m.commit, m.rejectHnt = d.uvarint(), d.uvarint(), d.uvarint(), d.uvarint(), d.uvarint()
	reject := d.u8()
	if reject > 1 {
		d.fail(errors.New("message with a reject that is neither yes nor no"))
	}
	m.reject = reject == 1
	n := d.uvarint()
	if n > contextMost {
		d.fail(errors.New("message with too long a context"))
		return
	}
	if n > 0 {
		m.pb.Context = d.take(int(n))
	}
	m.pb.Entries = d.entries()
	m.pb.Type, m.pb.To, m.pb.From = &m.kind, &m.to, &m.from
	m.pb.Term, m.pb.LogTerm, m.pb.Index, m.pb.Commit = &m.term, &m.logTerm, &m.index, &m.commit
	m.pb.Reject, m.pb.RejectHint = &m.reject, &m.rejectHnt
	m.step = &m.pb
}

func (d *decoder) entries() []*pb.Entry {
	n := d.uvarint()
	if n == 0 || d.err != nil {
		_ = d.end()
		return nil
	}
	if n > uint64(len(d.rest)/entryBytesLeast) {
		d.fail(errCut)
		return nil
	}
	all := make([]inEntry, n)
	list := make([]*pb.Entry, n)
	sizes := make([]uint64, n)
	for i := range all {
		e := &all[i]
		e.kind = pb.EntryType(d.uvarint())
		e.term, e.index, sizes[i] = d.uvarint(), d.uvarint(), d.uvarint()
		if e.kind < pb.EntryNormal || e.kind > pb.EntryConfChangeV2 {
			d.fail(fmt.Errorf("entry of type %d", e.kind))
		}
		list[i] = e.point()
	}
	for i := range all {
		if sizes[i] > uint64(len(d.rest)) {
			d.fail(errCut)
			return nil
		}
		if sizes[i] > 0 {
			all[i].pb.Data = d.take(int(sizes[i]))
		}
	}
	_ = d.end()
	return list
}

// check refuses what no correct member sends and the protocol would take as a
// programmer's error.
func (m *inMessage) check() error {
	if !acceptedTypes[m.kind] {
		return fmt.Errorf("message of type %d", m.kind)
	}
	if (m.term == 0) != (m.kind == pb.MsgReadIndex) {
		return fmt.Errorf("%s in term %d", m.kind, m.term)
	}
	entries := m.pb.Entries
	switch m.kind {
	case pb.MsgReadIndex, pb.MsgReadIndexResp:
		if len(entries) != 1 {
			return fmt.Errorf("%s with %d entries", m.kind, len(entries))
		}
	case pb.MsgApp:
		return checkEntries(entries, m.index, m.logTerm, m.term)
	case pb.MsgHeartbeat, pb.MsgHeartbeatResp:
		if n := len(m.pb.Context); n != 0 && n != 8 {
			return fmt.Errorf("%s with a context of %d bytes", m.kind, n)
		}
		fallthrough
	default:
		if len(entries) > 0 {
			return fmt.Errorf("%s with entries", m.kind)
		}
	}
	return nil
}

func checkEntries(entries []*pb.Entry, index, logTerm, term uint64) error {
	for _, e := range entries {
		if e.GetIndex() != index+1 || e.GetTerm() < logTerm || e.GetTerm() > term || e.GetTerm() == 0 {
			return fmt.Errorf("entry %d of term %d after %d of term %d in term %d",
				e.GetIndex(), e.GetTerm(), index, logTerm, term)
		}
		index, logTerm = e.GetIndex(), e.GetTerm()
	}
	return nil
}
