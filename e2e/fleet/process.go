package fleet

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
)

// How long a process may take to be ready, and to end.
const (
	startLimit = 30 * time.Second
	endLimit   = 20 * time.Second
	// unmountLimit is how long an unmount may take before it is forced.
	unmountLimit = 10 * time.Second
)

// process is one started part of the volume.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	log   string        // file with what it said
	ended chan struct{} // closed when it has been waited for
	err   error         // how it ended; valid after ended
}

// start starts a part, and returns when it says that it is ready. One that ends
// before is an error.
func (f *Fleet) start(name string, args []string) (*process, error) {
	p := &process{name: name, cmd: f.Command(args...), log: filepath.Join(f.Dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Env, p.cmd.Stderr = boot.ChildEnvironment(), log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.o.Start(name, p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ready := make(chan struct{}, 1)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			if strings.HasPrefix(s.Text(), "ready") {
				select {
				case ready <- struct{}{}:
				default: // a mount owner says it again when it has another server
				}
			}
		}
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.ended:
		return nil, p.said()
	case <-time.After(startLimit):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it says where it waits
		select {
		case <-p.ended:
		case <-time.After(time.Second):
			_ = p.cmd.Process.Kill()
		}
		return nil, fmt.Errorf("%s is not ready after %v\n%s", name, startLimit, p.tail())
	}
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// said is how it ended, with the end of what it said.
func (p *process) said() error {
	how := "runs"
	if p.hasEnded() {
		how = fmt.Sprint("ended: ", p.cmd.ProcessState)
	}
	return fmt.Errorf("%s %s\n%s", p.name, how, p.tail())
}

// tailBytes is how much of what a process said is shown.
const tailBytes = 6 << 10

// tail is the end of what it said, or where it began to crash.
func (p *process) tail() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	for _, crash := range []string{"\nruntime: goroutine stack", "\npanic: ", "\nfatal error: ", "\nSIG"} {
		if i := bytes.LastIndex(text, []byte(crash)); i >= 0 {
			return text[i+1 : min(len(text), i+tailBytes)]
		}
	}
	return bytes.TrimSpace(text[max(0, len(text)-tailBytes):])
}

// kill kills it and waits until it is gone.
func (p *process) kill() error {
	if p.hasEnded() {
		return p.said()
	}
	err := p.cmd.Process.Kill()
	<-p.ended
	p.stdin.Close()
	return err
}

// end asks it to end, and makes it end when that takes too long.
func (p *process) end(t testing.TB) {
	if p.hasEnded() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.stdin.Close()
	select {
	case <-p.ended:
		if p.err != nil {
			t.Error(p.said())
		}
	case <-time.After(endLimit):
		t.Errorf("%s does not end", p.name)
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// output is a command's, run as somebody.
func (f *Fleet) output(who string, cmd *exec.Cmd) ([]byte, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := f.o.Start(who, cmd); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return out.Bytes(), fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), nil
}
