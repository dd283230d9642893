package mountowner

import (
	"bufio"
	"errors"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUnstageWithCopyElsewhere unstages a volume of which another mount
// namespace keeps a copy, as a container with private propagation does: that
// copy dies, and the node is done with the volume.
func TestUnstageWithCopyElsewhere(t *testing.T) {
	n := newVolume(t).node("node-1")
	must(t, n.stage(""))
	n.shOK("echo hello > %s/f", n.path("staging"))
	other := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`echo there; read go; cat "$0/f"`, n.path("staging"))
	other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := other.StdinPipe()
	must(t, err)
	out, err := other.StdoutPipe()
	must(t, err)
	must(t, other.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "there\n" {
		t.Fatalf("the other namespace says %q: %v", line, err)
	}
	begin := time.Now()
	must(t, n.unstage())
	if took := time.Since(begin); took < copiesWithin {
		t.Errorf("after %s: the copy was not there", took)
	}
	must(t, n.stage(""))
	if got := n.shOK("cat %s/f", n.path("staging")); got != "hello" {
		t.Errorf("staged again, the file has %q", got)
	}
	must(t, n.unstage())
	var fs unix.Statfs_t
	if err := unix.Statfs("/proc/"+strconv.Itoa(other.Process.Pid)+"/root"+n.path("staging"), &fs); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("the copy: %v, want ENOTCONN", err)
	}
	must(t, in.Close())
	if err := other.Wait(); err == nil {
		t.Error("a file was read from the copy")
	}
}
