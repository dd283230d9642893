package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// ringModel is a ring and the list that it should hold.
type ringModel struct {
	ring ring
	want []fsop.Queued
}

func (m *ringModel) check(t *testing.T) {
	t.Helper()
	got := m.ring.list()
	if len(got) != len(m.want) {
		t.Fatalf("%d records, want %d", len(got), len(m.want))
	}
	for i := range got {
		if got[i].Seq != m.want[i].Seq || !bytes.Equal(got[i].Op, m.want[i].Op) {
			t.Fatalf("record %d is number %d with %d bytes, want %d with %d", i, got[i].Seq, len(got[i].Op), m.want[i].Seq, len(m.want[i].Op))
		}
	}
}

// TestRing fills and empties a ring at random, many times around, and lets other
// processes go on with it.
func TestRing(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	mem := make(memory, layoutSize)
	mem.format()
	m := &ringModel{ring: ring{mem: mem}}
	seq := uint64(0)
	for i := range 4000 {
		switch rng.IntN(8) {
		case 0, 1:
			n := rng.IntN(len(m.want) + 1)
			if rng.IntN(10) == 0 {
				n = len(m.want)
			}
			if n > 0 {
				m.ring.release(m.want[n-1].Seq)
				m.want = m.want[n:]
			}
		case 2:
			next := ring{}
			next.load(mem)
			m.ring = next
		default:
			op := fmt.Appendf(nil, "%d", i)
			op = append(op, make([]byte, rng.IntN(200<<10))...)
			if _, ok := m.ring.place(len(op)); !ok {
				continue
			}
			seq++
			m.ring.add(seq, op)
			m.want = append(m.want, fsop.Queued{Seq: seq, Op: op})
		}
		if i%97 == 0 {
			m.check(t)
		}
	}
	m.check(t)
}

// FuzzRing loads whatever may be in a ring's memory, and uses it.
func FuzzRing(f *testing.F) {
	f.Add(uint64(0), []byte{})
	f.Add(uint64(24), []byte("\x03\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00abc\x00\x00\x00\x00\x00"))
	f.Add(uint64(8)<<32, bytes.Repeat([]byte{0xff}, 64))
	mem := make(memory, layoutSize)
	f.Fuzz(func(t *testing.T, ends uint64, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		clear(mem[offRing : offRingData+1<<17])
		mem.store64(offRing, ends)
		copy(mem[offRingData:], b)
		var r ring
		r.load(mem)
		before := len(r.list())
		if _, ok := r.place(10); ok {
			r.add(1<<60, []byte("0123456789"))
			if got := r.list(); len(got) != before+1 || string(got[before].Op) != "0123456789" {
				t.Fatalf("%d records after one was added to %d", len(got), before)
			}
		}
		r.release(1 << 61)
	})
}
