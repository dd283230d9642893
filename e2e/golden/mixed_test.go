package golden

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/e2e/volumetest"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/worker"
)

var before = flag.String("golden.before", "", "the `PROGRAM` of the release before, for a volume whose workers are of both; empty: the test is skipped")

// mixed is a volume whose workers are processes of one release or another.
type mixed struct {
	*volumetest.Volume
	t        *testing.T
	client   *volumetest.Client
	operator *tls.Config
	running  map[int]*process
	wrote    map[string]string
}

type process struct {
	program string
	cmd     *exec.Cmd
	stdin   io.Closer
	said    *strings.Builder
}

// String tells which release it is of.
func (p *process) String() string {
	if p.program == *before {
		return "before"
	}
	return "now"
}

// TestMixedReleases takes a volume from one release to the next, a worker at a time, while
// it is used: each release leads and follows the other, and sends it checkpoints with
// holes and without.
func TestMixedReleases(t *testing.T) {
	if *before == "" {
		t.Skip("it needs the program of the release before: give -golden.before")
	}
	now := devtest.Binary(t)
	v := volumetest.New(t, volumetest.Options{})
	creds, err := pki.NewCredentials(pki.OpenDir(pki.OSFiles(v.Trust("operator")), time.Now).Load(pki.RoleOperator), time.Now, zap.NewNop())
	must(t, err)
	m := &mixed{Volume: v, t: t, operator: creds.ClientTLS("127.0.0.1"), running: map[int]*process{}, wrote: map[string]string{}}
	t.Cleanup(func() {
		for n := range m.running {
			m.kill(n)
		}
	})
	for n := 1; n <= 3; n++ {
		m.start(n, *before)
	}
	m.client = v.Client(20 * time.Second)
	m.use("before")
	for n := 1; n <= 3; n++ {
		m.kill(n)
		m.use(fmt.Sprint("without-", n))
		m.start(n, now)
		m.use(fmt.Sprint("upgraded-", n))
		for range 2 { // whoever leads then
			lead := m.coordinator()
			t.Logf("replica %d of the release %s leads", lead, m.running[lead])
			again := m.running[lead].program
			m.kill(lead)
			m.use(fmt.Sprint("led-", n))
			m.start(lead, again)
		}
		for other := 1; other <= 3; other++ {
			m.rebuild(other)
		}
	}
	m.use("after")
	m.equal()
}

// start runs a replica's worker, and waits until it serves.
func (m *mixed) start(n int, program string) {
	m.t.Helper()
	cfg := m.Config(n)
	_, err := os.Stat(m.ReplicaDir(n))
	cfg.Bootstrap = errors.Is(err, os.ErrNotExist)
	p := &process{program: program, cmd: exec.Command(program, cfg.Args()...), said: new(strings.Builder)}
	p.cmd.Stderr = p.said
	p.stdin, err = p.cmd.StdinPipe()
	must(m.t, err)
	must(m.t, p.cmd.Start())
	m.running[n] = p
	if len(m.running) > 1 { // a quorum, unless these are the first
		m.serves(n)
	}
}

func (m *mixed) kill(n int) {
	p := m.running[n]
	delete(m.running, n)
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.stdin.Close()
}

func (m *mixed) ask(n int) (*worker.Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return worker.Ask(ctx, m.Members[n-1].Addr, m.operator)
}

// coordinator waits for one, which all that run follow.
func (m *mixed) coordinator() (lead int) {
	m.t.Helper()
	m.Wait("a coordinator", func() error {
		lead = 0
		for n := range m.running {
			if r, err := m.ask(n); err == nil && r.Role == "coordinator" {
				lead = n
			}
		}
		if lead == 0 {
			return errors.New("none")
		}
		return nil
	})
	return lead
}

// serves waits until a replica has everything that the coordinator has.
func (m *mixed) serves(n int) {
	m.t.Helper()
	lead, err := m.ask(m.coordinator())
	must(m.t, err)
	m.Wait(fmt.Sprintf("replica %d of the release %s to serve", n, m.running[n]), func() error {
		r, err := m.ask(n)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s", err, m.running[n].said)
		case !r.Serving, r.Fenced, r.Stateless, r.Applied < lead.Commit:
			return fmt.Errorf("applied %d of %d, serving %v, fenced %v, stateless %v", r.Applied, lead.Commit, r.Serving, r.Fenced, r.Stateless)
		}
		return nil
	})
}

// use writes some files, one with a hole, and reads all that were ever written.
func (m *mixed) use(what string) {
	m.t.Helper()
	for i := range 8 {
		name, text := fmt.Sprintf("%s-%d", what, i), strings.Repeat(what, 1+i*i*40)
		m.client.Write(name, []byte(text))
		m.wrote[name] = text
	}
	sparse := m.client.File(what + "-sparse")
	m.client.WriteAt(sparse, 0, []byte(what))
	m.client.WriteAt(sparse, 8<<20, []byte(what))
	for name, want := range m.wrote {
		got, err := m.client.Read(name)
		if err != nil || string(got) != want {
			m.t.Fatalf("%s: %d bytes, want %d: %v", name, len(got), len(want), err)
		}
	}
}

// rebuild has a replica receive a checkpoint: its state goes, and what it lacks is in
// nobody's journal any more.
func (m *mixed) rebuild(n int) {
	m.t.Helper()
	program := m.running[n].program
	last := uint64(0)
	if r, err := m.ask(n); err == nil {
		last = r.Journal.Last
	}
	m.kill(n)
	must(m.t, os.RemoveAll(filepath.Join(m.ReplicaDir(n), "tree")))
	block := make([]byte, 1<<20)
	filler := m.client.File("filler")
	for i := 0; ; i++ {
		m.client.WriteAt(filler, uint64(i%8)<<20, block)
		if r, err := m.ask(m.coordinator()); err == nil && r.Journal.First > last+1 {
			break
		}
		if i == 400 {
			m.t.Fatal("the journal was not trimmed")
		}
	}
	m.start(n, program)
	m.t.Logf("replica %d of the release %s has received a checkpoint from the release %s", n, m.running[n], m.running[m.coordinator()])
	m.use(fmt.Sprint("rebuilt-", n))
}

// equal ends all workers and compares what they have.
func (m *mixed) equal() {
	m.t.Helper()
	for n := 1; n <= 3; n++ {
		m.serves(n)
	}
	for n := 1; n <= 3; n++ {
		p := m.running[n]
		delete(m.running, n)
		p.stdin.Close() // it ends then
		must(m.t, p.cmd.Wait())
	}
	first := ""
	for n := 1; n <= 3; n++ {
		out := filepath.Join(m.t.TempDir(), "export")
		if text, err := exec.Command(devtest.Binary(m.t), "ctl", "export", m.ReplicaDir(n), out).CombinedOutput(); err != nil {
			m.t.Fatalf("export: %v\n%s", err, text)
		}
		if first == "" {
			first = out
			continue
		}
		if diff, err := exec.Command("diff", "-r", "--no-dereference", first, out).CombinedOutput(); err != nil {
			m.t.Errorf("replicas 1 and %d differ: %.600s", n, diff)
		}
	}
}
