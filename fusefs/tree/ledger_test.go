package tree

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestPartLedger keeps what it is told, whatever a part is called.
func TestPartLedger(t *testing.T) {
	l := newPartLedger()
	all := map[string]entry{}
	for i, name := range []string{"db-1/000001.sst", "content/7", "content/0", "content/18446744073709551615", "content/3", "db-1/MANIFEST"} {
		e := entry{received: received{have: uint64(i) << 40, readAt: uint64(i) * 1000}, here: i%2 == 0, seen: i%3 == 0, recorded: true}
		l.set(name, e)
		all[name] = e
	}
	check := func() {
		t.Helper()
		n, last := 0, fsop.Ino(0)
		l.each(func(name string, e entry) bool {
			if n++; e != all[name] || l.get(name) != e {
				t.Errorf("%s: %+v, want %+v", name, e, all[name])
			}
			if ino, ok := contentIno(name); ok {
				if ino < last {
					t.Errorf("%d comes after %d", ino, last)
				}
				last = ino
			}
			return true
		})
		if n != len(all) {
			t.Errorf("%d parts, want %d", n, len(all))
		}
	}
	check()
	for _, name := range []string{"content/0", "db-1/MANIFEST"} {
		l.set(name, entry{})
		delete(all, name)
		check()
	}
	l.set("content/3", entry{received: received{readAt: neverRead}, here: true})
	if e := l.get("content/3"); e.readAt != neverRead || !e.here || e.seen {
		t.Errorf("%+v", e)
	}
}

// TestReceivingTakesLittleMemory: what is known of a million parts, and what PROGRESS says
// of them, takes less than 40 bytes each.
func TestReceivingTakesLittleMemory(t *testing.T) {
	const parts = 1_000_000
	file := progressOf(parts)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	l := newPartLedger()
	whole, err := eachProgress(bytes.NewReader(file), func(name string, r received) {
		l.set(name, entry{received: r, here: true, recorded: true})
	})
	took := heap() - before
	if err != nil || whole != int64(len(file)) || l.contents.Len() != parts {
		t.Fatalf("%d of %d bytes, %d parts: %v", whole, len(file), l.contents.Len(), err)
	}
	t.Logf("%.1f bytes a part", float64(took)/parts)
	if took > 40*parts {
		t.Errorf("%d parts take %d bytes", parts, took)
	}
	runtime.KeepAlive(l)
}

func progressOf(parts int) (b []byte) {
	for i := range parts {
		b = appendProgress(b, fmt.Sprint("content/", 4096+i), received{have: 8192, readAt: 1_000_000})
	}
	return b
}

// TestEachProgress reads as far as the records are whole, wherever that ends.
func TestEachProgress(t *testing.T) {
	const parts = 300 // more than are read at a time
	b := progressOf(parts)
	for cut := range len(b) {
		if cut%7 != 0 && cut < len(b)-60 {
			continue
		}
		n := 0
		whole, err := eachProgress(bytes.NewReader(b[:cut]), func(string, received) { n++ })
		if err != nil || whole > int64(cut) || cut-int(whole) > len(b)/parts+1 || n != int(whole)/(len(b)/parts) {
			t.Fatalf("cut at %d: %d records in %d bytes, %v", cut, n, whole, err)
		}
	}
	flipped := bytes.Clone(b)
	flipped[len(b)/2] ^= 1
	if whole, err := eachProgress(bytes.NewReader(flipped), func(string, received) {}); err != nil || whole > int64(len(b)/2) {
		t.Errorf("a flipped bit: %d bytes are whole, %v", whole, err)
	}
}
