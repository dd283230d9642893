package raftlog

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("update", false, "write golden files anew")

// golden compares bytes with those in testdata: a change needs a new version.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".hex")
	text := hex.Dump(got)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s has changed:\n%s", name, text)
	}
}

func someRecord() record {
	return record{
		Identity: Identity{Volume: "pvc-1", Replica: "r2", Incarnation: 3, Member: 5},
		genesis:  []Member{{ID: 4, Replica: "r1", Incarnation: 1}, {ID: 5, Replica: "r2", Incarnation: 3}},
	}
}

func someMembership() *membership {
	return newMembership(&pb.ConfState{
		Voters: []uint64{1, 3}, VotersOutgoing: []uint64{1, 2}, Learners: []uint64{4}, AutoLeave: new(true),
	}, []Member{
		{ID: 4, Replica: "r4", Incarnation: 1}, {ID: 1, Replica: "r1", Incarnation: 1},
		{ID: 2, Replica: "r2", Incarnation: 2}, {ID: 3, Replica: "r3", Incarnation: 1},
	}, []uint64{9, 7})
}

func someAppend() *pb.Message {
	return &pb.Message{
		Type: pb.MsgApp.Enum(), To: new(uint64(2)), From: new(uint64(1)), Term: new(uint64(7)),
		LogTerm: new(uint64(6)), Index: new(uint64(300)), Commit: new(uint64(299)),
		Entries: []*pb.Entry{
			{Type: pb.EntryNormal.Enum(), Term: new(uint64(6)), Index: new(uint64(301)), Data: []byte("first")},
			{Type: pb.EntryNormal.Enum(), Term: new(uint64(7)), Index: new(uint64(302))},
			{Type: pb.EntryConfChangeV2.Enum(), Term: new(uint64(7)), Index: new(uint64(303)), Data: []byte{1, 2}},
		},
	}
}

func someEnd() *logEnd {
	return &logEnd{inquiry: 0x1234, last: entryID{300, 7}, electorate: []uint64{1, 2, 5}}
}

func TestGolden(t *testing.T) {
	golden(t, "identity", someRecord().encode())
	golden(t, "install", mark{entryID{index: 1 << 40, term: 12}}.encode())
	golden(t, "membership", someMembership().encode())
	golden(t, "context", encodeContext([]Member{{ID: 8, Replica: "r8", Incarnation: 2, Learner: true}}))
	golden(t, "wake", slices.Concat(encodeWake()...))
	golden(t, "note", slices.Concat(encodeNote([]byte("note"))...))
	golden(t, "ask", slices.Concat(encodeAsk(0x1234)...))
	golden(t, "end", slices.Concat(encodeEnd(someEnd())...))
	golden(t, "append", slices.Concat(encodeStep(someAppend(), flagSlow)...))
}

func TestIdentityRoundTrip(t *testing.T) {
	want := someRecord()
	got, err := decodeIdentity(want.encode())
	if err != nil || got.Identity != want.Identity || !slices.Equal(got.genesis, want.genesis) {
		t.Fatalf("%+v, %v", got, err)
	}
	b := want.encode()
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 4
		if _, err := decodeIdentity(bad); err == nil {
			t.Errorf("flipped bit in byte %d is not noticed", i)
		}
		if _, err := decodeIdentity(b[:i]); err == nil {
			t.Errorf("cut to %d bytes is not noticed", i)
		}
	}
}

func TestMembershipRoundTrip(t *testing.T) {
	want := someMembership()
	got, err := decodeMembership(want.encode())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.members, want.members) || !slices.Equal(got.removed, want.removed) || !proto.Equal(got.conf, want.conf) {
		t.Fatalf("%+v\n%+v", got, want)
	}
	if !got.isVoter(2) || got.isVoter(4) || !got.isRemoved(7) || got.isRemoved(1) {
		t.Fatal("voters or removed ones are wrong")
	}
}

