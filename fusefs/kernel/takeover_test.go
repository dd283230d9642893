package kernel

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bazil.org/fuse"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
)

// open opens a file by a system call that Go's runtime does not poll.
func open(t testing.TB, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// asApplication runs the test that calls it once more, in a process of its own
// that neither serves the mount nor starts who does; there it returns the
// mount. Here it returns nil when that process has ended.
func asApplication(t *testing.T) *handover {
	if dir := os.Getenv(dirVar); dir != "" {
		return &handover{dir: dir, socket: os.Getenv(socketVar)}
	}
	h := startHandover(t)
	app := role("", dirVar+"="+h.dir, socketVar+"="+h.socket)
	app.Args = append(app.Args, "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	if out, err := app.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return nil
}

// TestOpenFilesSurvive shows what an application keeps over the death of the
// serving process: open files, also without a name, positions, mappings, locks
// of all three kinds, and its place in the queue for one.
func TestOpenFilesSurvive(t *testing.T) {
	h := asApplication(t)
	if h == nil {
		return
	}
	f := filepath.Join(h.dir, "f")
	a := open(t, f, unix.O_RDWR|unix.O_CREAT)
	if _, err := unix.Write(a, []byte("before")); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(a, 0, 6, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(mapped)
	orphan := open(t, filepath.Join(h.dir, "orphan"), unix.O_RDWR|unix.O_CREAT)
	must(t, unix.Unlink(filepath.Join(h.dir, "orphan")))

	b := open(t, f, unix.O_RDWR)
	must(t, unix.Flock(a, unix.LOCK_EX))
	whole := unix.Flock_t{Type: unix.F_WRLCK, Start: 100, Len: 10}
	must(t, unix.FcntlFlock(uintptr(a), unix.F_OFD_SETLK, &whole))
	waited := make(chan error, 1)
	go func() { waited <- unix.Flock(b, unix.LOCK_EX) }()
	time.Sleep(20 * time.Millisecond) // let it queue up: either way the test holds

	h.kill(t)
	h.kill(t)

	if _, err := unix.Write(a, []byte(" after")); err != nil {
		t.Fatal(err)
	}
	copy(mapped, "mapped")
	must(t, unix.Msync(mapped, unix.MS_SYNC))
	buf := make([]byte, 20)
	if n, err := unix.Pread(b, buf, 0); err != nil || string(buf[:n]) != "mapped after" {
		t.Errorf("%q %v", buf[:n], err)
	}
	if _, err := unix.Pwrite(orphan, []byte("x"), 0); err != nil {
		t.Errorf("write to a file without a name: %v", err)
	}
	c := open(t, f, unix.O_RDWR)
	if err := unix.Flock(c, unix.LOCK_SH|unix.LOCK_NB); err != unix.EAGAIN {
		t.Errorf("flock while another holds it: %v", err)
	}
	lock := whole
	if err := unix.FcntlFlock(uintptr(c), unix.F_OFD_SETLK, &lock); err != unix.EAGAIN {
		t.Errorf("OFD lock while another holds it: %v", err)
	}
	select {
	case err := <-waited:
		t.Fatalf("the waiter went on: %v", err)
	default:
	}
	must(t, unix.Munmap(mapped))
	mapped = nil
	must(t, unix.Close(a))
	if err := <-waited; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		lock := whole
		err := unix.FcntlFlock(uintptr(c), unix.F_OFD_SETLK, &lock)
		if err == nil {
			break
		}
		if time.Now().After(deadline) { // the kernel does not wait for RELEASE
			t.Fatalf("OFD lock after its holder has closed: %v", err)
		}
	}
}

// TestDeathWithoutResend shows the end of a mount whose kernel cannot send
// requests again: the server's death is the mount's, and nobody hangs.
func TestDeathWithoutResend(t *testing.T) {
	h := startHandover(t, oldVar+"=1")
	fd := open(t, filepath.Join(h.dir, "f"), unix.O_RDWR|unix.O_CREAT)
	s := h.await(t, func(s *KeeperStatus) bool { return s.Server != 0 })
	if len(s.Mounts) != 0 {
		t.Fatalf("the keeper holds %v, so the mount would hang", s.Mounts)
	}
	must(t, syscall.Kill(s.Server, syscall.SIGKILL))
	// The next process mounts anew over the dead mount.
	h.await(t, func(n *KeeperStatus) bool { return n.Server != 0 && n.Server != s.Server })
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != unix.ENOTCONN {
		t.Errorf("fstat: %v, want ENOTCONN", err)
	}
	h.await(t, func(*KeeperStatus) bool { return unix.Stat(filepath.Join(h.dir, "f"), &st) == nil })
	must(t, unmountSoon(h.dir)) // and the dead one is left for the clean-up
}

// TestKeeperRefuses shows what others get at the keeper's socket.
func TestKeeperRefuses(t *testing.T) {
	h := startHandover(t)
	log := zaptest.NewLogger(t)
	if _, _, err := DialKeeper(context.Background(), h.socket, "", log); err == nil || !strings.Contains(err.Error(), "not the one") {
		t.Errorf("hello of a stranger: %v", err)
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.socket, Net: "unixpacket"})
	must(t, err)
	defer c.Close()
	for _, m := range []*message{{Op: opDrop, ID: "one"}, {Op: opPut, ID: "two"}, {Op: "nonsense"}} {
		must(t, sendMessage(c, m))
		r, _, err := recvMessage(c)
		if err != nil || r.Op != opRefused || r.Error == "" {
			t.Errorf("%s of a stranger: %+v %v", m.Op, r, err)
		}
	}
	if _, err := c.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := recvMessage(c); err == nil {
		t.Error("a broken message was answered")
	}
	if s := h.await(t, func(*KeeperStatus) bool { return true }); len(s.Mounts) != 1 || s.Restarts != 0 {
		t.Errorf("afterwards: %+v", s)
	}
}

func TestDetachBusyMount(t *testing.T) {
	needFuse(t)
	m, err := New(Options{ID: "busy", Dir: mountPoint(t), FSName: "busy", Log: zaptest.NewLogger(t)})
	must(t, err)
	watchdog(t, m.Dir(), time.Minute)
	s := newOneTree(t).open(t, m.Ledger())
	done := make(chan error, 1)
	go func() { done <- m.Serve(context.Background(), s) }()
	fd := open(t, filepath.Join(m.Dir(), "f"), unix.O_RDWR|unix.O_CREAT)
	if err := Unmount(m.Dir()); !errors.Is(err, ErrBusy) {
		t.Fatalf("unmount: %v, want ErrBusy", err)
	}
	must(t, Detach(m.Dir()))
	if err := <-done; err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != unix.ENOTCONN {
		t.Errorf("fstat afterwards: %v, want ENOTCONN", err)
	}
}

func TestServeEndsWithContext(t *testing.T) {
	needFuse(t)
	m, err := New(Options{ID: "ctx", Dir: mountPoint(t), FSName: "ctx", Log: zaptest.NewLogger(t)})
	must(t, err)
	watchdog(t, m.Dir(), time.Minute)
	s := newOneTree(t).open(t, m.Ledger())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Serve(ctx, s) }()
	var st unix.Statfs_t
	must(t, unix.Statfs(m.Dir(), &st))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if dev, err := mountedDevice(m.Dir()); err == nil {
		t.Errorf("still mounted as %s", dev)
	}
}

