package kernel

import (
	"context"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"bazil.org/fuse"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

func TestErrnoOf(t *testing.T) {
	live := context.Background()
	interrupted, cancel := context.WithCancelCause(live)
	cancel(errInterrupted)
	ended, cancel := context.WithCancelCause(live)
	cancel(errEnded)
	for code := fsop.Code(1); !strings.HasPrefix(code.String(), "failure "); code++ {
		if got := errnoOf(live, fsop.Fail(code, "x")); got != fsop.EIO {
			t.Errorf("%v: %v, want EIO", code, got)
		}
		if got := errnoOf(interrupted, fsop.Fail(code, "x")); got != fsop.EINTR {
			t.Errorf("%v when interrupted: %v, want EINTR", code, got)
		}
		if got := errnoOf(ended, fsop.Fail(code, "x")); got != enotconn {
			t.Errorf("%v after the end: %v, want ENOTCONN", code, got)
		}
	}
	for _, ctx := range []context.Context{live, interrupted, ended} {
		if got := errnoOf(ctx, &fsop.LostError{Errno: fsop.ENOSPC}); got != fsop.ENOSPC {
			t.Errorf("work lost for want of space: %v", got)
		}
	}
	if got := errnoOf(live, errors.New("unknown")); got != fsop.EIO {
		t.Errorf("unknown error: %v, want EIO", got)
	}
}

func TestUnixMode(t *testing.T) {
	cases := map[uint32]os.FileMode{
		0o100644: 0o644,
		0o104755: 0o755 | os.ModeSetuid,
		0o102755: 0o755 | os.ModeSetgid,
		0o041777: 0o777 | os.ModeDir | os.ModeSticky,
		0o120777: 0o777 | os.ModeSymlink,
		0o010600: 0o600 | os.ModeNamedPipe,
		0o140600: 0o600 | os.ModeSocket,
		0o060600: 0o600 | os.ModeDevice,
		0o020600: 0o600 | os.ModeDevice | os.ModeCharDevice,
		0o000600: 0o600 | os.ModeIrregular,
	}
	for want, mode := range cases {
		if got := unixMode(mode); got != want {
			t.Errorf("%v: %o, want %o", mode, got, want)
		}
	}
}

func TestSetattrValid(t *testing.T) {
	cases := []struct {
		kernel fuse.SetattrValid
		want   uint32
	}{
		{0, fsop.SetCtimeOnly | fsop.KillPriv},
		{fuse.SetattrHandle | fuse.SetattrLockOwner, fsop.SetCtimeOnly | fsop.KillPriv},
		{fuse.SetattrMode, fsop.SetMode},
		{fuse.SetattrUid, fsop.SetUID | fsop.KillPriv},
		{fuse.SetattrGid, fsop.SetGID | fsop.KillPriv},
		{fuse.SetattrSize, fsop.SetSize},
		{fuse.SetattrSize | fuse.SetattrKillSUIDGID, fsop.SetSize | fsop.KillPriv},
		{fuse.SetattrAtime | fuse.SetattrAtimeNow, fsop.SetAtimeNow},
		{fuse.SetattrMtime | fuse.SetattrMtimeNow | fuse.SetattrAtime, fsop.SetMtimeNow | fsop.SetAtime},
	}
	for _, c := range cases {
		if got := setattrValid(c.kernel); got != c.want {
			t.Errorf("%v: %#x, want %#x", c.kernel, got, c.want)
		}
	}
}

func TestCheckXattr(t *testing.T) {
	cases := map[string]fsop.Errno{
		"user.a": fsop.OK, "trusted.a": fsop.OK, "security.capability": fsop.OK,
		"user.": fsop.EINVAL, "system.posix_acl_access": fsop.EOPNOTSUPP,
		"system.posix_acl_default": fsop.EOPNOTSUPP, "user": fsop.EOPNOTSUPP, "": fsop.EOPNOTSUPP, "other.a": fsop.EOPNOTSUPP,
	}
	for name, want := range cases {
		if got := checkXattr(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestVisibleXattrs(t *testing.T) {
	list := []byte("user.a\x00trusted.b\x00security.c\x00")
	if got := visibleXattrs(list, 0); string(got) != string(list) {
		t.Errorf("root sees %q", got)
	}
	if got := visibleXattrs(list, 1000); string(got) != "user.a\x00security.c\x00" {
		t.Errorf("a user sees %q", got)
	}
}

const procStatus = "Name:\tsh\nGroups:\t4 27 1000 \nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"

func TestProcStatus(t *testing.T) {
	if !killPending(procStatus) || killPending("SigPnd:\t0000000000004000\nShdPnd:\tx\n") {
		t.Error("pending SIGKILL is not told from others")
	}
	if !groupListed(procStatus, 27) || groupListed(procStatus, 2) || groupListed("", 0) {
		t.Error("groups are not told apart")
	}
}

func TestHandshakeTable(t *testing.T) {
	cases := []struct {
		name     string
		in       kernelInit
		features uint64
		fails    bool
	}{
		{"new kernel", kernelInit{major: 7, minor: 45, features: math.MaxUint64}, wanted, false},
		{"without resend", kernelInit{major: 7, minor: 38, features: math.MaxUint64 &^ featResend}, wanted &^ featResend, false},
		{"too old", kernelInit{major: 7, minor: 31, features: needed &^ featKillPriv2}, 0, true},
		{"another major", kernelInit{major: 8, features: math.MaxUint64}, 0, true},
	}
	for _, c := range cases {
		_, features, err := agree(c.in)
		if features != c.features || (err != nil) != c.fails {
			t.Errorf("%s: %#x %v", c.name, features, err)
		}
	}
}

// TestListing shows where a directory answer is cut, and that names of one
// cookie are only passed together.
func TestListing(t *testing.T) {
	entries := []fsop.DirEntry{
		{Ino: 11, Cookie: 100, Name: []byte("a")}, {Ino: 12, Cookie: 200, Name: []byte("b")},
		{Ino: 13, Cookie: 200, Name: []byte("c")}, {Ino: 14, Cookie: 300, Name: []byte("d")},
	}
	for max, want := range map[int][]uint64{
		31: nil, 32: {100}, 96: {100, 100, 200}, 128: {100, 100, 200, 300},
	} {
		l := &listing{max: max}
		l.addAll(entries, 0)
		if got := positions(l.buf); !reflect.DeepEqual(got, want) {
			t.Errorf("%d bytes: go on after %v, want %v", max, got, want)
		}
	}
}

func positions(b []byte) (next []uint64) {
	for len(b) > 0 {
		next = append(next, native.Uint64(b[8:]))
		b = b[direntLen(make([]byte, native.Uint32(b[16:]))):]
	}
	return next
}

func TestBackoff(t *testing.T) {
	cases := []struct {
		b     backoff
		lived time.Duration
		want  int64 // milliseconds
	}{
		{backoff{quick: 100}, longEnough, 0},
		{backoff{}, 0, 0},
		{backoff{quick: quickFree}, 0, 100},
		{backoff{quick: quickFree + 1}, 0, 200},
		{backoff{quick: 1000}, 0, 5000},
	}
	for _, c := range cases {
		b := c.b
		if got := b.after(c.lived).Milliseconds(); got != c.want {
			t.Errorf("%+v after %v: %d ms, want %d", c.b, c.lived, got, c.want)
		}
	}
	b := backoff{quick: 100}
	b.after(longEnough)
	if got := b.after(0); got != 0 {
		t.Errorf("after one that lived long enough: %v", got)
	}
}

func TestParseFusermount(t *testing.T) {
	cases := []struct {
		args  string
		want  fuserequest
		fails bool
	}{
		{"-o ro,fsname=x -- /mnt", fuserequest{dir: "/mnt", options: "ro,fsname=x"}, false},
		{"-oro /mnt", fuserequest{dir: "/mnt", options: "ro"}, false},
		{"-u /mnt", fuserequest{dir: "/mnt", unmount: true}, false},
		{"-uqz -- -x", fuserequest{dir: "-x", unmount: true, lazy: true, quiet: true}, false},
		{"-V", fuserequest{version: true}, false},
		{"-u", fuserequest{}, true},
		{"-u /a /b", fuserequest{}, true},
		{"-k /a", fuserequest{}, true},
		{"/a -o", fuserequest{}, true},
	}
	for _, c := range cases {
		got, err := parseFusermount(strings.Fields(c.args))
		if (err != nil) != c.fails || err == nil && got != c.want {
			t.Errorf("%q: %+v %v", c.args, got, err)
		}
	}
}

func TestParseFuseOptions(t *testing.T) {
	o, err := parseFuseOptions(`fsname=a\,b,subtype=s,dev,suid,ro,allow_other,max_read=4096`)
	want := fuseOptions{source: "a,b", subtype: "s", flags: unix.MS_RDONLY, data: ",allow_other,max_read=4096"}
	if err != nil || o != want {
		t.Errorf("%+v %v", o, err)
	}
	if _, err := parseFuseOptions("fd=3"); err == nil {
		t.Error("an option of the kernel that is ours to set was taken")
	}
}

func TestUnescapeMount(t *testing.T) {
	if got := unescapeMount(`/a\040b\134c`); got != `/a b\c` {
		t.Error(got)
	}
}

// TestBaton shows that one worker at a time has the baton, that no more than
// max exist, and that all of them end.
func TestBaton(t *testing.T) {
	s := make(chan struct{}, 100)
	var b *baton
	holders, most := 0, 0
	end := make(chan int, 100)
	b = &baton{max: 4, idle: 2}
	work := func() {
		wake := make(chan struct{}, 1)
		n := 0
		for ok := true; ok; ok = b.take(wake) {
			holders++
			most = max(most, holders)
			if n++; n == 200 {
				holders--
				b.close()
				continue
			}
			holders--
			b.pass()
			select {
			case s <- struct{}{}:
			default:
			}
		}
		end <- n
	}
	workers := 0
	b.spawn = func() { workers++; go work() }
	b.start()
	total := <-end
	for range workers - 1 {
		total += <-end
	}
	if most != 1 || b.workers != 0 || workers < 2 {
		t.Errorf("%d held the baton at once, %d workers are left of %d", most, b.workers, workers)
	}
}
