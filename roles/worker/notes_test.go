package worker

import (
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
)

func TestNoteRoundTrip(t *testing.T) {
	want := note{diskRoom{1 << 40, 3 << 30, 1000, 999, 7}, 12, digest{1, 2}}
	if got, ok := decodeNote(want.encode()); !ok || got != want {
		t.Errorf("got %+v %v, want %+v", got, ok, want)
	}
	older := append([]byte{1}, want.encode()[1:roomSize]...)
	if got, ok := decodeNote(older); !ok || got != (note{room: want.room}) {
		t.Errorf("version 1: got %+v %v", got, ok)
	}
	for _, bad := range [][]byte{nil, {1}, append(want.encode(), 0), append([]byte{3}, want.encode()[1:]...)} {
		if _, ok := decodeNote(bad); ok {
			t.Errorf("note %x is taken", bad)
		}
	}
}

func FuzzNote(f *testing.F) {
	f.Add(note{diskRoom{1, 2, 3, 4, 5}, 6, digest{7}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok := decodeNote(b); ok && b[0] == noteVersion && string(n.encode()) != string(b) {
			t.Fatalf("%x became %+v", b, n)
		}
	})
}

// TestRoomCountsWhatIsUntold tells clients of no room that is taken already: what was
// admitted since the others looked at their disks is not in what they tell.
func TestRoomCountsWhatIsUntold(t *testing.T) {
	const gib = 1 << 30
	now := time.Now()
	s := &space{now: func() time.Time { return now }, others: func() ([]diskRoom, bool) {
		return []diskRoom{{bytes: 10 * gib, free: 2 * gib, reserve: gib}}, true
	}}
	s.look(now, tree.SpaceInfo{DiskBytes: 10 * gib, DiskFree: 5 * gib})
	empty := s.room()
	if empty == 0 || empty >= gib {
		t.Fatalf("room for %d of %d bytes", empty, gib)
	}
	s.mu.admitted = gib / 2
	if got := s.room(); got != empty-gib/2 {
		t.Errorf("room for %d after %d of %d were admitted", got, gib/2, empty)
	}
	s.look(now, s.mu.info)
	if got := s.room(); got != empty-gib/2 {
		t.Errorf("after another look: room for %d, want %d", got, empty-gib/2)
	}
	s.mu.all = false
	if got := s.room(); got != 0 {
		t.Errorf("room for %d while somebody has not told of its disk", got)
	}
}

// TestRebuiltMemberDoesNotCount: the disk of a member that gets a checkpoint holds two
// copies, or has no room for the second; the others write on meanwhile.
func TestRebuiltMemberDoesNotCount(t *testing.T) {
	full := note{room: diskRoom{bytes: 1000}}.encode()
	roomy := note{room: diskRoom{bytes: 1000, free: 900}}.encode()
	members := func(behind bool) raftlog.Status {
		return raftlog.Status{Members: []raftlog.MemberStatus{
			{Member: raftlog.Member{ID: 1}, Active: true},
			{Member: raftlog.Member{ID: 2}, Active: true, Note: roomy},
			{Member: raftlog.Member{ID: 3}, Active: true, Note: full, Behind: behind},
			{Member: raftlog.Member{ID: 4}, Active: true, Behind: behind},
		}}
	}
	if rooms, all := otherRooms(members(true), 1); len(rooms) != 1 || !all || rooms[0].usable() != 900 {
		t.Errorf("rooms %+v %v", rooms, all)
	}
	if rooms, all := otherRooms(members(false), 1); len(rooms) != 2 || all {
		t.Errorf("rooms of members that are not behind: %+v %v", rooms, all)
	}
}

// TestTightestReplicaDecides has another replica's disk be the fuller one.
func TestTightestReplicaDecides(t *testing.T) {
	other := diskRoom{bytes: 1000, free: 300, inodes: 10, inodesFree: 5, reserve: 100}
	s := &space{now: time.Now, short: make(chan struct{}, 1), others: func() ([]diskRoom, bool) { return []diskRoom{other}, true }}
	now := time.Now()
	roomy := tree.SpaceInfo{DiskBytes: 10_000, DiskFree: 9_000, DiskInodes: 100, InodesFree: 90, Reserve: 100}
	s.look(now, roomy)
	if !s.fits(200) || s.fits(201) {
		t.Error("the other's 200 usable bytes do not decide")
	}
	s.mu.admitted = 150 // since the other looked
	s.look(now.Add(time.Second), roomy)
	if !s.fits(50) || s.fits(51) {
		t.Error("what was admitted since the other's note is not counted")
	}
	s.look(now.Add(noteAge+2*time.Second), roomy)
	if !s.fits(200) {
		t.Error("old growth is counted twice")
	}
	fs := fsop.StatFS{Bytes: 10_000, BytesFree: 8_900, Inodes: 100, InodesFree: 90}
	s.narrow(&fs)
	if fs.BytesFree != 200 || fs.Bytes != 1_300 || fs.InodesFree != 5 {
		t.Errorf("statfs shows %+v", fs)
	}
}
