package boot

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// timerSlack is by how much the kernel may put off what a thread waits for, so that
// one interrupt serves many; nanoseconds. Go's monitor thread wakes every 20 us,
// which the kernel makes 70, as long as anything waits for a disk: in processes that
// do little else that was a fifth of their processor time.
const timerSlack = 300_000

// Tune prepares a process of a role that moves data. An error says what could not be
// had; the process works without it. Nothing may have been opened yet.
func Tune() error {
	err := relax()
	tuneCollector()
	return err
}

// relax sets the timer slack of all threads. It starts the program anew once, in the
// same process: the monitor thread is there before any of our code, and what it has
// it has from before.
func relax() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read the timer slack: %w", err)
	}
	if now < timerSlack {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0); err != nil {
			return fmt.Errorf("set the timer slack: %w", err)
		}
		path, err := os.Executable() // not /proc/self/exe: people look for the program's name
		if err != nil {
			return fmt.Errorf("find the program: %w", err)
		}
		return fmt.Errorf("start anew: %w", syscall.Exec(path, os.Args, os.Environ()))
	}
	return nil
}
