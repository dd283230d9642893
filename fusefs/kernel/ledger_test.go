package kernel

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

// TestLayoutGolden pins the bytes of the shared memory: a serving process of
// another build reads them.
func TestLayoutGolden(t *testing.T) {
	mem := make(memory, layoutSize)
	mem.format()
	mem.setInit([]byte("init request"), []byte("init answer"))
	l := newLedgerOn(mem)
	id := fsop.Identity{Session: 0x1122334455667788, Epoch: 3, Nonce: [16]byte{1, 2, 15: 16}, Hint: []byte("members")}
	must(t, l.SetIdentity(fsop.Identity{Session: 1}))
	must(t, l.SetIdentity(id))
	must(t, l.Begin(10, 0, 1))
	must(t, l.Begin(10, 1, 2))
	must(t, l.Begin(12, 0, 3))
	l.Finish(12)
	must(t, l.Open(10, 7))
	must(t, l.Open(12, 8))
	l.Close(10)
	must(t, l.claim(holder{Ino: 7, Owner: 9, Handle: 10, Kind: fsop.Posix}))
	must(t, l.Begin(0, 0, 4))
	l.Queue(4, []byte("first"))
	must(t, l.Begin(0, 0, 5))
	l.Queue(5, []byte("second operation"))
	l.Release(4)
	golden(t, "layout", dump(mem))
}

// dump lists the memory's bytes that are not zero, 16 a line.
func dump(mem memory) []byte {
	var out bytes.Buffer
	for off := 0; off < len(mem); off += 16 {
		if row := mem[off : off+16]; !bytes.Equal(row, make([]byte, 16)) {
			fmt.Fprintf(&out, "%08x %s\n", off, hex.EncodeToString(row))
		}
	}
	return out.Bytes()
}

// TestMessageGolden pins the messages between keeper and serving process.
func TestMessageGolden(t *testing.T) {
	var out bytes.Buffer
	for _, m := range sampleMessages() {
		b, err := encodeMessage(m)
		must(t, err)
		out.Write(append(b, '\n'))
		back, err := decodeMessage(b)
		if err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("%s: %+v %v", b, back, err)
		}
	}
	golden(t, "messages", out.Bytes())
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\n%s", path, got)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLedgerAgainstMemory runs random steps on the shared ledger and on the
// one in memory, and continues in a "next process" now and then.
func TestLedgerAgainstMemory(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { ledgerAgainstMemory(t, seed) })
	}
}

func ledgerAgainstMemory(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	mem := make(memory, layoutSize)
	mem.format()
	shared, want := newLedgerOn(mem), client.NewMemLedger()
	both := []client.Ledger{shared, want}
	sessions := uint64(1)
	id := fsop.Identity{Session: sessions}
	each := func(f func(client.Ledger) error) {
		a, b := f(both[0]), f(both[1])
		if !errors.Is(a, b) {
			t.Fatalf("%v, want %v", a, b)
		}
	}
	each(func(l client.Ledger) error { return l.SetIdentity(id) })
	for i := range 6000 {
		tag, ino := uint64(r.IntN(1200)+1), fsop.Ino(r.IntN(20)+1)
		switch r.IntN(12) {
		case 0:
			switch r.IntN(50) {
			case 0:
				id.Session = 0 // lost, and
			case 1, 2, 3, 4:
				if id.Session == 0 { // another one opened
					sessions++
					id.Session = sessions
				}
			case 5:
				sessions++
				id.Session = sessions
			}
			id.Epoch++
			id.Hint = bytes.Repeat([]byte{byte(i)}, r.IntN(50))
			each(func(l client.Ledger) error { return l.SetIdentity(id) })
		case 1, 2, 3, 4, 5:
			each(func(l client.Ledger) error { return l.Begin(tag, uint32(i), uint64(i)) })
		case 6, 7:
			each(func(l client.Ledger) error { l.Finish(tag); return nil })
		case 8, 9:
			each(func(l client.Ledger) error { return l.Open(tag, ino) })
		case 10:
			each(func(l client.Ledger) error { l.Close(tag); return nil })
		case 11:
			both[0] = newLedgerOn(mem) // the process was killed
		}
		if i%50 == 0 {
			same(t, both[0], both[1])
		}
	}
}

func same(t *testing.T, got, want client.Ledger) {
	t.Helper()
	all := make([]fsop.Ino, 21)
	for i := range all {
		all[i] = fsop.Ino(i)
	}
	a, b := got.Identity(), want.Identity()
	if a.Session != b.Session || a.Epoch != b.Epoch || !bytes.Equal(a.Hint, b.Hint) {
		t.Fatalf("identity %+v, want %+v", a, b)
	}
	if got.LastSeq() != want.LastSeq() {
		t.Fatalf("last %d, want %d", got.LastSeq(), want.LastSeq())
	}
	if a, b := got.Pending(), want.Pending(); !slices.Equal(a, b) {
		t.Fatalf("pending %v, want %v", a, b)
	}
	if a, b := got.OpenOf(all), want.OpenOf(all); !slices.Equal(a, b) {
		t.Fatalf("open %v, want %v", a, b)
	}
}

