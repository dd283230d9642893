package posix

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Cred is who performs a step.
type Cred struct {
	UID, GID int
	Groups   []int
	Umask    int
}

// As runs fn on a thread of its own as another user, with no capability unless
// the user is 0. The thread is never given back, so nothing that it became leaks.
func (c *C) As(cr Cred, fn func()) {
	done := make(chan any)
	go func() {
		runtime.LockOSThread()
		defer func() { done <- recover() }()
		if err := become(cr); err != nil {
			c.Fatalf("%v", err)
		}
		fn()
	}()
	if p := <-done; p != nil {
		panic(p)
	}
}

// As1 is As for one call whose error matters.
func (c *C) As1(cr Cred, fn func() error) (err error) {
	c.As(cr, func() { err = fn() })
	return err
}

// become changes the calling thread alone: the raw calls know nothing of the
// other threads of the process.
func become(cr Cred) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare umask and working directory: %w", err)
	}
	unix.Umask(cr.Umask)
	groups := make([]uint32, len(cr.Groups)+1)
	for i, g := range cr.Groups {
		groups[i] = uint32(g)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(cr.Groups)), uintptr(unsafe.Pointer(&groups[0])), 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	g, u := uintptr(cr.GID), uintptr(cr.UID)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, g, g, g); e != 0 {
		return fmt.Errorf("setresgid: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, u, u, u); e != 0 {
		return fmt.Errorf("setresuid: %w", e)
	}
	return nil
}
