package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// durable puts a file and makes it and its name durable.
func durable(t *testing.T, m *disk.Mem, path, data string) disk.File {
	t.Helper()
	f := put(t, m, path, data)
	check(t, f.Sync())
	check(t, m.SyncDir(m.PathDir("/"+path)))
	return f
}

func exists(m *disk.Mem, path string) bool {
	_, err := m.Stat(path)
	return err == nil
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	for seed := range uint64(50) {
		m := disk.NewMem(seed)
		f := durable(t, m, "a", "synced")
		must(f.WriteAt([]byte("S"), 0))(t)
		put(t, m, "b", "new")
		after := m.Crash(disk.KeepNone)
		if get(t, after, "a") != "synced" || exists(after, "b") {
			t.Fatal("KeepNone kept something that was not synced")
		}
		_, err := f.WriteAt([]byte("x"), 0)
		wantErr(t, err, disk.ErrPowerOff)
		wantErr(t, m.SyncDir("/"), disk.ErrPowerOff)
		check(t, f.Close())
	}
}

func TestCrashTearsBySector(t *testing.T) {
	old := bytes.Repeat([]byte{'o'}, 4096)
	fresh := bytes.Repeat([]byte{'n'}, 4096)
	torn, whole, none := 0, 0, 0
	for seed := range uint64(200) {
		m := disk.NewMem(seed)
		f := durable(t, m, "a", string(old))
		must(f.WriteAt(fresh, 0))(t)
		got := get(t, m.Crash(disk.KeepSome), "a")
		changed := 0
		for i := 0; i < len(got); i += disk.SectorSize {
			sector := got[i : i+disk.SectorSize]
			switch sector {
			case string(fresh[:disk.SectorSize]):
				changed++
			case string(old[:disk.SectorSize]):
			default:
				t.Fatal("a sector is torn in itself")
			}
		}
		switch changed {
		case 0:
			none++
		case 8:
			whole++
		default:
			torn++
		}
	}
	if torn == 0 || whole == 0 || none == 0 {
		t.Fatalf("torn %d, whole %d, none %d: an outcome never comes", torn, whole, none)
	}
}

// TestCrashShowsOnlyThePast holds every surviving sector against all that it was
// since the last sync.
func TestCrashShowsOnlyThePast(t *testing.T) {
	const size = 8 * disk.SectorSize
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := disk.NewMem(seed)
		f := durable(t, m, "a", string(make([]byte, size)))
		image := make([]byte, size)
		past := [][]byte{bytes.Clone(image)}
		for range 1 + r.IntN(30) {
			off := r.IntN(size)
			n := 1 + r.IntN(size-off)
			switch r.IntN(6) {
			case 0:
				check(t, f.Sync())
				past = nil
			case 1:
				check(t, f.PunchHole(int64(off), int64(n)))
				clear(image[off : off+n])
			default:
				data := bytes.Repeat([]byte{byte(1 + r.IntN(255))}, n)
				must(f.WriteAt(data, int64(off)))(t)
				copy(image[off:], data)
			}
			past = append(past, bytes.Clone(image))
		}
		got := get(t, m.Crash(disk.KeepSome), "a")
		for i := 0; i < size; i += disk.SectorSize {
			if !inPast(past, i, got[i:i+disk.SectorSize]) {
				t.Fatalf("seed %d: sector %d was never like this", seed, i/disk.SectorSize)
			}
		}
	}
}

func inPast(past [][]byte, off int, sector string) bool {
	for _, image := range past {
		if string(image[off:off+len(sector)]) == sector {
			return true
		}
	}
	return false
}

func TestCrashSizes(t *testing.T) {
	seen := make(map[int]bool)
	for seed := range uint64(300) {
		m := disk.NewMem(seed)
		f := durable(t, m, "a", "12345678")
		check(t, f.Truncate(2))
		check(t, f.Truncate(6))
		must(f.WriteAt([]byte("xy"), 6))(t)
		got := get(t, m.Crash(disk.KeepSome), "a")
		seen[len(got)] = true
		switch got {
		case "12345678", "12", "12\x00\x00\x00\x00", "12\x00\x00\x00\x00xy", "12\x00\x00\x00\x00\x00\x00":
		default:
			t.Fatalf("seed %d: impossible contents %q", seed, got)
		}
	}
	if !seen[2] || !seen[6] || !seen[8] {
		t.Fatalf("sizes seen: %v", seen)
	}
}

func TestCrashRenameIsAtomic(t *testing.T) {
	seen := make(map[string]bool)
	for seed := range uint64(200) {
		m := disk.NewMem(seed)
		check(t, m.MkdirAll("d", 0o755))
		check(t, m.SyncDir("/"))
		durable(t, m, "tmp", "new")
		durable(t, m, "d/name", "old")
		check(t, m.Rename("tmp", "d/name"))
		after := m.Crash(disk.KeepSome)
		got := fmt.Sprintf("%s %v", get(t, after, "d/name"), exists(after, "tmp"))
		if got != "old true" && got != "new false" {
			t.Fatalf("seed %d: half a rename: %s", seed, got)
		}
		seen[got] = true
	}
	if len(seen) != 2 {
		t.Fatalf("only seen: %v", seen)
	}
}

