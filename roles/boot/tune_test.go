package boot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTune has a process tune itself: it is the same one afterwards, with the same
// arguments and its own name, its threads are in no hurry, and it has done so once.
func TestTune(t *testing.T) {
	if os.Getenv("BOOT_TUNE") != "" {
		if err := Tune(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		comm, _ := os.ReadFile("/proc/self/comm")
		fmt.Println("tuned", os.Getpid(), slack, err, os.Args[len(os.Args)-1], string(comm))
		os.Exit(0)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestTune$", "last")
	cmd.Env = append(os.Environ(), "BOOT_TUNE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := fmt.Sprintf("tuned %d %d <nil> last %.15s", cmd.Process.Pid, timerSlack, filepath.Base(exe)); strings.TrimSpace(string(out)) != want {
		t.Errorf("%s, want %s", out, want)
	}
}
