package mountowner

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSocketIsLockedByBoth wants the lock to last as long as the keeper or the
// process that it started.
func TestSocketIsLockedByBoth(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "owner.sock")
	keeper, err := lockSocket(context.Background(), socket, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("cat")
	server.ExtraFiles = []*os.File{keeper}
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	keeper.Close()
	_, err = lockSocket(context.Background(), socket, 50*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "another mount owner") {
		t.Errorf("the socket is free while the server lives: %v", err)
	}
	in.Close()
	if err := server.Wait(); err != nil {
		t.Fatal(err)
	}
	next, err := lockSocket(context.Background(), socket, time.Second)
	if err != nil {
		t.Fatalf("the socket is not free after the server: %v", err)
	}
	next.Close()
}
