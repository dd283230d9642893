package posix

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An agent is another process that makes system calls on request, one at a
// time: what locks, process death and signals need.

type request struct {
	Op         string // open close dup flock lock write read pause
	Path       string
	Fd, Flags  int
	Cmd        int // fcntl command
	Type       int16
	Start, Len int64
	Whence     int16
	Data       string
}

type reply struct {
	Errno int
	N     int
	Data  string
	Lock  unix.Flock_t
}

// agentMain serves requests on the main thread, so that a signal sent to the
// process's own thread id interrupts exactly the call that is blocked.
func agentMain() {
	interruptible(unix.SIGUSR1)
	requests := make(chan request)
	go func() {
		dec := json.NewDecoder(os.Stdin)
		for {
			var r request
			if dec.Decode(&r) != nil {
				os.Exit(0)
			}
			requests <- r
		}
	}()
	enc := json.NewEncoder(os.Stdout)
	for r := range requests {
		enc.Encode(serveAgent(r))
	}
}

func serveAgent(r request) reply {
	var rep reply
	var err error
	switch r.Op {
	case "open":
		rep.N, err = unix.Open(r.Path, r.Flags, 0o644)
	case "close":
		err = unix.Close(r.Fd)
	case "dup":
		rep.N, err = unix.Dup(r.Fd)
	case "flock":
		err = unix.Flock(r.Fd, r.Flags)
	case "lock":
		lk := unix.Flock_t{Type: r.Type, Whence: r.Whence, Start: r.Start, Len: r.Len}
		err = unix.FcntlFlock(uintptr(r.Fd), r.Cmd, &lk)
		rep.Lock = lk
	case "write":
		rep.N, err = unix.Write(r.Fd, []byte(r.Data))
	case "read":
		buf := make([]byte, 64<<10)
		rep.N, err = unix.Read(r.Fd, buf)
		rep.Data = string(buf[:max(rep.N, 0)])
	default:
		err = unix.ENOSYS
	}
	rep.Errno = int(Errno(err))
	return rep
}

// interruptible makes a signal that Go handles end blocking calls with EINTR:
// the runtime's own handler stays, without SA_RESTART.
func interruptible(sig unix.Signal) {
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, sig)
	var act [4]uint64 // handler, flags, restorer, mask of the kernel's sigaction
	size := uintptr(8)
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&act)), size, 0, 0); e != 0 {
		panic(e)
	}
	act[1] &^= 0x10000000 // SA_RESTART
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, size, 0, 0); e != 0 {
		panic(e)
	}
}

// Agent is the other end of an agent process.
type Agent struct {
	c       *C
	ch      *child
	enc     *json.Encoder
	replies chan reply
}

// Agent starts another process; the case's end ends it.
func (c *C) Agent() *Agent {
	ch, err := startChild("agent", "")
	c.OK(err, "start another process")
	a := &Agent{c: c, ch: ch, enc: json.NewEncoder(ch.in), replies: make(chan reply, 1)}
	c.Cleanup(ch.end)
	go func() {
		defer close(a.replies)
		for dec := json.NewDecoder(ch.out); ; {
			var r reply
			if dec.Decode(&r) != nil {
				return
			}
			a.replies <- r
		}
	}()
	return a
}

func (a *Agent) send(r request) {
	a.c.OK(a.enc.Encode(r), "send to the other process")
}

func (a *Agent) receive(within time.Duration) (reply, error) {
	select {
	case r, ok := <-a.replies:
		if !ok {
			a.c.Fatalf("the other process died:\n%s", a.ch.stderr.tail())
		}
		if r.Errno != 0 {
			return r, unix.Errno(r.Errno)
		}
		return r, nil
	case <-time.After(within):
		a.c.Fatalf("no answer of the other process within %v", within)
		return reply{}, nil
	}
}

func (a *Agent) call(r request) (reply, error) {
	a.send(r)
	return a.receive(30 * time.Second)
}

// Open opens a path in the other process.
func (a *Agent) Open(path string, flags int) int {
	r, err := a.call(request{Op: "open", Path: path, Flags: flags | unix.O_CLOEXEC})
	a.c.OK(err, "open %s in another process", path)
	return r.N
}

// Close closes a descriptor of the other process.
func (a *Agent) Close(fd int) {
	_, err := a.call(request{Op: "close", Fd: fd})
	a.c.OK(err, "close in another process")
}

// Dup duplicates a descriptor of the other process.
func (a *Agent) Dup(fd int) int {
	r, err := a.call(request{Op: "dup", Fd: fd})
	a.c.OK(err, "dup in another process")
	return r.N
}

// Flock calls flock(2).
func (a *Agent) Flock(fd, how int) error {
	_, err := a.call(request{Op: "flock", Fd: fd, Flags: how})
	return err
}

// Lock calls fcntl(2) with a lock command.
func (a *Agent) Lock(fd, cmd int, typ int16, start, length int64) error {
	_, err := a.call(lockRequest(fd, cmd, typ, start, length))
	return err
}

// GetLock asks which lock would be in the way.
func (a *Agent) GetLock(fd, cmd int, typ int16, start, length int64) unix.Flock_t {
	r, err := a.call(lockRequest(fd, cmd, typ, start, length))
	a.c.OK(err, "ask for a lock")
	return r.Lock
}

func lockRequest(fd, cmd int, typ int16, start, length int64) request {
	return request{Op: "lock", Fd: fd, Cmd: cmd, Type: typ, Start: start, Len: length}
}

// Begin sends a request that is expected to block, and returns once the other
// process is inside the system call and stays there.
func (a *Agent) Begin(r request) {
	a.send(r)
	nr := map[string]int{"flock": unix.SYS_FLOCK, "lock": unix.SYS_FCNTL}[r.Op]
	pid := a.ch.cmd.Process.Pid
	inside := func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, pid))
		return strings.HasPrefix(string(b), fmt.Sprintf("%d ", nr))
	}
	if !eventually(10*time.Second, inside) {
		a.c.Fatalf("%s did not block in another process", r.Op)
	}
	time.Sleep(30 * time.Millisecond)
	select {
	case rep := <-a.replies:
		a.c.Fatalf("%s was answered (%s) where it must block", r.Op, Name(unix.Errno(rep.Errno)))
	default:
	}
}

// BeginLock is Begin for a blocking fcntl lock, BeginFlock for flock.
func (a *Agent) BeginLock(fd, cmd int, typ int16, start, length int64) {
	a.Begin(lockRequest(fd, cmd, typ, start, length))
}

func (a *Agent) BeginFlock(fd, how int) { a.Begin(request{Op: "flock", Fd: fd, Flags: how}) }

// Finish waits for the answer to what Begin sent.
func (a *Agent) Finish() error {
	_, err := a.receive(20 * time.Second)
	return err
}

// Interrupt sends the signal that ends a blocking call with EINTR.
func (a *Agent) Interrupt() {
	pid := a.ch.cmd.Process.Pid
	a.c.OK(unix.Tgkill(pid, pid, unix.SIGUSR1), "interrupt")
}

// Kill kills the process and waits until it is gone.
func (a *Agent) Kill() {
	a.ch.cmd.Process.Signal(syscall.SIGKILL)
	select {
	case <-a.ch.ended:
	case <-time.After(10 * time.Second):
		a.c.Fatalf("the other process does not die")
	}
}

// PID of the other process.
func (a *Agent) PID() int { return a.ch.cmd.Process.Pid }
