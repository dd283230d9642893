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
		return []diskRoom{{free: 2 * gib, reserve: gib}}, true
	}}
	s.look(now, tree.SpaceInfo{DiskBytes: 10 * gib, DiskFree: 5 * gib})
	empty := s.room()
	if empty == 0 || empty >= gib {
		t.Fatalf("room for %d of %d bytes", empty, gib)
	}
	s.mu.admitted.Bytes = gib / 2
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
	full := note{room: diskRoom{}}.encode()
	roomy := note{room: diskRoom{free: 900}}.encode()
	members := func(behind bool) raftlog.Status {
		return raftlog.Status{Members: []raftlog.MemberStatus{
			{Member: raftlog.Member{ID: 1}, Active: true},
			{Member: raftlog.Member{ID: 2}, Active: true, Note: roomy},
			{Member: raftlog.Member{ID: 3}, Active: true, Note: full, Behind: behind},
			{Member: raftlog.Member{ID: 4}, Active: true, Behind: behind},
		}}
	}
	if rooms, all := otherRooms(members(true), 1, 0, nil); len(rooms) != 1 || !all || rooms[0].usable().Bytes != 900 {
		t.Errorf("rooms %+v %v", rooms, all)
	}
	if rooms, all := otherRooms(members(false), 1, 0, map[uint64]diskRoom{}); len(rooms) != 2 || all {
		t.Errorf("rooms of members that are not behind: %+v %v", rooms, all)
	}
}

// TestRoomForARebuildIsLeft: files do not grow beyond what a member that is there, and gets
// a checkpoint, can receive beside what it has.
func TestRoomForARebuildIsLeft(t *testing.T) {
	note := func(free uint64) []byte { return note{room: diskRoom{free: free, reserve: 100}}.encode() }
	status := func(behind, active bool, free uint64) raftlog.Status {
		return raftlog.Status{Members: []raftlog.MemberStatus{
			{Member: raftlog.Member{ID: 1}, Active: true},
			{Member: raftlog.Member{ID: 2}, Active: active, Match: 9, Behind: behind, Note: note(free)},
		}}
	}
	told := map[uint64]diskRoom{}
	otherRooms(status(false, true, 700), 1, 200, told)
	if rooms, _ := otherRooms(status(true, true, 150), 1, 400, told); len(rooms) != 1 || rooms[0].usable().Bytes != 200 {
		t.Errorf("400 of 600 bytes are to be received: rooms %+v", rooms)
	}
	if rooms, _ := otherRooms(status(true, true, 150), 1, 600, told); len(rooms) != 0 {
		t.Errorf("without room for another copy nobody could write: %+v", rooms)
	}
	if rooms, _ := otherRooms(status(true, false, 150), 1, 400, told); len(rooms) != 0 {
		t.Errorf("a member that is not there counts: %+v", rooms)
	}
	if rooms, _ := otherRooms(status(false, true, 300), 1, 400, told); len(rooms) != 1 || rooms[0].usable().Bytes != 200 {
		t.Errorf("after the rebuild: %+v", rooms)
	}
}

// TestTightestReplicaDecides has another replica's disk be the fuller one.
func TestTightestReplicaDecides(t *testing.T) {
	other := diskRoom{free: 300, inodes: 4000, inodesFree: 1024 + 5, reserve: 100}
	s := &space{now: time.Now, short: make(chan struct{}, 1), others: func() ([]diskRoom, bool) { return []diskRoom{other}, true }}
	now := time.Now()
	roomy := tree.SpaceInfo{DiskBytes: 10_000, DiskFree: 9_000, DiskInodes: 9000, InodesFree: 8000, Reserve: 100}
	s.look(now, roomy)
	if !s.fits(tree.Growth{Bytes: 200, Files: 5}) || s.fits(tree.Growth{Bytes: 201}) || s.fits(tree.Growth{Bytes: 1, Files: 6}) {
		t.Error("the other's 200 usable bytes and 5 inodes do not decide")
	}
	s.mu.admitted = tree.Growth{Bytes: 150, Files: 4} // since the other looked
	s.look(now.Add(time.Second), roomy)
	if !s.fits(tree.Growth{Bytes: 50, Files: 1}) || s.fits(tree.Growth{Bytes: 51}) || s.fits(tree.Growth{Bytes: 1, Files: 2}) {
		t.Error("what was admitted since the other's note is not counted")
	}
	s.look(now.Add(noteAge+2*time.Second), roomy)
	if !s.fits(tree.Growth{Bytes: 200, Files: 5}) {
		t.Error("old growth is counted twice")
	}
}