// TestBegunBeforeTheSession: what was begun before a session was opened is that
// session's, and nobody else's.
func TestBegunBeforeTheSession(t *testing.T) {
	for name, l := range map[string]client.Ledger{"shared": fakeLedger(), "memory": client.NewMemLedger()} {
		look := func(when string, last uint64, pending int) {
			t.Helper()
			if l.LastSeq() != last || len(l.Pending()) != pending {
				t.Errorf("%s, %s: last %d, pending %v, want %d and %d", name, when, l.LastSeq(), l.Pending(), last, pending)
			}
		}
		must(t, l.SetIdentity(fsop.Identity{Nonce: [16]byte{1}}))
		must(t, l.Begin(7, 0, 1))
		must(t, l.Begin(8, 0, 2))
		must(t, l.SetIdentity(fsop.Identity{Session: 5, Nonce: [16]byte{1}}))
		look("opened", 2, 2)
		must(t, l.SetIdentity(fsop.Identity{Session: 5, Epoch: 1, Nonce: [16]byte{1}}))
		look("taken over", 2, 2)
		must(t, l.SetIdentity(fsop.Identity{Nonce: [16]byte{2}}))
		look("lost", 0, 0)
		must(t, l.Begin(9, 0, 1))
		must(t, l.SetIdentity(fsop.Identity{Nonce: [16]byte{2}}))
		look("begun by another process", 0, 0)
		must(t, l.SetIdentity(fsop.Identity{Session: 6}))
		must(t, l.Begin(9, 0, 1))
		must(t, l.SetIdentity(fsop.Identity{Session: 7}))
		look("another session", 0, 0)
	}
}

func TestLedgerBounds(t *testing.T) {
	l := fakeLedger()
	must(t, l.SetIdentity(fsop.Identity{Session: 1}))
	for i := range fsop.InFlightMax {
		must(t, l.Begin(uint64(i+1), 0, uint64(i+1)))
	}
	if err := l.Begin(1<<20, 0, 1<<20); !errors.Is(err, fsop.ErrLedgerFull) {
		t.Errorf("one mutation more: %v", err)
	}
	for i := range handlesMax {
		must(t, l.Open(uint64(i+1), 2))
	}
	if err := l.Open(1<<40, 2); !errors.Is(err, fsop.ErrLedgerFull) {
		t.Errorf("one handle more: %v", err)
	}
	l.Close(1)
	must(t, l.Open(1<<40, 2))
	if err := l.SetIdentity(fsop.Identity{Hint: make([]byte, fsop.HintMax+1)}); err == nil {
		t.Error("a hint that is too long was taken")
	}
}

// TestIdentityOldOrNew writes an identity as far as a killed process may have
// come: what is there afterwards is the old one or the new one.
func TestIdentityOldOrNew(t *testing.T) {
	old := fsop.Identity{Session: 5, Epoch: 1, Hint: []byte("old")}
	next := fsop.Identity{Session: 6, Epoch: 2, Hint: []byte("next")}
	mem := make(memory, layoutSize)
	mem.format()
	l := newLedgerOn(mem)
	must(t, l.SetIdentity(old))
	must(t, l.Begin(3, 0, 40))
	before := bytes.Clone(mem[:offHandleTab])
	must(t, l.SetIdentity(next))
	after := bytes.Clone(mem[:offHandleTab])

	// Everything but the switch: the old one holds, with all that belongs to it.
	torn := bytes.Clone(after)
	copy(torn[offIdentity:offIdentity+4], before[offIdentity:])
	copy(torn[offFlights:], before[offFlights:])
	copy(mem, torn)
	l = newLedgerOn(mem)
	if id := l.Identity(); id.Session != 5 || string(id.Hint) != "old" || l.LastSeq() != 40 || len(l.Pending()) != 1 {
		t.Errorf("before the switch: %+v, last %d, pending %v", id, l.LastSeq(), l.Pending())
	}
	// The switch and nothing behind it: the new one holds, the old one's are void.
	torn = bytes.Clone(after)
	copy(torn[offFlights:], before[offFlights:])
	copy(mem, torn)
	l = newLedgerOn(mem)
	if id := l.Identity(); id.Session != 6 || string(id.Hint) != "next" || l.LastSeq() != 0 || len(l.Pending()) != 0 {
		t.Errorf("after the switch: %+v, last %d, pending %v", id, l.LastSeq(), l.Pending())
	}
}

