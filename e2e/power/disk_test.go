package power

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/e2e/kill"
)

func TestMain(m *testing.M) {
	BeDisk()
	kill.BeAgent()
	os.Exit(m.Run())
}

// memory is a medium in memory.
type memory []byte

func (m memory) ReadAt(p []byte, off int64) (int, error)  { return copy(p, m[off:]), nil }
func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func filled(with byte, sectors int) []byte {
	return bytes.Repeat([]byte{with}, sectors*sectorBytes)
}

// TestCutKeepsWhatWasFlushed wants of what was flushed everything, and of the
// rest what was asked for.
func TestCutKeepsWhatWasFlushed(t *testing.T) {
	const sectors = 64
	for left, wants := range map[Survivors]func(lost int) bool{
		None: func(lost int) bool { return lost == sectors },
		Some: func(lost int) bool { return lost > sectors/4 && lost < sectors*3/4 },
		All:  func(lost int) bool { return lost == 0 },
	} {
		m := make(memory, 2*sectors*sectorBytes)
		s := newStore(m, 0)
		do := func(_ int, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		do(s.WriteAt(filled('a', 2*sectors), 0))
		do(0, s.Flush())
		do(s.WriteAt(filled('b', sectors), 0))
		got := make([]byte, 2*sectors*sectorBytes)
		do(s.ReadAt(got, 0))
		if !bytes.Equal(got, append(filled('b', sectors), filled('a', sectors)...)) {
			t.Fatal("it does not read what was written last")
		}
		do(0, s.Cut(left, 7))
		old := 0
		for i := range sectors {
			switch sector := m[i*sectorBytes : (i+1)*sectorBytes]; {
			case bytes.Equal(sector, filled('a', 1)):
				old++
			case !bytes.Equal(sector, filled('b', 1)):
				t.Errorf("sector %d is torn", i)
			}
		}
		if !wants(old) || s.Lost().Sectors != old {
			t.Errorf("survivors %d: %d of %d sectors are old, and %+v is said", left, old, sectors, s.Lost())
		}
		if !bytes.Equal(m[sectors*sectorBytes:], filled('a', sectors)) {
			t.Errorf("survivors %d: what was flushed has changed", left)
		}
		if _, err := s.WriteAt(filled('c', 1), 0); !errors.Is(err, errOff) || !errors.Is(s.Flush(), errOff) || s.Lost().Refused != 2 {
			t.Errorf("after the cut: %v, %+v", err, s.Lost())
		}
	}
}

// TestLyingStore wants a flush to be true only later.
func TestLyingStore(t *testing.T) {
	m := make(memory, 4*sectorBytes)
	s := newStore(m, time.Millisecond)
	write := func(with byte, sector int64) {
		t.Helper()
		if _, err := s.WriteAt(filled(with, 1), sector*sectorBytes); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	write('a', 0)
	if m[0] == 'a' {
		t.Error("the flush was no lie")
	}
	time.Sleep(2 * time.Millisecond)
	write('b', 1)
	if m[0] != 'a' || m[sectorBytes] == 'b' {
		t.Errorf("after a while: %q %q", m[0], m[sectorBytes])
	}
	if err := s.Cut(None, 1); err != nil || m[sectorBytes] == 'b' {
		t.Errorf("cut: %v, and what was only pretended is there: %q", err, m[sectorBytes])
	}
}

const diskBytes = 640 << 20

// newDisk makes a disk that is on, until the test ends.
func newDisk(t *testing.T, name string, lag time.Duration) *Disk {
	t.Helper()
	d, err := NewDisk(filepath.Join(t.TempDir(), name), diskBytes, lag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.Off(); err != nil {
			t.Errorf("%s: turn off: %v", name, err)
		}
	})
	if err := d.On(); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDisk cuts the power of a disk with a file that was synced, one that was
// not, and a name that was not.
func TestDisk(t *testing.T) {
	devtest.NeedFUSE(t)
	d := newDisk(t, "disk", 0)
	at := func(name string) string { return filepath.Join(d.Root, name) }
	lost := 0
	for round := range 3 {
		synced, err := os.Create(at(fmt.Sprint("synced-", round)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := synced.Write(filled('s', 99)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(synced.Sync(), synced.Close()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(fmt.Sprint("not-", round)), filled('n', 99), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Cut(Survivors(round), uint64(round)); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(at(fmt.Sprint("synced-", round)), os.O_WRONLY, 0)
		if err == nil {
			if _, err = f.Write(filled('x', 1)); err == nil {
				err = f.Sync()
			}
			f.Close()
		}
		if err == nil {
			t.Error("something could be synced after the cut")
		}
		loss, err := d.Off()
		if err != nil {
			t.Fatal(err)
		}
		lost += loss.Sectors + loss.Refused
		if err := d.On(); err != nil {
			t.Fatal(err)
		}
		for r := range round + 1 {
			if got, err := os.ReadFile(at(fmt.Sprint("synced-", r))); err != nil || !bytes.Equal(got, filled('s', 99)) {
				t.Errorf("round %d: what was synced in round %d is not there: %d bytes, %v", round, r, len(got), err)
			}
			if got, err := os.ReadFile(at(fmt.Sprint("not-", r))); err == nil && bytes.Equal(got, filled('n', 99)) {
				t.Errorf("round %d: what was never synced is there", round)
			}
		}
	}
	if lost == 0 {
		t.Error("nothing was lost")
	}
}