func TestMountErrors(t *testing.T) {
	needFuse(t)
	for _, dir := range []string{"relative", filepath.Join(t.TempDir(), "missing")} {
		if m, err := New(Options{ID: "x", Dir: dir, Log: zaptest.NewLogger(t)}); err == nil {
			t.Errorf("%s: mounted at %s", dir, m.Dir())
			_ = Detach(m.Dir())
		}
	}
}

// TestFusermount lets bazil mount and unmount through our fusermount3.
func TestFusermount(t *testing.T) {
	needFuse(t)
	bin := t.TempDir()
	exe, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(exe, filepath.Join(bin, "fusermount3")))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	dir := mountPoint(t)
	ended := make(chan struct{})
	conn, err := fuse.Mount(dir, fuse.FSName("a,b"), fuse.Subtype("shim"), fuse.ReadOnly())
	must(t, err)
	watchdog(t, dir, time.Minute)
	go func() {
		defer close(ended)
		for {
			req, err := conn.ReadRequest()
			if err != nil {
				return
			}
			req.RespondError(syscall.ENOSYS)
		}
	}()
	b, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	if !strings.Contains(string(b), "a,b "+dir+" fuse.shim ro,nosuid,nodev,") {
		t.Errorf("mounts:\n%s", b)
	}
	if err := fuse.Unmount(dir); err != nil {
		t.Error(err)
		_ = Detach(dir)
	}
	<-ended
	conn.Close()
	if err := fuse.Unmount(dir); err == nil {
		t.Error("what is not mounted was unmounted")
	}
}
