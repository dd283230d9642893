package kernel

import (
	"bytes"
	"slices"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// TestWritePieces stores large writes against callers that fail somewhere.
func TestWritePieces(t *testing.T) {
	const n = 5*pieceSize + 100
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i / pieceSize)
	}
	cases := []struct {
		name  string
		sub   uint32 // of the piece that fails
		rep   *fsop.Reply
		err   error
		count uint32
		errno fsop.Errno
		known bool
	}{
		{"all", 99, nil, nil, n, fsop.OK, true},
		{"disk full after two", 2, &fsop.Reply{Errno: fsop.ENOSPC}, nil, 2 * pieceSize, fsop.OK, true},
		{"disk full at once", 0, &fsop.Reply{Errno: fsop.ENOSPC}, nil, 0, fsop.ENOSPC, true},
		{"no answer to the last", 5, nil, fsop.Fail(fsop.Uncertain, "lost"), 5 * pieceSize, fsop.OK, false},
		{"no answer to the first", 0, nil, fsop.Fail(fsop.Uncertain, "lost"), 0, fsop.EIO, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := fakeServer(t, devNull(t))
			caller := &fakeCaller{answer: func(req *fsop.Request) (*fsop.Reply, error) {
				if req.Sub == c.sub {
					return c.rep, c.err
				}
				return anything(req)
			}}
			s.caller = caller
			x := &exchange{s: s, holds: true, tag: 6, node: 2}
			rep, errno, known := x.store(&fsop.Write{Ino: 2, Offset: 7, KillPriv: true, Data: data})
			x.end()
			if errno != c.errno || known != c.known {
				t.Errorf("errno %v, known %v, want %v, %v", errno, known, c.errno, c.known)
			}
			if rep != nil && rep.Count != c.count || rep == nil && c.count != 0 {
				t.Errorf("reply %+v, want %d bytes", rep, c.count)
			}
			var got []byte
			slices.SortFunc(caller.asked, func(a, b *fsop.Request) int { return int(a.Sub) - int(b.Sub) })
			for i, req := range caller.asked {
				op := req.Op.(*fsop.Write)
				if req.Sub != uint32(i) || req.Tag != 6 || op.Offset != 7+uint64(len(got)) || op.KillPriv != (i == 0) {
					t.Errorf("piece %d: sub %d, tag %d, offset %d, KillPriv %v", i, req.Sub, req.Tag, op.Offset, op.KillPriv)
				}
				got = append(got, op.Data...)
			}
			if !bytes.Equal(got, data) {
				t.Error("the pieces are not the data")
			}
		})
	}
}

// TestWritePiecesInOrder begins a piece only when the one before has its place.
func TestWritePiecesInOrder(t *testing.T) {
	s := fakeServer(t, devNull(t))
	var order []uint32
	release := make(chan struct{})
	s.caller = &fakeCaller{answer: func(req *fsop.Request) (*fsop.Reply, error) {
		order = append(order, req.Sub) // a race unless they come one after another
		last := req.Sub == 3
		req.Numbered()
		if last {
			close(release)
		}
		<-release // all are under way at once
		return anything(req)
	}}
	x := &exchange{s: s, holds: true, node: 2}
	x.store(&fsop.Write{Ino: 2, Data: make([]byte, 4*pieceSize)})
	x.end()
	if !slices.Equal(order, []uint32{0, 1, 2, 3}) {
		t.Errorf("begun in the order %v", order)
	}
}

// TestAppendIsOneOperation: another node's append must not come in between.
func TestAppendIsOneOperation(t *testing.T) {
	s := fakeServer(t, devNull(t))
	caller := &fakeCaller{}
	s.caller = caller
	x := &exchange{s: s, holds: true, node: 2}
	x.store(&fsop.Write{Ino: 2, Append: true, Data: make([]byte, maxData)})
	x.end()
	if len(caller.asked) != 1 {
		t.Errorf("%d operations", len(caller.asked))
	}
}
