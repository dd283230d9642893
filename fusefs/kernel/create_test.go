package kernel

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// askCreate has a server answer CREATE, request 6.
func askCreate(t *testing.T, caller *fakeCaller, uid, flags uint32) (*server, fsop.Errno) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	s := fakeServer(t, pair[1])
	s.caller, s.finisher = caller, caller
	return s, createOn(t, s, pair[0], uid, flags)
}

func createOn(t *testing.T, s *server, kernel int, uid, flags uint32) fsop.Errno {
	t.Helper()
	body := make([]byte, 16)
	native.PutUint32(body, flags)
	r := request(35, 6, append(body, "name\x00"...))
	native.PutUint32(r[24:], uid)
	if err := unix.Sendto(kernel, r, 0, nil); err != nil {
		t.Fatal(err)
	}
	req, err := s.conn.ReadRequest()
	if err != nil {
		t.Fatal(err)
	}
	s.handle(&exchange{s: s}, req)
	reply := make([]byte, 4096)
	if _, _, err := unix.Recvfrom(kernel, reply, unix.MSG_DONTWAIT); err != nil {
		t.Fatal(err)
	}
	return fsop.Errno(-int32(native.Uint32(reply[4:])))
}

// TestCreateRace shows what CREATE does when somebody else has made the name:
// the kernel takes the answer as a new file and checks nothing.
func TestCreateRace(t *testing.T) {
	cases := []struct {
		name     string
		uid      uint32
		flags    uint32
		existing fsop.Attr
		want     fsop.Errno
	}{
		{"O_EXCL", 0, unix.O_RDWR | unix.O_EXCL, fsop.Attr{Mode: fsop.TypeFile}, fsop.EEXIST},
		{"root", 0, unix.O_RDWR, fsop.Attr{Mode: fsop.TypeFile, UID: 7}, fsop.OK},
		{"owner", 7, unix.O_RDWR | unix.O_TRUNC, fsop.Attr{Mode: fsop.TypeFile | 0o600, UID: 7}, fsop.OK},
		{"owner without permission", 7, unix.O_WRONLY, fsop.Attr{Mode: fsop.TypeFile | 0o400, UID: 7}, fsop.ESTALE},
		{"owner truncates without permission", 7, unix.O_RDONLY | unix.O_TRUNC, fsop.Attr{Mode: fsop.TypeFile | 0o400, UID: 7}, fsop.ESTALE},
		{"another user", 8, unix.O_RDONLY, fsop.Attr{Mode: fsop.TypeFile | 0o666, UID: 7}, fsop.ESTALE},
		{"directory", 0, unix.O_RDONLY, fsop.Attr{Mode: fsop.TypeDir | 0o777}, fsop.ESTALE},
		{"symbolic link", 0, unix.O_RDONLY, fsop.Attr{Mode: fsop.TypeLink | 0o777}, fsop.ESTALE},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.existing.Ino = 5
			caller := &fakeCaller{answer: func(req *fsop.Request) (*fsop.Reply, error) {
				if _, ok := req.Op.(*fsop.Create); ok {
					return &fsop.Reply{Errno: fsop.EEXIST}, nil
				}
				return &fsop.Reply{Attrs: []fsop.Attr{c.existing}}, nil
			}}
			s, got := askCreate(t, caller, c.uid, c.flags)
			if got != c.want {
				t.Fatalf("%v, want %v", got, c.want)
			}
			truncated := false
			for _, req := range caller.asked {
				_, set := req.Op.(*fsop.SetAttr)
				truncated = truncated || set
			}
			if want := c.want == fsop.OK && c.flags&unix.O_TRUNC != 0; truncated != want {
				t.Errorf("truncated: %v, want %v", truncated, want)
			}
			if len(caller.finished) != 1 || caller.finished[0] != 6 {
				t.Errorf("finished %v, want [6]", caller.finished)
			}
			if open := len(s.ledger.OpenOf([]fsop.Ino{5})) == 1; open != (c.want == fsop.OK) {
				t.Errorf("open: %v", open)
			}
		})
	}
}

// TestCreateComesAndGoes has another node make and remove the name all the time: it
// is opened or made in the end, under numbers that are given up as they are used.
func TestCreateComesAndGoes(t *testing.T) {
	for name, c := range map[string]struct {
		gone  int  // so often it is there when it is made, and gone when it is looked for
		after bool // it goes between look-up and open
		want  fsop.Errno
	}{
		"once":                   {gone: 1, want: fsop.OK},
		"after it was looked up": {gone: 1, after: true, want: fsop.OK},
		"often":                  {gone: createTries - 1, want: fsop.OK},
		"always":                 {gone: createTries, want: fsop.ESTALE},
	} {
		t.Run(name, func(t *testing.T) {
			creates := 0
			caller := &fakeCaller{}
			caller.answer = func(req *fsop.Request) (*fsop.Reply, error) {
				switch req.Op.(type) {
				case *fsop.Create:
					if creates++; creates > c.gone {
						return &fsop.Reply{Attrs: []fsop.Attr{{Ino: 5, Mode: fsop.TypeFile}}}, nil
					}
					return &fsop.Reply{Errno: fsop.EEXIST}, nil
				case *fsop.Lookup:
					if c.after {
						return &fsop.Reply{Attrs: []fsop.Attr{{Ino: 4, Mode: fsop.TypeFile}}}, nil
					}
				}
				return &fsop.Reply{Errno: fsop.ENOENT}, nil
			}
			s, got := askCreate(t, caller, 0, unix.O_RDWR)
			if got != c.want {
				t.Fatalf("%v, want %v", got, c.want)
			}
			if open := len(s.ledger.OpenOf([]fsop.Ino{5})) == 1; open != (c.want == fsop.OK) {
				t.Errorf("open: %v", open)
			}
			for _, req := range caller.asked {
				if _, made := req.Op.(*fsop.Create); made && req.Sub != 0 {
					t.Errorf("number %d of the request is used", req.Sub)
				}
			}
			if len(caller.finished) != creates || slices.ContainsFunc(caller.finished, func(tag uint64) bool { return tag != 6 }) {
				t.Errorf("numbers given up: %v, of %d operations", caller.finished, creates)
			}
		})
	}
}

// TestFullHandleTable asks for a file when there is room for no other handle than those
// of the requests under way: ENFILE, and nothing is made.
func TestFullHandleTable(t *testing.T) {
	caller := &fakeCaller{}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(pair[0])
	s := fakeServer(t, pair[1])
	s.caller, s.finisher = caller, caller
	for i := range uint64(handlesMost) {
		must(t, s.ledger.Open(1<<20+i, 3))
	}
	s.ledger.Hold(9) // the kernel's own references leave that room too
	if got := createOn(t, s, pair[0], 0, unix.O_RDWR); got != enfile {
		t.Errorf("%v, want ENFILE", got)
	}
	if len(caller.asked) > 0 || s.ledger.Handles() != handlesMost || len(s.ledger.OpenOf([]fsop.Ino{9})) > 0 {
		t.Errorf("asked %d times, %d handles", len(caller.asked), s.ledger.Handles())
	}
	s.ledger.Close(1 << 20)
	if got := createOn(t, s, pair[0], 0, unix.O_RDWR); got != fsop.OK {
		t.Errorf("with room again: %v", got)
	}
}
