package posix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// C is what a case works with: its directory on both sides, assertions, and
// clean-up. Its methods may be called from several goroutines, except that
// Fatalf and Skipf end only the goroutine that Go or As gave, or the case.
type C struct {
	Env  Env
	name string
	dir  string // the case's directory through Env.Dir
	peer string // the same through Env.Peer

	mu struct {
		sync.Mutex
		failed   bool
		skipped  bool
		log      []string
		cleanups []func()
		agents   int
	}
}

// stop is the panic value that ends a case early.
type stop struct{}

// P is the path of name in the case's directory on the first side. It is not
// cleaned: "a/." stays "a/.".
func (c *C) P(name string) string { return c.dir + "/" + name }

// Q is the path of name on the second side.
func (c *C) Q(name string) string { return c.peer + "/" + name }

// Sides lists the distinct sides of the case, as functions from name to path.
func (c *C) Sides() []func(string) string { return []func(string) string{c.P, c.Q} }

// Logf adds a line that is shown if the case fails or tests run verbosely.
func (c *C) Logf(format string, args ...any) { c.record(false, fmt.Sprintf(format, args...)) }

// Errorf fails the case and goes on.
func (c *C) Errorf(format string, args ...any) {
	c.record(true, where()+": "+fmt.Sprintf(format, args...))
}

// Fatalf fails the case and ends it.
func (c *C) Fatalf(format string, args ...any) {
	c.record(true, where()+": "+fmt.Sprintf(format, args...))
	panic(stop{})
}

// Skipf ends the case as skipped; under CI=true it fails instead.
func (c *C) Skipf(format string, args ...any) {
	c.record(os.Getenv("CI") == "true", "skipped: "+fmt.Sprintf(format, args...))
	c.mu.Lock()
	c.mu.skipped = true
	c.mu.Unlock()
	panic(stop{})
}

// Cleanup runs fn at the end of the case, last first.
func (c *C) Cleanup(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.cleanups = append(c.mu.cleanups, fn)
}

func (c *C) record(fail bool, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.failed = c.mu.failed || fail
	if len(c.mu.log) < 200 { // a storm of the same failure helps nobody
		c.mu.log = append(c.mu.log, line)
	}
}

// OK ends the case unless err is nil.
func (c *C) OK(err error, format string, args ...any) {
	if err != nil {
		c.Fatalf("%s: got %s, want success", fmt.Sprintf(format, args...), Name(err))
	}
}

// Want fails the case unless err is the errno wanted (0 is success).
func (c *C) Want(want unix.Errno, err error, format string, args ...any) {
	if Errno(err) != want {
		c.Errorf("%s: got %s, want %s", fmt.Sprintf(format, args...), Name(err), Name(want))
	}
}

// WantIn fails the case unless err is one of the errnos.
func (c *C) WantIn(err error, want []unix.Errno, format string, args ...any) {
	var names []string
	for _, w := range want {
		if Errno(err) == w {
			return
		}
		names = append(names, Name(w))
	}
	c.Errorf("%s: got %s, want %s", fmt.Sprintf(format, args...), Name(err), strings.Join(names, " or "))
}

// Eq fails the case unless got equals want.
func Eq[T comparable](c *C, got, want T, format string, args ...any) {
	if got != want {
		c.Errorf("%s: got %v, want %v", fmt.Sprintf(format, args...), clip(got), clip(want))
	}
}

func clip(v any) string {
	s := fmt.Sprintf("%#v", v)
	if len(s) > 300 {
		s = s[:300] + fmt.Sprintf("… (%d characters)", len(s))
	}
	return s
}

// Go runs the functions at once, each in a goroutine, and waits for all of them.
// They begin when all goroutines run, or short ones would hardly ever meet.
func (c *C) Go(fns ...func()) {
	var wg sync.WaitGroup
	var ready atomic.Int32
	for _, fn := range fns {
		wg.Go(func() {
			for ready.Add(1); int(ready.Load()) < len(fns); {
				runtime.Gosched()
			}
			c.guard(fn)
		})
	}
	wg.Wait()
}

// guard runs fn; a panic other than stop becomes a failure with its stack.
func (c *C) guard(fn func()) {
	defer func() {
		switch p := recover().(type) {
		case nil, stop:
		default:
			buf := make([]byte, 16<<10)
			c.record(true, fmt.Sprintf("panic: %v\n%s", p, buf[:runtime.Stack(buf, false)]))
		}
	}()
	fn()
}

// Errno takes the errno out of an error; nil is 0, and an error without one is EIO.
func Errno(err error) unix.Errno {
	if err == nil {
		return 0
	}
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return unix.EIO
}

// Name gives an error the name of its errno, "success" for nil and 0.
func Name(err error) string {
	if err == nil {
		return "success"
	}
	var e unix.Errno
	if !errors.As(err, &e) {
		return err.Error()
	}
	if e == 0 {
		return "success"
	}
	if e == unix.EOPNOTSUPP { // ErrnoName prefers its other name
		return "EOPNOTSUPP"
	}
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return fmt.Sprintf("errno %d", int(e))
}

// where names the line of the case that called an assertion: the first frame
// outside this file.
func where() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		base := filepath.Base(f.File)
		if base != "c.go" && base != "script.go" {
			return fmt.Sprintf("%s:%d", base, f.Line)
		}
		if !more {
			return "?"
		}
	}
}