// TestUnappliedGrowthIsCounted: what was admitted counts against the room of a replica until
// that has told of its disk with the entry applied, however long that takes.
func TestUnappliedGrowthIsCounted(t *testing.T) {
	other := diskRoom{place: placeMark | 7, free: 1100, reserve: 100}
	now := time.Now()
	s := &space{now: func() time.Time { return now }, others: func() ([]diskRoom, bool) { return []diskRoom{other}, true }}
	roomy := tree.SpaceInfo{DiskBytes: 1 << 40, DiskFree: 1 << 40}
	look := func(after time.Duration) uint64 {
		now = now.Add(after)
		s.look(now, roomy)
		return s.left(&other).Bytes
	}
	look(0)
	s.mu.asked, s.mu.admitted = 3, tree.Growth{Bytes: 400}
	look(time.Second)
	s.mu.asked = 5 // the last two are not applied, and grow nothing
	if left := look(2 * noteAge); left != 600 {
		t.Errorf("%d bytes are left while it is not known where the growth is in the log", left)
	}
	s.settled(9, 3)
	other.place = placeMark | 100
	if left := look(0); left != 600 {
		t.Errorf("%d bytes are left while one of three operations is not applied", left)
	}
	s.settled(10, 2)
	other.place = placeMark | 9
	if left := look(noteAge); left != 600 {
		t.Errorf("%d bytes are left while the other has not applied entry 10", left)
	}
	other = diskRoom{place: placeMark | 10, free: 700, reserve: 100}
	if left := look(0); left != 600 {
		t.Errorf("%d bytes are left, and are counted twice", left)
	}
	if look(2 * noteAge); len(s.mu.past) != 0 {
		t.Errorf("%d admissions are kept", len(s.mu.past))
	}
	s.mu.admitted = tree.Growth{Bytes: 500}
	other.place = 1000 // an older worker tells the size of its disk
	if left := look(0); left != 100 {
		t.Errorf("%d bytes are left beside an older worker", left)
	}
	if left := look(2 * noteAge); left != 600 {
		t.Errorf("%d bytes are left beside an older worker, later", left)
	}
}

// TestStatFSShowsTheTightest has what is used stay true where the tightest disk says how
// much is free.
func TestStatFSShowsTheTightest(t *testing.T) {
	counted := diskRoom{free: 300, inodes: 4000, inodesFree: 1024 + 5, reserve: 100}
	uncounted := diskRoom{free: 9000} // as btrfs tells it
	cases := []struct {
		name       string
		others     []diskRoom
		own, shown fsop.StatFS
	}{
		{"a tighter disk", []diskRoom{counted, uncounted},
			fsop.StatFS{Bytes: 10_000, BytesFree: 8_900, Inodes: 9000, InodesFree: 7000},
			fsop.StatFS{Bytes: 1_300, BytesFree: 200, Inodes: 2005, InodesFree: 5}},
		{"a disk that does not count inodes", []diskRoom{uncounted},
			fsop.StatFS{Bytes: 900, BytesFree: 300, Inodes: 4000, InodesFree: 5},
			fsop.StatFS{Bytes: 900, BytesFree: 300, Inodes: 4000, InodesFree: 5}},
		{"only another one counts them", []diskRoom{counted},
			fsop.StatFS{Bytes: 900, BytesFree: 100},
			fsop.StatFS{Bytes: 900, BytesFree: 100, Inodes: 4000, InodesFree: 5}},
		{"nobody counts them", []diskRoom{uncounted},
			fsop.StatFS{Bytes: 900, BytesFree: 100}, fsop.StatFS{Bytes: 900, BytesFree: 100}},
	}
	for _, c := range cases {
		s := &space{others: func() ([]diskRoom, bool) { return c.others, true }}
		if s.narrow(&c.own); c.own != c.shown {
			t.Errorf("%s: %+v, want %+v", c.name, c.own, c.shown)
		}
	}
}

// TestRoomCountsInodes tells clients of no room for files for which a disk has no inodes
// left: one file at least takes 8 KiB of a client's room.
func TestRoomCountsInodes(t *testing.T) {
	const gib = 1 << 30
	info := tree.SpaceInfo{DiskBytes: 10 * gib, DiskFree: 5 * gib, DiskInodes: 1 << 20, InodesFree: 16<<10 + 1<<10 + 10}
	s := &space{now: time.Now}
	s.look(time.Now(), info)
	if got := s.room(); got != 10*8192 {
		t.Errorf("room for %d bytes where 10 files may be made", got)
	}
	info.InodesFree = 16<<10 + 1<<10
	s.look(time.Now(), info)
	if got := s.room(); got != 0 {
		t.Errorf("room for %d bytes where inodes are nearly used up", got)
	}
	info.DiskInodes, info.InodesFree = 0, 0
	s.look(time.Now(), info)
	if got := s.room(); got != 5*gib-nearlyFull.Bytes {
		t.Errorf("room for %d bytes on a disk that does not count inodes", got)
	}
}
