package kernel

import (
	"bytes"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// FuzzDecodeBody feeds every decoder of request bodies.
func FuzzDecodeBody(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 64))
	f.Add(append(make([]byte, 16), "old\x00new\x00"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.Clone(b)
		decodeRead(b)
		decodeLseek(b)
		decodeCopy(b)
		decodeCreate(b)
		if r, ok := decodeRename2(b); ok && len(r.oldName)+len(r.newName)+18 > len(b) {
			t.Fatalf("names %q %q from %d bytes", r.oldName, r.newName, len(b))
		}
		if !bytes.Equal(in, b) {
			t.Fatal("input was changed")
		}
	})
}

// FuzzDecodeInit feeds the handshake: what is agreed was offered.
func FuzzDecodeInit(f *testing.F) {
	f.Add(request(opInit, 1, initBody(7, 45, math.MaxUint64)))
	f.Add(request(opInit, 1, initBody(7, 31, needed)))
	f.Add(request(opRead, 1, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := decodeInit(b)
		if err != nil {
			return
		}
		out, features, err := agree(in)
		if err != nil {
			return
		}
		if features&^in.features != 0 || features&needed != needed {
			t.Fatalf("agreed on %#x of %#x", features, in.features)
		}
		if again, err := agreed(out); err != nil || again != features {
			t.Fatalf("answer says %#x %v, agreed %#x", again, err, features)
		}
	})
}

func initBody(major, minor uint32, features uint64) []byte {
	b := make([]byte, 64)
	native.PutUint32(b[0:], major)
	native.PutUint32(b[4:], minor)
	native.PutUint32(b[8:], 128<<10)
	native.PutUint32(b[12:], uint32(features))
	native.PutUint32(b[16:], uint32(features>>32))
	return b
}

// FuzzDecodeMessage feeds what arrives at the keeper's socket.
func FuzzDecodeMessage(f *testing.F) {
	for _, m := range sampleMessages() {
		b, err := encodeMessage(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"v":2,"op":"hello"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		again, err := encodeMessage(m)
		if err != nil {
			return // too long once it is written our way
		}
		if _, err := decodeMessage(again); err != nil {
			t.Fatalf("%q: %v", again, err)
		}
	})
}

func sampleMessages() []*message {
	return []*message{
		{Op: opHello},
		{Op: opHello, Instance: "pod"},
		{Op: opStop},
		{Op: opKept, ID: "a", Dir: []byte("/mnt/\xff"), Spec: []byte(`{"volume":"v"}`)},
		{Op: opRefused, Error: "no"},
		{Op: opStatus, Status: &KeeperStatus{PID: 1, Server: 2, Restarts: 3, Mounts: []string{"a"}}},
	}
}

// FuzzLedger opens shared memory with arbitrary bytes at the places where
// another process writes, and uses it.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{}, []byte{}, []byte{}, []byte{})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, []byte{1, 0, 0, 0}, []byte{255}, []byte{2})
	head, tables := openedHandle(77, 6) // a handle that is open for another inode
	f.Add(head, []byte{}, []byte{}, tables)
	f.Fuzz(func(t *testing.T, head, slot, flights, tables []byte) {
		mem := make(memory, layoutSize)
		mem.format()
		copy(mem[offReady:offSlots], head)
		copy(mem[offSlots:offSlots+2*slotSize], slot)
		copy(mem[offFlights:offHandleTab], flights)
		copy(mem[offHandleTab:], tables)
		copy(mem[offHolderTab:], tables)
		if err := mem.check(); err != nil {
			t.Fatal(err)
		}
		mem.init()
		l := newLedgerOn(mem)
		l.Identity()
		l.Pending()
		l.OpenOf([]fsop.Ino{1, 2, 3})
		if err := l.SetIdentity(fsop.Identity{Session: 9}); err != nil {
			t.Fatal(err)
		}
		if err := l.Begin(4, 0, 1<<40); err != nil && len(l.Pending()) < fsop.InFlightMax {
			t.Fatal(err)
		}
		l.Finish(4)
		if l.Open(77, 5) == nil && len(l.OpenOf([]fsop.Ino{5})) != 1 {
			t.Fatal("an open inode is not open")
		}
		l.Close(77)
		_ = l.claim(holder{Ino: 1, Owner: 2, Handle: 3, Kind: fsop.Posix})
	})
}

// openedHandle is what FuzzLedger takes when one handle is in the table.
func openedHandle(handle, ino uint64) (head, tables []byte) {
	head = make([]byte, offSlots-offReady)
	native.PutUint32(head[offHandles-offReady:], 1)
	return head, native.AppendUint64(native.AppendUint64(nil, handle), ino)
}

// FuzzFusermount feeds the command line of fusermount3.
func FuzzFusermount(f *testing.F) {
	f.Add("-o", `fsname=a\,b,ro`, "--", "/mnt")
	f.Add("-uz", "/mnt", "-q", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		r, err := parseFusermount([]string{a, b, c, d})
		if err != nil {
			return
		}
		o, err := parseFuseOptions(r.options)
		if err == nil && o.flags&^(unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_SYNCHRONOUS|unix.MS_NOATIME|unix.MS_DIRSYNC) != 0 {
			t.Fatalf("flags %#x", o.flags)
		}
	})
}

// FuzzRead feeds whole requests of the kinds that bazil does not parse through
// our dispatch: each gets one answer. What bazil parses is left out: it panics
// on some requests that no kernel sends (a SYMLINK without a target).
func FuzzRead(f *testing.F) {
	f.Add(uint32(opLseek), make([]byte, 24))
	f.Add(uint32(opRename2), append(make([]byte, 16), "a\x00b\x00"...))
	f.Add(uint32(opReadDirPlus), make([]byte, 40))
	f.Fuzz(func(t *testing.T, op uint32, b []byte) {
		if len(b) > 1<<16 || op < opReadDirPlus && op != opIoctl {
			return
		}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skip(err)
		}
		defer unix.Close(pair[0])
		s := fakeServer(t, pair[1])
		if err := unix.Sendto(pair[0], request(op, 6, b), 0, nil); err != nil {
			t.Skip(err)
		}
		req, err := s.conn.ReadRequest()
		if err != nil {
			return // bazil refuses it
		}
		x := &exchange{s: s, holds: true}
		s.handle(x, req)
		reply := make([]byte, 1<<17)
		n, _, err := unix.Recvfrom(pair[0], reply, unix.MSG_DONTWAIT)
		if err != nil || n < outHeaderSize || native.Uint64(reply[8:]) != 6 || int(native.Uint32(reply)) != n {
			t.Fatalf("answer %x %v", reply[:max(n, 0)], err)
		}
	})
}
