package posix

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Run runs the whole suite below env.Dir, one subtest a case, cases of a group
// in parallel (go test -parallel). It returns when all of them have ended.
func Run(t *testing.T, env Env) {
	t.Helper()
	RunGroups(t, env, Suite)
}

// RunGroups is Run for some of the groups.
func RunGroups(t *testing.T, env Env, groups []Group) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip(errNotRoot)
	}
	p, err := newPool(env)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	t.Logf("POSIX_SEED=%d POSIX_OPS=%d", p.env.Seed, p.env.Ops)
	for _, g := range groups {
		t.Run(g.Name, func(t *testing.T) {
			for _, cs := range g.Cases {
				t.Run(cs.Name, func(t *testing.T) {
					t.Parallel()
					p.run(t, g.Name+"/"+cs.Name, cs)
				})
			}
		})
	}
}

func (e Env) withDefaults() Env {
	if e.Peer == "" {
		e.Peer = e.Dir
	}
	if e.Seed == 0 {
		e.Seed = seed(os.Getenv("POSIX_SEED"))
	}
	if e.Ops == 0 {
		e.Ops = int(number(os.Getenv("POSIX_OPS"), 1500))
	}
	if e.BigDir == 0 {
		e.BigDir = int(number(os.Getenv("POSIX_BIGDIR"), 10_000))
	}
	if e.Deadline == 0 {
		e.Deadline = 60 * time.Second
	}
	return e
}

// seed reads $POSIX_SEED. Without one a run repeats the run before it, so that
// a change is judged by what it changes; "clock" looks for something new.
func seed(s string) int64 {
	if s == "clock" {
		return time.Now().UnixNano()
	}
	return number(s, 1)
}

func number(s string, def int64) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return def
}

// reachable checks that other users can traverse every directory above dir.
func reachable(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("posix: %q is not an absolute path", dir)
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		fi, err := os.Stat(d)
		if err != nil {
			return fmt.Errorf("posix: %w", err)
		}
		if fi.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("posix: other users cannot traverse %s (mode %v)", d, fi.Mode())
		}
	}
	return nil
}

// pool holds child processes that wait for a case.
type pool struct {
	env Env
	mu  struct {
		sync.Mutex
		idle []*runner
	}
}

var errNotRoot = errors.New("the suite needs root: it acts as several users")

// newPool checks that the suite can run; it starts nothing.
func newPool(env Env) (*pool, error) {
	if os.Geteuid() != 0 {
		return nil, errNotRoot
	}
	env = env.withDefaults()
	for _, dir := range []string{env.Dir, env.Peer} {
		if err := reachable(dir); err != nil {
			return nil, err
		}
	}
	return &pool{env: env}, nil
}

// missing says which of the case's needs the filesystem is known not to meet.
func (p *pool) missing(cs Case) (reason string, missing bool) {
	for _, need := range cs.Needs {
		if reason, ok := p.env.Caps[need]; ok {
			return fmt.Sprintf("%s: %s", need, reason), true
		}
	}
	return "", false
}

func (p *pool) run(t *testing.T, name string, cs Case) {
	if reason, missing := p.missing(cs); missing {
		t.Skip(reason)
	}
	r, err := p.get()
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.do(r, name, cs)
	if err != nil {
		t.Fatalf("case %q: %v", name, err)
	}
	for _, line := range res.Log {
		t.Log(line)
	}
	if res.Failed {
		t.Fail()
	} else if res.Skipped {
		t.SkipNow()
	}
}

// do runs one case on r and takes r back. An error means that the case has no
// result, because it ended its process or outlived its deadline.
func (p *pool) do(r *runner, name string, cs Case) (result, error) {
	res, err := r.do(name, p.env.deadline(cs))
	if err == nil {
		p.put(r)
	}
	return res, err
}

func (p *pool) get() (*runner, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.mu.idle); n > 0 {
		r := p.mu.idle[n-1]
		p.mu.idle = p.mu.idle[:n-1]
		return r, nil
	}
	return startRunner(p.env)
}

func (p *pool) put(r *runner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.idle = append(p.mu.idle, r)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.mu.idle {
		r.end()
	}
	p.mu.idle = nil
}

// runner is one child process and the lines spoken with it.
type runner struct {
	*child
	results chan result
}

type result struct {
	Failed, Skipped bool
	Log             []string
}

func startRunner(env Env) (*runner, error) {
	conf, err := json.Marshal(env)
	if err != nil {
		return nil, fmt.Errorf("encode environment: %w", err)
	}
	ch, err := startChild("runner", string(conf))
	if err != nil {
		return nil, err
	}
	r := &runner{child: ch, results: make(chan result)}
	go func() {
		defer close(r.results)
		for dec := json.NewDecoder(ch.out); ; {
			var res result
			if dec.Decode(&res) != nil {
				return
			}
			r.results <- res
		}
	}()
	return r, nil
}

// do runs one case. After an error the runner is gone.
func (r *runner) do(name string, deadline time.Duration) (result, error) {
	if _, err := fmt.Fprintln(r.in, name); err != nil {
		r.end()
		return result{}, fmt.Errorf("send to the case's process: %w", err)
	}
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case res, ok := <-r.results:
		if ok {
			return res, nil
		}
		r.end()
		return result{}, fmt.Errorf("its process died:\n%s", r.stderr.tail())
	case <-timer.C:
		r.cmd.Process.Signal(syscall.SIGQUIT) // prints where every goroutine is
		r.end()
		return result{}, fmt.Errorf("not done after %v:\n%s", deadline, r.stderr.tail())
	}
}

// child is this binary, started again in a role.
type child struct {
	cmd    *exec.Cmd
	in     *os.File
	out    *bufio.Reader
	stderr *tailBuffer
	ended  chan struct{}
}

func startChild(role, conf string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	ch := &child{in: inW, out: bufio.NewReader(outR), stderr: &tailBuffer{}, ended: make(chan struct{})}
	ch.cmd = exec.Command(exe)
	ch.cmd.Dir = "/"
	ch.cmd.Env = append(os.Environ(), roleVar+"="+role, confVar+"="+conf, "GOTRACEBACK=all")
	ch.cmd.Stdin, ch.cmd.Stdout, ch.cmd.Stderr = inR, outW, ch.stderr
	err = ch.cmd.Start()
	inR.Close()
	outW.Close()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	go func() {
		ch.cmd.Wait()
		close(ch.ended)
	}()
	return ch, nil
}

// end closes the child's input, which ends it, and kills it if that is not
// enough. A child that the kernel holds is left behind.
func (ch *child) end() {
	ch.in.Close()
	select {
	case <-ch.ended:
		return
	case <-time.After(3 * time.Second):
	}
	ch.cmd.Process.Kill()
	select {
	case <-ch.ended:
	case <-time.After(2 * time.Second):
		ch.stderr.Write([]byte("\nthe process does not end after SIGKILL: the kernel holds it\n"))
	}
}

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	if over := len(b.b) - 64<<10; over > 0 {
		b.b = append([]byte(nil), b.b[over:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(b.b, []byte("?"))))
}
