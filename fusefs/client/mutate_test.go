package client

import (
	"slices"
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

// holdingLedger notes what it is told to hold.
type holdingLedger struct {
	Ledger
	held []fsop.Ino
}

func (l *holdingLedger) Hold(ino fsop.Ino) { l.held = append(l.held, ino) }

// TestUnnamedIsHeld shows that an inode whose last name an answer takes is held
// before its caller goes on, and so before the question for what is open that may
// be the next to arrive.
func TestUnnamedIsHeld(t *testing.T) {
	attr := func(ino fsop.Ino, nlink uint32) fsop.Attr { return fsop.Attr{Ino: ino, Nlink: nlink} }
	for name, c := range map[string]struct {
		op   fsop.Op
		rep  fsop.Reply
		held []fsop.Ino
	}{
		"the last name":       {&fsop.Unlink{Parent: 1, Name: []byte("a")}, fsop.Reply{Attrs: []fsop.Attr{attr(7, 0), attr(1, 2)}}, []fsop.Ino{7}},
		"another name stays":  {&fsop.Unlink{Parent: 1, Name: []byte("a")}, fsop.Reply{Attrs: []fsop.Attr{attr(7, 1), attr(1, 2)}}, nil},
		"replaced":            {&fsop.Rename{Parent: 1, Name: []byte("a"), NewParent: 1, NewName: []byte("b")}, fsop.Reply{Attrs: []fsop.Attr{attr(6, 1), attr(1, 2), attr(7, 0)}}, []fsop.Ino{7}},
		"refused":             {&fsop.Unlink{Parent: 1, Name: []byte("a")}, fsop.Reply{Errno: fsop.EPERM, Attrs: []fsop.Attr{attr(7, 0)}}, nil},
		"an unnamed new file": {&fsop.Tmpfile{Parent: 1}, fsop.Reply{Attrs: []fsop.Attr{attr(7, 0)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ledger := &holdingLedger{Ledger: NewMemLedger()}
			s, err := New(Config{Ledger: ledger, Clock: stillClock{}, Rand: func() uint64 { return 1 }, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			call := &call{req: &fsop.Request{Op: c.op, Tag: 9}, seq: 1, fence: s.cache.raise(c.op), done: make(chan struct{})}
			s.mu.window[call.seq] = call
			s.mu.Lock()
			s.answered(call, &c.rep)
			s.mu.Unlock()
			<-call.done
			if !slices.Equal(ledger.held, c.held) {
				t.Errorf("held %v, want %v", ledger.held, c.held)
			}
		})
	}
}
