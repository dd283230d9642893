package kernel

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSucceedUnderLoad replaces the keeper, with its serving process, by another
// one, again and again: no application sees an error, and everything happens once
// (CONTRACT D17).
func TestSucceedUnderLoad(t *testing.T) {
	h := startHandover(t)
	load := role("load", dirVar+"="+h.dir)
	load.Stderr = os.Stderr
	out := new(strings.Builder)
	load.Stdout = out
	must(t, load.Start())
	for i := range 6 {
		time.Sleep(time.Duration(20+80*(i%4)) * time.Millisecond) // somewhere in the load
		h.succeed(t)
		if i%2 == 1 {
			h.kill(t) // the new keeper does what the old one did
		}
	}
	if out, err := exec.Command("touch", filepath.Join(h.dir, "stop")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := load.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Log(out)
}

// TestSuccessorThatVanishes takes a keeper's mounts and does not confirm it: the
// keeper goes on by itself.
func TestSuccessorThatVanishes(t *testing.T) {
	h := startHandover(t)
	before := h.await(t, func(s *KeeperStatus) bool { return s.Server != 0 })
	conn := dialKeeper(t, h.socket)
	must(t, sendMessage(conn, &message{Op: opSucceed}))
	for {
		m, files, err := recvMessage(conn)
		must(t, err)
		closeAll(files)
		if m.Op == opEnd {
			break
		}
	}
	conn.Close()
	h.await(t, func(s *KeeperStatus) bool { return s.PID == before.PID && s.Server != 0 && s.Server != before.Server })
	if out, err := exec.Command("touch", filepath.Join(h.dir, "f")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func dialKeeper(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	must(t, err)
	return conn
}

func TestSucceedNobody(t *testing.T) {
	if _, err := Succeed(context.Background(), filepath.Join(t.TempDir(), "none")); !NoKeeper(err) {
		t.Errorf("no keeper: %v", err)
	}
}