func TestMessageRoundTrip(t *testing.T) {
	want := someAppend()
	in, err := decodeMessage(slices.Concat(encodeStep(want, flagSlow)...), 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if !in.slow || in.wake {
		t.Fatal("flags are lost")
	}
	// What was nil comes back as zero.
	in.step.Reject, in.step.RejectHint = nil, nil
	if !proto.Equal(in.step, want) {
		t.Fatalf("%v\n%v", in.step, want)
	}
	if in, err = decodeMessage(slices.Concat(encodeWake()...), 1, 2); err != nil || !in.wake {
		t.Fatalf("%+v, %v", in, err)
	}
	if in, err = decodeMessage(slices.Concat(encodeAsk(7)...), 1, 2); err != nil || in.ask != 7 {
		t.Fatalf("%+v, %v", in, err)
	}
	if in, err = decodeMessage(slices.Concat(encodeEnd(someEnd())...), 1, 2); err != nil || !reflect.DeepEqual(in.end, someEnd()) {
		t.Fatalf("%+v, %v", in, err)
	}
}

func TestHostileMessagesAreRefused(t *testing.T) {
	change := func(f func(*pb.Message)) []byte {
		m := someAppend()
		f(m)
		return slices.Concat(encodeStep(m, 0)...)
	}
	for name, b := range map[string][]byte{
		"empty":                     {},
		"version":                   {9, kindStep, 0},
		"kind":                      {messageVersion, 7, 0},
		"flags":                     {messageVersion, kindWake, 8},
		"flags of another kind":     append([]byte{messageVersion, kindEnd, flagSlow}, slices.Concat(encodeEnd(someEnd())...)[3:]...),
		"no term":                   change(func(m *pb.Message) { m.Term = nil }),
		"local type":                change(func(m *pb.Message) { m.Type = pb.MsgHup.Enum(); m.Entries = nil }),
		"checkpoint":                change(func(m *pb.Message) { m.Type = pb.MsgSnap.Enum(); m.Entries = nil }),
		"gap":                       change(func(m *pb.Message) { m.Entries[1].Index = new(uint64(305)) }),
		"term goes back":            change(func(m *pb.Message) { m.Entries[1].Term = new(uint64(5)) }),
		"term too high":             change(func(m *pb.Message) { m.Entries[2].Term = new(uint64(8)) }),
		"vote with entries":         change(func(m *pb.Message) { m.Type = pb.MsgVote.Enum() }),
		"long context":              change(func(m *pb.Message) { m.Context = make([]byte, 100) }),
		"empty note":                {messageVersion, kindNote, 0},
		"long note":                 append([]byte{messageVersion, kindNote, 0}, make([]byte, noteMost+1)...),
		"question without a number": slices.Concat(encodeAsk(0)...),
		"answer without a number":   slices.Concat(encodeEnd(&logEnd{})...),
		"cut answer":                slices.Concat(encodeEnd(someEnd())...)[:30],
		"left over":                 append(change(func(*pb.Message) {}), 1),
	} {
		if _, err := decodeMessage(b, 1, 2); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(slices.Concat(encodeStep(someAppend(), 0)...))
	f.Add(slices.Concat(encodeWake()...))
	f.Add(slices.Concat(encodeNote([]byte("note"))...))
	f.Add(slices.Concat(encodeAsk(7)...))
	f.Add(slices.Concat(encodeEnd(someEnd())...))
	f.Add(slices.Concat(encodeStep(&pb.Message{Type: pb.MsgHeartbeat.Enum(), Term: new(uint64(1)), Context: make([]byte, 8)}, 0)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := decodeMessage(b, 1, 2)
		if err != nil || in.wake || in.note != nil || in.ask != 0 {
			return
		}
		if in.end != nil {
			if !bytes.Equal(slices.Concat(encodeEnd(in.end)...), b) {
				t.Fatalf("%+v has two forms", in.end)
			}
			return
		}
		again, err := decodeMessage(slices.Concat(encodeStep(in.step, 0)...), 1, 2)
		if err != nil || !proto.Equal(again.step, in.step) {
			t.Fatalf("%v became %v, %v", in.step, again, err)
		}
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add(someRecord().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeIdentity(b); err == nil && !bytes.Equal(r.encode(), b) {
			t.Fatalf("%+v has two forms", r)
		}
	})
}

func FuzzMark(f *testing.F) {
	f.Add(mark{entryID{3, 4}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMark(b); err == nil && !bytes.Equal(m.encode(), b) {
			t.Fatalf("%+v has two forms", m)
		}
	})
}

func FuzzMembership(f *testing.F) {
	f.Add(someMembership().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMembership(b)
		if err != nil {
			return
		}
		again, err := decodeMembership(m.encode())
		if err != nil || !slices.Equal(again.members, m.members) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func FuzzContext(f *testing.F) {
	f.Add(encodeContext(someRecord().genesis))
	f.Fuzz(func(t *testing.T, b []byte) {
		if members, err := decodeContext(b); err == nil && len(members) > 0 && !bytes.Equal(encodeContext(members), b) {
			t.Fatalf("%+v has two forms", members)
		}
	})
}

func TestBootstrapRefusesNonsense(t *testing.T) {
	id := Identity{Volume: "v", Replica: "r1", Incarnation: 1, Member: 1}
	for name, members := range map[string][]Member{
		"not in":    {{ID: 2, Replica: "r2", Incarnation: 1}},
		"twice":     {{ID: 1, Replica: "r1", Incarnation: 1}, {ID: 1, Replica: "r1", Incarnation: 1}},
		"zero":      {{ID: 1, Replica: "r1", Incarnation: 1}, {Replica: "r2", Incarnation: 1}},
		"learner":   {{ID: 1, Replica: "r1", Incarnation: 1, Learner: true}},
		"other":     {{ID: 1, Replica: "r9", Incarnation: 1}},
		"long name": {{ID: 1, Replica: strings.Repeat("r", 300), Incarnation: 1}},
	} {
		if err := validateGenesis(id, members); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
