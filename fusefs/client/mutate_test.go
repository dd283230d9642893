package client

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestAnswersComeLate answers two operations of one log entry in the wrong order, as
// happens when the answer to the first is lost and asked for again: what the cache
// shows afterwards is not the state between them.
func TestAnswersComeLate(t *testing.T) {
	const dir, file = fsop.Ino(5), fsop.Ino(7)
	at := func(ino fsop.Ino, mode uint32, nsec uint32) fsop.Attr {
		return fsop.Attr{Ino: ino, Mode: mode, Nlink: 1, Ctime: fsop.Time{Sec: 1, Nsec: nsec}}
	}
	name := []byte("name")
	for what, ops := range map[string][2]struct {
		op  fsop.Op
		rep *fsop.Reply
	}{
		"attributes": {
			{&fsop.SetAttr{Ino: file}, &fsop.Reply{Attrs: []fsop.Attr{at(file, fsop.TypeFile, 1)}}},
			{&fsop.Write{Ino: file}, &fsop.Reply{Attrs: []fsop.Attr{at(file, fsop.TypeFile, 2)}}},
		},
		"a name": {
			{&fsop.Create{Parent: dir, Name: name, Excl: true}, &fsop.Reply{Attrs: []fsop.Attr{at(file, fsop.TypeFile, 1), at(dir, fsop.TypeDir, 1)}}},
			{&fsop.Unlink{Parent: dir, Name: name}, &fsop.Reply{Attrs: []fsop.Attr{at(file, fsop.TypeFile, 2), at(dir, fsop.TypeDir, 2)}}},
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, err := New(Config{Ledger: NewMemLedger(), Clock: stillClock{}, Rand: func() uint64 { return 1 }, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			s.mu.expires = stillClock{}.Mono() + time.Hour
			var calls [2]*call
			for i := range ops {
				calls[i] = &call{req: &fsop.Request{Op: ops[i].op}, seq: uint64(i) + 1, fence: s.cache.raise(ops[i].op), done: make(chan struct{})}
				s.mu.window[calls[i].seq] = calls[i]
				ops[i].rep.Index, ops[i].rep.Leased, ops[i].rep.Exclusive = 81, true, true
			}
			s.mu.Lock()
			s.answered(calls[1], ops[1].rep)
			s.answered(calls[0], ops[0].rep)
			s.mu.Unlock()
			if rep := s.cache.answer(&fsop.GetAttr{Ino: file}); rep != nil && rep.Attrs[0].Ctime.Nsec != 2 {
				t.Errorf("attributes as they were in between: %+v", rep.Attrs[0])
			}
			if rep := s.cache.answer(&fsop.Lookup{Parent: dir, Name: name}); rep != nil && rep.Errno != fsop.ENOENT {
				t.Errorf("the name as it was in between: %+v", rep)
			}
		})
	}
}
