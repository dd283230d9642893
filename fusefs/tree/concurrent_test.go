package tree_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestReadersSeeWholeEntries lets readers run while one file is rewritten with
// one byte value an entry, another grows, and two names are exchanged, all in
// one entry. No reader sees half of it, and none goes back in time.
func TestReadersSeeWholeEntries(t *testing.T) {
	f := fixtureOn(t, disk.NewMem(1))
	dir := f.dir(root, "d")
	file, log := f.file("file", 200_000), f.file("log", 0)
	f.ok(mk(dir, "a", fsop.TypeFifo))
	f.ok(mk(dir, "b", fsop.TypeFifo))
	var done atomic.Bool
	var wg sync.WaitGroup
	reader := func(look func(index *uint64)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var index uint64
			for !done.Load() && !t.Failed() {
				look(&index)
			}
		}()
	}
	ask := func(op fsop.Op, index *uint64) *fsop.Reply {
		r, err := f.t.Read(context.Background(), op)
		if err != nil || r.Errno != 0 {
			t.Errorf("%T: %v %+v", op, err, r)
			return &fsop.Reply{}
		}
		if r.Index < *index {
			t.Errorf("%T: index %d after %d", op, r.Index, *index)
		}
		*index = r.Index
		return r
	}
	for range 2 {
		reader(func(index *uint64) {
			d := ask(&fsop.Read{Ino: file, Length: 200_000}, index).Data
			if len(d) != 200_000 || bytes.Count(d, d[:1]) != len(d) {
				t.Errorf("half a write: %d bytes, %d alike", len(d), bytes.Count(d, d[:1]))
			}
		})
		reader(func(index *uint64) {
			size := ask(&fsop.GetAttr{Ino: log}, index).Attrs[0].Size
			d := ask(&fsop.Read{Ino: log, Length: fsop.DataMax}, index).Data
			if uint64(len(d)) < size || len(d)%7 != 0 {
				t.Errorf("read %d bytes after a size of %d", len(d), size)
			}
		})
		reader(func(index *uint64) {
			r := ask(&fsop.ReadDir{Ino: dir, MaxBytes: 1000, Plus: true}, index)
			if len(r.Entries) != 2 || r.Entries[0].Ino == r.Entries[1].Ino || *r.Entries[0].Attr == *r.Entries[1].Attr {
				t.Errorf("listing %+v", r.Entries)
			}
		})
	}
	index, _ := f.t.Applied()
	s := f.t.Sessions()[0]
	seq := s.LastSeq
	for i := range 150 {
		item := func(op fsop.Op) fsop.Item {
			seq++
			return fsop.Item{Session: s.ID, Seq: seq, Ack: seq - 1, Op: op}
		}
		fill := bytes.Repeat([]byte{byte(i)}, 100_000)
		index++
		e := &fsop.Entry{Items: []fsop.Item{
			item(&fsop.Write{Ino: file, Data: fill}),
			item(mv(dir, "a", dir, "b", fsop.RenameExchange)),
			item(&fsop.Write{Ino: log, Append: true, Data: []byte("abcdefg")}),
			item(&fsop.Write{Ino: file, Offset: 100_000, Data: fill}),
		}}
		if _, err := f.t.Apply(index, 1, e); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			checkpoint(t, f.t)
		}
	}
	done.Store(true)
	wg.Wait()
}
