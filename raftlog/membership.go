package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/confchange"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// membership is who belongs to the group as of one index of the log. It is a
// function of the log; a value is not changed after it was made.
type membership struct {
	conf *pb.ConfState
	// members is sorted by id. Learner is set from conf.
	members []Member
	// removed are the ids that are barred for good, sorted.
	removed []uint64
}

// Membership as it is kept in a checkpoint (CheckpointMeta.Extra), integers
// little endian:
//
//	version u8, 1
//	members as in member.go
//	removed u16 count, u64 each
//	voters, learners, outgoing voters, learners next: u8 count, u64 each
//	auto leave u8, 0 or 1
const membershipVersion = 1

// removedMost bounds the list of barred ids.
const removedMost = 4096

func genesis(members []Member) *membership {
	conf := &pb.ConfState{}
	for _, m := range members {
		if m.Learner {
			conf.Learners = append(conf.Learners, m.ID)
		} else {
			conf.Voters = append(conf.Voters, m.ID)
		}
	}
	return newMembership(conf, members, nil)
}

func newMembership(conf *pb.ConfState, members []Member, removed []uint64) *membership {
	m := &membership{conf: pb.EnsureConfState(conf), members: slices.Clone(members), removed: slices.Clone(removed)}
	for i := range m.members {
		m.members[i].Learner = slices.Contains(conf.GetLearners(), m.members[i].ID)
	}
	sortMembers(m.members)
	slices.Sort(m.removed)
	return m
}

func (m *membership) encode() []byte {
	b := appendMembers([]byte{membershipVersion}, m.members)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.removed)))
	for _, id := range m.removed {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	for _, ids := range [][]uint64{m.conf.GetVoters(), m.conf.GetLearners(), m.conf.GetVotersOutgoing(), m.conf.GetLearnersNext()} {
		b = append(b, byte(len(ids)))
		for _, id := range ids {
			b = binary.LittleEndian.AppendUint64(b, id)
		}
	}
	if m.conf.GetAutoLeave() {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeMembership(b []byte) (*membership, error) {
	d := decoder{rest: b}
	if v := d.u8(); v != membershipVersion {
		return nil, fmt.Errorf("membership of version %d", v)
	}
	members := d.members()
	n := int(d.u16())
	if n > removedMost {
		return nil, errors.New("too many removed members")
	}
	removed := d.ids(n)
	conf := &pb.ConfState{}
	conf.Voters = d.ids(int(d.u8()))
	conf.Learners = d.ids(int(d.u8()))
	conf.VotersOutgoing = d.ids(int(d.u8()))
	conf.LearnersNext = d.ids(int(d.u8()))
	auto := d.u8()
	if err := d.end(); err != nil {
		return nil, err
	}
	if auto > 1 {
		return nil, errors.New("membership with an unknown flag")
	}
	conf.AutoLeave = new(auto == 1)
	return newMembership(conf, members, removed), nil
}

func (d *decoder) ids(n int) []uint64 {
	var ids []uint64
	for range n {
		id := d.u64()
		if d.err != nil {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// MembersOf tells who the members were as of a checkpoint, and which ids were
// removed before. For tools that read checkpoints.
func MembersOf(meta CheckpointMeta) (members []Member, removed []uint64, err error) {
	m, err := decodeMembership(meta.Extra)
	if err != nil {
		return nil, nil, fmt.Errorf("membership in checkpoint %d: %w", meta.Index, err)
	}
	return m.members, m.removed, nil
}

func (m *membership) member(id uint64) (Member, bool) {
	i, ok := slices.BinarySearchFunc(m.members, id, func(x Member, id uint64) int {
		switch {
		case x.ID < id:
			return -1
		case x.ID > id:
			return 1
		}
		return 0
	})
	if !ok {
		return Member{}, false
	}
	return m.members[i], true
}

func (m *membership) isVoter(id uint64) bool {
	return slices.Contains(m.conf.GetVoters(), id) || slices.Contains(m.conf.GetVotersOutgoing(), id)
}

// voters are all that have a vote now, sorted.
func (m *membership) voters() []uint64 {
	all := slices.Concat(m.conf.GetVoters(), m.conf.GetVotersOutgoing())
	slices.Sort(all)
	return slices.Compact(all)
}

// isRemoved reports whether id was a member and is no more.
func (m *membership) isRemoved(id uint64) bool {
	_, ok := slices.BinarySearch(m.removed, id)
	return ok
}

// apply returns the membership after a committed change. described are the
// members that the change tells of (its context).
func (m *membership) apply(cc *pb.ConfChangeV2) (*membership, error) {
	described, err := decodeContext(cc.GetContext())
	if err != nil {
		return nil, err
	}
	conf, err := applyConf(m.conf, cc)
	if err != nil {
		return nil, err
	}
	present := slices.Concat(conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext())
	next := make([]Member, 0, len(present))
	removed := slices.Clone(m.removed)
	for _, old := range m.members {
		if slices.Contains(present, old.ID) {
			next = append(next, old)
		} else {
			removed = append(removed, old.ID)
		}
	}
	for _, add := range described {
		if _, ok := m.member(add.ID); !ok && slices.Contains(present, add.ID) {
			next = append(next, add)
		}
	}
	if len(removed) > removedMost {
		removed = removed[len(removed)-removedMost:]
	}
	return newMembership(conf, next, removed), nil
}

// applyConf computes a configuration the way the protocol does.
func applyConf(conf *pb.ConfState, cc *pb.ConfChangeV2) (*pb.ConfState, error) {
	trk := tracker.MakeProgressTracker(1, 0)
	changer := confchange.Changer{Tracker: trk, LastIndex: 1}
	cfg, progress, err := confchange.Restore(changer, conf)
	if err != nil {
		return nil, fmt.Errorf("restore configuration: %w", err)
	}
	trk.Config, trk.Progress = cfg, progress
	changer.Tracker = trk
	if cc.LeaveJoint() {
		cfg, progress, err = changer.LeaveJoint()
	} else if auto, joint := cc.EnterJoint(); joint {
		cfg, progress, err = changer.EnterJoint(auto, cc.GetChanges()...)
	} else {
		cfg, progress, err = changer.Simple(cc.GetChanges()...)
	}
	if err != nil {
		return nil, fmt.Errorf("apply change of configuration: %w", err)
	}
	trk.Config, trk.Progress = cfg, progress
	return trk.ConfState(), nil
}

// The context of a change of configuration in the log: u8 version, 1, and the
// members that it adds. Empty when it adds none.
func encodeContext(add []Member) []byte {
	return appendMembers([]byte{1}, add)
}

func decodeContext(b []byte) ([]Member, error) {
	if len(b) == 0 {
		return nil, nil
	}
	d := decoder{rest: b}
	if v := d.u8(); v != 1 {
		return nil, fmt.Errorf("context of a change of version %d", v)
	}
	members := d.members()
	return members, d.end()
}

// changeOf decodes the change in an entry; nil for an ordinary entry.
func changeOf(e *pb.Entry) (*pb.ConfChangeV2, error) {
	switch e.GetType() {
	case pb.EntryConfChange:
		cc := &pb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return nil, fmt.Errorf("decode change of configuration %d: %w", e.GetIndex(), err)
		}
		return cc.AsV2(), nil
	case pb.EntryConfChangeV2:
		cc := &pb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return nil, fmt.Errorf("decode change of configuration %d: %w", e.GetIndex(), err)
		}
		return cc, nil
	}
	return nil, nil
}
