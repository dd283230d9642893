package disk_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestEveryCallIsLabelled fails each operation in turn and calls everything: the
// calls with that label fail, and no other.
func TestEveryCallIsLabelled(t *testing.T) {
	const cat = vfs.WriteCategoryUnspecified
	type call struct {
		op  disk.Op
		run func(f disk.FS, h disk.File, d vfs.File) error
	}
	only := func(err error) error { return err }
	calls := map[string]call{
		"Create": {disk.OpCreate, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.Create("/new", cat); return err }},
		"ReuseForWrite": {disk.OpCreate, func(f disk.FS, _ disk.File, _ vfs.File) error {
			_, err := f.ReuseForWrite("/r", "/r2", cat)
			return err
		}},
		"Open":          {disk.OpOpen, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.Open("/a"); return err }},
		"OpenReadWrite": {disk.OpOpen, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.OpenReadWrite("/a", cat); return err }},
		"OpenRW":        {disk.OpOpen, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.OpenRW("/a", true); return err }},
		"OpenDirect":    {disk.OpOpen, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.OpenDirect("/a"); return err }},
		"OpenDir":       {disk.OpOpenDir, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.OpenDir("/"); return err }},
		"Link":          {disk.OpLink, func(f disk.FS, _ disk.File, _ vfs.File) error { return f.Link("/a", "/l") }},
		"Remove":        {disk.OpRemove, func(f disk.FS, _ disk.File, _ vfs.File) error { return f.Remove("/m") }},
		"RemoveAll":     {disk.OpRemoveAll, func(f disk.FS, _ disk.File, _ vfs.File) error { return f.RemoveAll("/x") }},
		"Rename":        {disk.OpRename, func(f disk.FS, _ disk.File, _ vfs.File) error { return f.Rename("/n", "/n2") }},
		"MkdirAll":      {disk.OpMkdir, func(f disk.FS, _ disk.File, _ vfs.File) error { return f.MkdirAll("/dir", 0o755) }},
		"Lock":          {disk.OpLock, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.Lock("/lock"); return err }},
		"List":          {disk.OpList, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.List("/"); return err }},
		"Stat":          {disk.OpStat, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.Stat("/a"); return err }},
		"File.Stat":     {disk.OpStat, func(_ disk.FS, h disk.File, _ vfs.File) error { _, err := h.Stat(); return err }},
		"File.Size":     {disk.OpStat, func(_ disk.FS, h disk.File, _ vfs.File) error { _, err := h.Size(); return err }},
		"Usage":         {disk.OpUsage, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.Usage("/"); return err }},
		"GetDiskUsage":  {disk.OpUsage, func(f disk.FS, _ disk.File, _ vfs.File) error { _, err := f.GetDiskUsage("/"); return err }},
		"SyncDir":       {disk.OpSyncDir, func(f disk.FS, _ disk.File, _ vfs.File) error { return f.SyncDir("/") }},
		"Dir.Sync":      {disk.OpSyncDir, func(_ disk.FS, _ disk.File, d vfs.File) error { return d.Sync() }},
		"Read":          {disk.OpRead, func(_ disk.FS, h disk.File, _ vfs.File) error { _, err := h.Read(make([]byte, 1)); return err }},
		"ReadAt":        {disk.OpRead, func(_ disk.FS, h disk.File, _ vfs.File) error { _, err := h.ReadAt(make([]byte, 1), 0); return err }},
		"Write":         {disk.OpWrite, func(_ disk.FS, h disk.File, _ vfs.File) error { _, err := h.Write([]byte{1}); return err }},
		"WriteAt":       {disk.OpWrite, func(_ disk.FS, h disk.File, _ vfs.File) error { _, err := h.WriteAt([]byte{1}, 0); return err }},
		"Sync":          {disk.OpSync, func(_ disk.FS, h disk.File, _ vfs.File) error { return h.Sync() }},
		"SyncData":      {disk.OpSync, func(_ disk.FS, h disk.File, _ vfs.File) error { return h.SyncData() }},
		"SyncTo":        {disk.OpSync, func(_ disk.FS, h disk.File, _ vfs.File) error { _, err := h.SyncTo(1); return err }},
		"Truncate":      {disk.OpTruncate, func(_ disk.FS, h disk.File, _ vfs.File) error { return h.Truncate(10) }},
		"PunchHole":     {disk.OpPunch, func(_ disk.FS, h disk.File, _ vfs.File) error { return h.PunchHole(0, 1) }},
		"Allocate":      {disk.OpAllocate, func(_ disk.FS, h disk.File, _ vfs.File) error { return h.Allocate(0, 1) }},
		"Preallocate":   {disk.OpAllocate, func(_ disk.FS, h disk.File, _ vfs.File) error { return h.Preallocate(0, 1) }},
	}
	for name, c := range calls {
		for _, victim := range calls {
			var rules disk.Rules
			m := disk.NewMem(1)
			for _, path := range []string{"/a", "/r", "/m", "/n"} {
				put(t, m, path, "0123456789").Close()
			}
			f := disk.Inject(m, rules.Check)
			h, d := must(f.OpenRW("/a", false))(t), must(f.OpenDir("/"))(t)
			rules.Fail(disk.Rule{Op: victim.op, Err: syscall.EIO})
			err := only(c.run(f, h, d))
			if want := c.op == victim.op; errors.Is(err, syscall.EIO) != want || !want && err != nil {
				t.Errorf("%s with %s failing: %v", name, victim.op, err)
			}
		}
	}
}

func TestRules(t *testing.T) {
	var rules disk.Rules
	f := disk.Inject(disk.NewMem(1), rules.Check)
	h, other := put(t, f, "/a", ""), put(t, f, "/b", "")
	rules.Fail(disk.Rule{Op: disk.OpSync, Path: "a", Skip: 1, Count: 2, Err: syscall.EIO})
	check(t, h.Sync())
	wantErr(t, h.SyncData(), syscall.EIO)
	check(t, other.Sync())
	wantErr(t, h.Sync(), syscall.EIO)
	check(t, h.Sync())
	if n := rules.Calls(disk.OpSync); n != 5 {
		t.Fatalf("%d syncs counted", n)
	}
	rules.Fail(disk.Rule{Err: syscall.ENOMEM})
	_, err := f.List("/")
	wantErr(t, err, syscall.ENOMEM)
	rules.Clear()
	must(f.List("/"))(t)
}

func TestShortWrite(t *testing.T) {
	var rules disk.Rules
	f := disk.Inject(disk.NewMem(1), rules.Check)
	h := put(t, f, "/a", "")
	rules.Fail(disk.Rule{Op: disk.OpWrite, Count: 1, Err: &disk.ShortWrite{N: 3, Err: syscall.ENOSPC}})
	n, err := h.WriteAt([]byte("hello"), 0)
	wantErr(t, err, syscall.ENOSPC)
	if n != 3 || get(t, f, "/a") != "hel" {
		t.Fatalf("%d bytes written, file holds %q", n, get(t, f, "/a"))
	}
}

func TestInjectorSeesRanges(t *testing.T) {
	var last disk.Call
	f := disk.Inject(disk.NewMem(1), func(c disk.Call) error { last = c; return nil })
	h := must(f.OpenRW("/a", true))(t)
	must(h.WriteAt([]byte("abc"), 7))(t)
	if want := (disk.Call{Op: disk.OpWrite, Path: "/a", Off: 7, Len: 3}); last != want {
		t.Fatalf("injector saw %+v", last)
	}
}
