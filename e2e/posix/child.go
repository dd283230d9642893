package posix

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The environment of a child process.
const (
	roleVar = "TAK_POSIX_ROLE"
	confVar = "TAK_POSIX_CONF"
)

// init turns this process into a child when it was started as one, before
// anything else of the test binary runs.
func init() {
	role, conf := os.Getenv(roleVar), os.Getenv(confVar)
	os.Unsetenv(roleVar)
	os.Unsetenv(confVar)
	switch role {
	case "runner":
		runnerMain(conf)
	case "agent":
		agentMain()
	}
}

// runnerMain runs the cases whose names it reads, until its input ends.
func runnerMain(conf string) {
	var env Env
	if err := json.Unmarshal([]byte(conf), &env); err != nil {
		fmt.Fprintln(os.Stderr, "decode environment:", err)
		os.Exit(2)
	}
	unix.Umask(0)
	// A case's goroutines wait in system calls, and each keeps a processor of Go's
	// from the others until the scheduler notices. Races need them all at once.
	runtime.GOMAXPROCS(max(8, runtime.NumCPU()))
	names := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			names <- in.Text()
		}
		os.Exit(0) // also in the middle of a case: nobody waits for it any more
	}()
	out := json.NewEncoder(os.Stdout)
	for name := range names {
		if err := out.Encode(runCase(env, name)); err != nil {
			os.Exit(2)
		}
	}
}

func runCase(env Env, name string) result {
	c := &C{Env: env, name: name}
	cs, ok := lookup(name)
	if !ok {
		return result{Failed: true, Log: []string{"no such case: " + name}}
	}
	base := fmt.Sprintf("%s-%d", strings.Map(plain, name), os.Getpid())
	c.dir, c.peer = filepath.Join(env.Dir, base), filepath.Join(env.Peer, base)
	if err := unix.Mkdir(c.dir, 0o755); err != nil {
		return result{Failed: true, Log: []string{"mkdir of the case's directory: " + Name(err)}}
	}
	done := make(chan struct{})
	go func() { // a goroutine of its own: faults on mapped files become panics of it alone
		defer close(done)
		debug.SetPanicOnFault(true)
		c.guard(func() { cs.Fn(c) })
		for i := len(c.mu.cleanups) - 1; i >= 0; i-- {
			c.guard(c.mu.cleanups[i])
		}
	}()
	<-done
	if err := os.RemoveAll(c.dir); err != nil {
		c.record(true, "remove the case's directory: "+err.Error())
	}
	return result{Failed: c.mu.failed, Skipped: c.mu.skipped, Log: c.mu.log}
}

func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

// eventually polls cond until it holds or the time is over.
func eventually(d time.Duration, cond func() bool) bool {
	for end := time.Now().Add(d); ; {
		if cond() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
}