// TestCrashNeverLosesAnOldFileToANewName: a file whose name was moved away and
// used again must survive under one of them.
func TestCrashNeverLosesAnOldFileToANewName(t *testing.T) {
	for seed := range uint64(200) {
		m := disk.NewMem(seed)
		durable(t, m, "a", "old")
		check(t, m.Rename("a", "b"))
		check(t, put(t, m, "a", "new").Sync())
		after := m.Crash(disk.KeepSome)
		if exists(after, "b") {
			if got := get(t, after, "b"); got != "old" {
				t.Fatalf("b holds %q", got)
			}
		} else if got := get(t, after, "a"); got != "old" {
			t.Fatalf("seed %d: no b, and a holds %q", seed, got)
		}
	}
}

func TestSyncDirTakesWhatItDependsOn(t *testing.T) {
	m := disk.NewMem(1)
	check(t, m.MkdirAll("x", 0o755))
	check(t, m.MkdirAll("y", 0o755))
	check(t, m.SyncDir("/"))
	f := put(t, m, "x/a", "a")
	check(t, f.Sync())
	check(t, m.Rename("x/a", "y/a"))
	put(t, m, "x/other", "")
	check(t, m.SyncDir("y"))
	after := m.Crash(disk.KeepNone)
	if get(t, after, "y/a") != "a" || exists(after, "x/a") || exists(after, "x/other") {
		t.Fatal("names of y are not as synced")
	}
}

func TestHardLinksSurviveAsOneFile(t *testing.T) {
	m := disk.NewMem(1)
	f := durable(t, m, "a", "one")
	check(t, m.Link("a", "b"))
	check(t, m.SyncDir("/"))
	after := m.Crash(disk.KeepNone)
	check(t, put(t, after, "b", "two").Sync())
	if got := get(t, after, "a"); got != "two" {
		t.Fatalf("link reads %q", got)
	}
	check(t, f.Close())
}

func TestFailedSyncIsForGood(t *testing.T) {
	lost := 0
	for seed := range uint64(50) {
		m := disk.NewMem(seed)
		check(t, durable(t, m, "a", "old").Close())
		var rules disk.Rules
		f := must(disk.Inject(m, rules.Check).OpenRW("a", false))(t)
		must(f.WriteAt([]byte("new"), 0))(t)
		rules.Fail(disk.Rule{Op: disk.OpSync, Count: 1, Err: syscall.EIO})
		wantErr(t, f.SyncData(), syscall.EIO)
		check(t, f.SyncData())
		if got := get(t, m, "a"); got != "new" {
			t.Fatalf("the cache reads %q", got)
		}
		if got := get(t, m.Crash(disk.KeepAll), "a"); got != "new" {
			t.Fatalf("with everything kept: %q", got)
		}
		if get(t, m.CrashClone(disk.KeepNone), "a") == "old" {
			lost++
		}
	}
	if lost == 0 || lost == 50 {
		t.Fatalf("%d of 50 lost their data: a failed sync must be able to do both", lost)
	}
}

func TestSameSeedSameCrash(t *testing.T) {
	run := func(seed uint64) string {
		m := disk.NewMem(seed)
		for i := range 20 {
			f := put(t, m, fmt.Sprintf("f%d", i), string(bytes.Repeat([]byte{byte(i)}, 3000)))
			if i%3 == 0 {
				check(t, f.Sync())
			}
			if i%5 == 0 {
				check(t, m.SyncDir("/"))
			}
		}
		check(t, m.RemoveAll("f3"))
		after := m.Crash(disk.KeepSome).Crash(disk.KeepSome)
		all := ""
		for _, name := range must(after.List("/"))(t) {
			all += name + get(t, after, name)
		}
		return all
	}
	first := run(7)
	if again := run(7); again != first {
		t.Fatal("one seed, two outcomes")
	}
	if first == run(8) && first == run(9) {
		t.Fatal("the seed changes nothing")
	}
}