// TestHolders shows when a lock owner is forgotten: only after an unlock that
// nothing may have overtaken.
func TestHolders(t *testing.T) {
	l := fakeLedger()
	h := holder{Ino: 1, Owner: 2, Handle: 3, Kind: fsop.Posix}
	must(t, l.claim(h))
	l.dropHolder(1, 2, fsop.Posix, l.claims(1, 2, fsop.Posix))
	if !l.holds(1, 2, fsop.Posix) {
		t.Error("forgotten while it asks for a lock")
	}
	l.settle(h)
	claims := l.claims(1, 2, fsop.Posix)
	must(t, l.claim(h))
	l.settle(h)
	l.dropHolder(1, 2, fsop.Posix, claims)
	if !l.holds(1, 2, fsop.Posix) {
		t.Error("forgotten though it has asked since the unlock was sent")
	}
	if l.holds(1, 2, fsop.Flock) || l.holds(2, 2, fsop.Posix) || l.holds(1, 3, fsop.Posix) {
		t.Error("taken for another")
	}
	l = newLedgerOn(l.mem)
	if got := l.holdersOf(1, 3); len(got) != 1 || got[0] != h {
		t.Errorf("next process finds %v", got)
	}
	l.dropHolder(1, 2, fsop.Posix, l.claims(1, 2, fsop.Posix))
	if l.holds(1, 2, fsop.Posix) || len(newLedgerOn(l.mem).holdersOf(1, 3)) != 0 {
		t.Error("not forgotten")
	}
}

// TestMemoryRefused shows that memory of another size or version is refused.
func TestMemoryRefused(t *testing.T) {
	mem, f, err := newMemory()
	must(t, err)
	defer f.Close()
	defer mem.unmap()
	if again, err := openMemory(int(f.Fd())); err != nil {
		t.Error(err)
	} else {
		again.unmap()
	}
	mem.store32(offVersion, layoutVersion+1)
	if _, err := openMemory(int(f.Fd())); err == nil {
		t.Error("another version was taken")
	}
	fd, err := unix.MemfdCreate("short", 0)
	must(t, err)
	defer unix.Close(fd)
	if _, err := openMemory(fd); err == nil {
		t.Error("memory of another size was taken")
	}
	if unix.Ftruncate(int(f.Fd()), 1) == nil {
		t.Error("the memory can be cut short under its readers")
	}
}

// TestHeld shows that an inode that the kernel refers to counts as open until
// the kernel forgets it, also for the next process, and that there are not too
// many of them.
func TestHeld(t *testing.T) {
	l := fakeLedger()
	must(t, l.Open(10, 7))
	l.Hold(7)
	l.Hold(8)
	l = newLedgerOn(l.mem)
	l.Close(10)
	if got := l.OpenOf([]fsop.Ino{7, 8, 9}); !slices.Equal(got, []fsop.Ino{7, 8}) || l.Handles() != 0 {
		t.Errorf("open: %v, handles: %d", got, l.Handles())
	}
	l.Forget(7)
	l.Forget(9)
	if got := l.OpenOf([]fsop.Ino{7, 8, 9}); !slices.Equal(got, []fsop.Ino{8}) {
		t.Errorf("once forgotten: %v", got)
	}
	for ino := range fsop.Ino(2 * heldMax) {
		l.Hold(100 + ino)
	}
	if got := len(l.mu.handles); got != heldMax {
		t.Errorf("%d inodes are held", got)
	}
	must(t, l.Open(12, 7))
}

// TestOwed shows that the next process knows whom to tell of lost work, once.
func TestOwed(t *testing.T) {
	l := fakeLedger()
	must(t, l.Open(10, 7))
	must(t, l.Open(11, 7))
	must(t, l.Open(12, 8))
	l.Owe(7, fsop.EIO)
	l.Owe(9, fsop.EIO)
	if l.Paid(10) != fsop.EIO || l.Paid(10) != fsop.OK {
		t.Error("the first handle is not told once")
	}
	l = newLedgerOn(l.mem)
	if got := l.OpenOf([]fsop.Ino{7, 8}); !slices.Equal(got, []fsop.Ino{7, 8}) {
		t.Errorf("open: %v", got)
	}
	if l.Paid(10) != fsop.OK || l.Paid(11) != fsop.EIO || l.Paid(11) != fsop.OK || l.Paid(12) != fsop.OK {
		t.Error("after a takeover the second handle is not told once, or another one is")
	}
	l.Owe(8, fsop.EIO)
	l.Close(12)
	must(t, l.Open(13, 8))
	if l.Paid(13) != fsop.OK {
		t.Error("a handle is told of what was before it")
	}
}