func TestCapacity(t *testing.T) {
	m := disk.NewMem(1)
	m.SetCapacity(4*4096, 5)
	f := must(m.OpenRW("a", true))(t)
	n, err := f.WriteAt(make([]byte, 6*4096), 100)
	wantErr(t, err, syscall.ENOSPC)
	if n != 4*4096-100 {
		t.Fatalf("short write of %d bytes", n)
	}
	g := must(m.OpenRW("b", true))(t)
	wantErr(t, g.Allocate(0, 1), syscall.ENOSPC)
	check(t, f.PunchHole(0, 2*4096))
	check(t, g.Allocate(0, 2*4096))
	_, err = f.WriteAt([]byte{1}, 0)
	wantErr(t, err, syscall.ENOSPC)
	must(g.WriteAt(make([]byte, 2*4096), 0))(t) // was reserved
	check(t, m.Remove("a"))
	if u := must(m.Usage("/"))(t); u.FreeBytes != 0 {
		t.Fatalf("an open file gave back its space: %+v", u)
	}
	check(t, f.Close())
	if u := must(m.Usage("/"))(t); u.FreeBytes != 2*4096 || u.FreeInodes != 3 {
		t.Fatalf("%+v", u)
	}
	if u := must(m.Crash(disk.KeepAll).Usage("/"))(t); u.FreeBytes != 2*4096 {
		t.Fatalf("after a crash: %+v", u)
	}
}

func TestInodesRunOut(t *testing.T) {
	m := disk.NewMem(1)
	m.SetCapacity(0, 3)
	put(t, m, "a", "").Close()
	check(t, m.MkdirAll("b", 0o755))
	_, err := m.OpenRW("c", true)
	wantErr(t, err, syscall.ENOSPC)
	check(t, m.Remove("b"))
	put(t, m, "c", "")
}

func TestFlipBit(t *testing.T) {
	m := disk.NewMem(1)
	f := durable(t, m, "a", "abc")
	check(t, m.FlipBit("a", 8))
	must(f.WriteAt([]byte("d"), 3))(t)
	if got := get(t, m, "a"); got != "accd" {
		t.Fatalf("cache %q", got)
	}
	if got := get(t, m.Crash(disk.KeepNone), "a"); got != "acc" {
		t.Fatalf("medium %q", got)
	}
	wantErr(t, m.FlipBit("b", 0), fs.ErrNotExist)
}

func TestProcessDied(t *testing.T) {
	m := disk.NewMem(1)
	f := durable(t, m, "a", "old")
	must(f.WriteAt([]byte("new"), 0))(t)
	lock := must(m.Lock("LOCK"))(t)
	m.ProcessDied()
	_, err := f.WriteAt([]byte("zzz"), 0)
	wantErr(t, err, fs.ErrClosed)
	again := must(m.Lock("LOCK"))(t)
	wantErr(t, lock.Close(), fs.ErrClosed)
	if _, err := m.Lock("LOCK"); err == nil {
		t.Fatal("a dead process unlocked what another one holds")
	}
	if get(t, m, "a") != "new" || get(t, m.CrashClone(disk.KeepNone), "a") != "old" {
		t.Fatal("the page cache did not outlive the process, or was synced")
	}
	check(t, again.Close())
}

func TestClonesShareNothing(t *testing.T) {
	m := disk.NewMem(1)
	f := put(t, m, "a", "one")
	clone := m.CrashClone(disk.KeepAll)
	must(f.WriteAt([]byte("two"), 0))(t)
	if got := get(t, clone, "a"); got != "one" {
		t.Fatalf("clone sees %q", got)
	}
	check(t, put(t, clone, "a", "ten").Sync())
	if got := get(t, m, "a"); got != "two" {
		t.Fatalf("original sees %q", got)
	}
}

func TestPageCacheIsBounded(t *testing.T) {
	m := disk.NewMem(1)
	f := durable(t, m, "a", "")
	chunk := make([]byte, 1<<20)
	for i := range 64 {
		chunk[0] = byte(i + 1)
		must(f.WriteAt(chunk, int64(i)<<20))(t)
	}
	after := m.Crash(disk.KeepNone)
	info := must(after.Stat("a"))(t)
	if info.Size() < 32<<20 {
		t.Fatalf("%d bytes written back of 64 MiB", info.Size())
	}
}

func TestClosedFile(t *testing.T) {
	m := disk.NewMem(1)
	f := put(t, m, "a", "x")
	check(t, f.Close())
	wantErr(t, f.Close(), fs.ErrClosed)
	_, err := f.ReadAt(make([]byte, 1), 0)
	wantErr(t, err, fs.ErrClosed)
	wantErr(t, f.Sync(), fs.ErrClosed)
	if _, err := must(m.Open("a"))(t).ReadAt(make([]byte, 2), 0); !errors.Is(err, io.EOF) {
		t.Fatalf("short read says %v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	m := disk.NewMem(1)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				name := fmt.Sprintf("f%d", (g+i)%4)
				f, err := m.OpenRW(name, true)
				if err != nil {
					t.Error(err)
					return
				}
				f.WriteAt([]byte{byte(i)}, int64(i))
				f.ReadAt(make([]byte, 10), 0)
				f.Sync()
				m.Rename(name, fmt.Sprintf("g%d", g))
				m.SyncDir("/")
				m.Remove(fmt.Sprintf("g%d", g))
				if i%10 == 0 {
					m.CrashClone(disk.KeepSome)
				}
				f.Close()
			}
		})
	}
	wg.Wait()
}
