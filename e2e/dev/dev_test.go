package dev

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/roles/boot/metric"
	"tak-os.org/tak-replicated/roles/ctl"
	"tak-os.org/tak-replicated/roles/reference"
	"tak-os.org/tak-replicated/roles/worker"
)

// runLimit is how long a command that ends by itself may take.
const runLimit = 30 * time.Second

// run runs the program and returns its exit code and what it wrote.
func run(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, devtest.Binary(t), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = runLimit
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, text string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != text {
		t.Errorf("%s holds %q, %v; want %q", path, b, err, text)
	}
}

func wantNotMounted(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), " "+path+" ") {
		t.Errorf("%s is still mounted", path)
	}
}

// TestReopen ends dev and starts it again, in one process and in several, with
// every number of replicas (G1).
func TestReopen(t *testing.T) {
	for replicas := 1; replicas <= 4; replicas++ {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dev")
			d := devtest.Start(t, devtest.Options{Dir: dir, Replicas: replicas, Mounts: 2, Processes: replicas == 3})
			write(t, filepath.Join(d.Mounts[0], "f"), "kept")
			wantFile(t, filepath.Join(d.Mounts[1], "f"), "kept")
			d.Stop(t)
			for _, m := range d.Mounts {
				wantNotMounted(t, m)
			}
			if code, out := run(t, "dev", "--dir", dir, "--replicas", fmt.Sprint(replicas%4+1)); code != 2 || strings.Count(out, "\n") != 1 {
				t.Errorf("another number of replicas: exit code %d, %q", code, out)
			}
			again := devtest.Start(t, devtest.Options{Dir: dir, Processes: replicas == 2})
			wantFile(t, filepath.Join(again.Mounts[0], "f"), "kept")
			if st := again.Status(t); len(st.Members) != replicas {
				t.Errorf("%d members, want %d", len(st.Members), replicas)
			}
		})
	}
}

// TestOneDevPerFolder starts a second dev on a folder.
func TestOneDevPerFolder(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Replicas: 1})
	if code, out := run(t, "dev", "--dir", d.Dir); code != 1 || !strings.Contains(out, "another dev runs in") {
		t.Errorf("exit code %d, %q", code, out)
	}
	write(t, filepath.Join(d.Mounts[0], "f"), "still works")
}

// TestBusyAtEnd ends dev while a process sits in the mount: it is named, and
// after a while the mount is detached.
func TestBusyAtEnd(t *testing.T) {
	for _, processes := range []bool{false, true} {
		t.Run(fmt.Sprintf("processes=%v", processes), func(t *testing.T) {
			d := devtest.Start(t, devtest.Options{Replicas: 1, Processes: processes})
			holder := exec.Command("sleep", "60")
			holder.Dir = d.Mounts[0]
			if err := holder.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = holder.Process.Kill()
				_ = holder.Wait() // it was killed
			}()
			from := time.Now()
			d.Stop(t)
			if took := time.Since(from); took < 4*time.Second || took > 20*time.Second {
				t.Errorf("it ended after %s", took)
			}
			if said := d.Stderr(); !strings.Contains(said, fmt.Sprintf("sleep (pid %d, cwd)", holder.Process.Pid)) {
				t.Errorf("the holder is not named: %s", said)
			}
			wantNotMounted(t, d.Mounts[0])
		})
	}
}

// TestBusyForAMoment ends dev while a process is about to leave the mount.
func TestBusyForAMoment(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Replicas: 1})
	f, err := os.Create(filepath.Join(d.Mounts[0], "f"))
	if err != nil {
		t.Fatal(err)
	}
	d.Interrupt()
	time.Sleep(time.Second) // the point is that it is busy for a while
	if _, err := f.WriteString("late"); err != nil {
		t.Errorf("write while it waits: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	from := time.Now()
	if err := d.Ended(); err != nil || time.Since(from) > 4*time.Second {
		t.Errorf("ended with %v after %s", err, time.Since(from))
	}
	if said := d.Stderr(); strings.Contains(said, "detaching") {
		t.Errorf("it was detached: %s", said)
	}
}

// TestKilled kills dev: its children end, and the next start takes away what is
// left of the mounts.
func TestKilled(t *testing.T) {
	for _, processes := range []bool{false, true} {
		t.Run(fmt.Sprintf("processes=%v", processes), func(t *testing.T) {
			base := t.TempDir()
			o := devtest.Options{Dir: filepath.Join(base, "dev"), Mount: filepath.Join(base, "mnt"), Mounts: 2, Processes: processes}
			d := devtest.Start(t, o)
			write(t, filepath.Join(d.Mounts[0], "f"), "confirmed")
			pids := []int{}
			for _, m := range d.Status(t).Members {
				pids = append(pids, m.PID)
			}
			d.Kill()
			again := devtest.Start(t, o)
			wantFile(t, filepath.Join(again.Mounts[1], "f"), "confirmed")
			for _, pid := range pids {
				// What nobody reaps has no command line any more.
				if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(line) > 0 && processes {
					t.Errorf("process %d still runs: %q", pid, line)
				}
			}
		})
	}
}

// TestStateLost takes a replica's journal away: it is never made anew, the
// others go on, and without a quorum dev says so (C6).
func TestStateLost(t *testing.T) {
	for _, processes := range []bool{false, true} {
		t.Run(fmt.Sprintf("processes=%v", processes), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dev")
			o := devtest.Options{Dir: dir, Processes: processes}
			d := devtest.Start(t, o)
			write(t, filepath.Join(d.Mounts[0], "f"), "kept")
			d.Stop(t)
			lose := func(n int) {
				if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("replica-%d", n), "log")); err != nil {
					t.Fatal(err)
				}
			}
			lose(2)
			d = devtest.Start(t, o)
			wantFile(t, filepath.Join(d.Mounts[0], "f"), "kept")
			write(t, filepath.Join(d.Mounts[0], "g"), "more")
			if said := d.Stderr(); !strings.Contains(said, "replica state lost") {
				t.Errorf("it does not say that the state is lost: %s", said)
			}
			if m := member(t, d.Status(t), "replica-2"); m.Role != "unreachable" {
				t.Errorf("the lost replica is %s", m.Role)
			}
			d.Stop(t)
			if _, err := os.Stat(filepath.Join(dir, "replica-2", "log", "identity")); err == nil {
				t.Error("the lost replica was initialised again")
			}
			lose(3)
			if code, out := run(t, "dev", "--dir", dir); code != 1 || !strings.Contains(out, "there is no quorum") {
				t.Errorf("without a quorum: exit code %d, %q", code, out)
			}
		})
	}
}

func member(t *testing.T, st *ctl.Status, replica string) ctl.Member {
	t.Helper()
	for _, m := range st.Members {
		if m.Replica == replica {
			return m
		}
	}
	t.Fatalf("no %s among %+v", replica, st.Members)
	panic("unreachable")
}

// TestWorkerStateLost is the same seen from a worker's own process.
func TestWorkerStateLost(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Replicas: 1})
	trust := filepath.Join(d.Dir, "trust", "replica-1")
	c := worker.Config{
		Dir: filepath.Join(t.TempDir(), "empty"), Volume: d.Status(t).Volume, Replica: "replica-1", Incarnation: 1,
		Listen: "127.0.0.1:0", Members: []worker.Member{{ID: 1, Replica: "replica-1", Addr: "127.0.0.1:1"}}, Trust: trust,
		TTL: time.Second, Boot: bootConfig,
	}
	code, out := run(t, c.Args()...)
	if code != worker.ExitStateLost || !strings.Contains(out, "state lost") || strings.Contains(out, "goroutine") {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// TestStatus looks at dev from outside.
func TestStatus(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Mounts: 2, Processes: true})
	d.Coordinator(t)
	write(t, filepath.Join(d.Mounts[0], "f"), "x")
	st := d.Status(t)
	if len(st.Members) != 3 || len(st.Mounts) != 2 || len(st.Sessions) != 2 || st.Coordinator == "" || st.Space == nil {
		t.Errorf("status %+v", st)
	}
	seen := map[int]bool{}
	for _, m := range st.Members {
		if m.Report == nil || m.PID == 0 || seen[m.PID] || m.Term == 0 || m.Role != "coordinator" && m.Role != "follower" {
			t.Errorf("member %+v", m)
		}
		seen[m.PID] = true
	}
	for _, m := range st.Mounts {
		if m.Error != "" || m.PID == 0 || m.Keeper == 0 || seen[m.PID] || m.Status == nil || m.Status.Session.Session == 0 {
			t.Errorf("mount %+v", m)
		}
		seen[m.PID] = true
	}
	code, out := run(t, "ctl", "status", "--dir", d.Dir)
	for _, want := range []string{"REPLICA", "coordinator", "follower", "SESSION", "MOUNT", d.Mounts[1]} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q: exit code %d, %s", want, code, out)
		}
	}
	d.Stop(t)
	if code, out := run(t, "ctl", "status", "--dir", d.Dir); code != 1 || !strings.Contains(out, "nothing runs in") {
		t.Errorf("status of what has ended: exit code %d, %q", code, out)
	}
}

// TestMetrics asks a dev in one process for its metrics and health (G2).
func TestMetrics(t *testing.T) {
	addr := devtest.FreeAddr(t)
	devtest.Start(t, devtest.Options{Replicas: 2, Args: []string{"--metrics-addr", addr}})
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	_, body := get("/metrics")
	checkMetrics(t, body)
	if !strings.Contains(body, "go_goroutines") {
		t.Error("metrics lack those of the runtime")
	}
}

// checkMetrics compares what dev shows with the tables: everything of ours is in
// one, with its kind, and everything that replicas and mounts have is shown.
func checkMetrics(t *testing.T, body string) {
	t.Helper()
	shown := map[string]string{}
	for line := range strings.Lines(body) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && strings.HasPrefix(f[2], metric.Prefix) {
			shown[f[2]] = f[3]
		}
	}
	for _, table := range reference.Tables() {
		for _, d := range table.Defs {
			kind, ok := shown[d.Full()]
			switch {
			case ok && kind != string(d.Kind):
				t.Errorf("%s is a %s, in the table a %s", d.Full(), kind, d.Kind)
			case !ok && strings.Contains(table.Role, "dev"):
				t.Errorf("metrics lack %s", d.Full())
			}
			delete(shown, d.Full())
		}
	}
	for name := range shown {
		t.Errorf("%s is in no table", name)
	}
	for _, sample := range []string{
		`replica_coordinator{replica="replica-2",volume="`, `kernel_request_duration_seconds_count{class="lookup",volume="`,
		`replica_request_duration_seconds_count{class="mutation",replica="replica-1",volume="`, `mounts_attached{volume="`,
	} {
		if !strings.Contains(body, metric.Prefix+sample) {
			t.Errorf("metrics lack %s", sample)
		}
	}
}

// TestOffline runs the tools for a replica's files (G4).
func TestOffline(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Args: []string{"--checkpoint-bytes", "4194304"}})
	mnt := d.Mounts[0]
	write(t, filepath.Join(mnt, "small"), "small")
	for i := range 16 {
		write(t, filepath.Join(mnt, fmt.Sprintf("large-%d", i)), strings.Repeat(fmt.Sprint(i), 1<<20))
	}
	if err := os.Symlink("small", filepath.Join(mnt, "link\xff")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(mnt, "small"), filepath.Join(mnt, "second")); err != nil {
		t.Fatal(err)
	}
	replica := filepath.Join(d.Dir, "replica-1")
	if code, out := run(t, "ctl", "journal", "verify", replica); code != 1 || !strings.Contains(out, "a worker serves the replica") {
		t.Errorf("verify what is served: exit code %d, %q", code, out)
	}
	d.Stop(t)
	for _, args := range [][]string{{"journal", "verify"}, {"journal", "dump"}, {"checkpoint", "verify"}} {
		if code, out := run(t, append(append([]string{"ctl"}, args...), replica)...); code != 0 {
			t.Errorf("%v: exit code %d, %.500s", args, code, out)
		}
	}
	for n := 1; n <= 3; n++ {
		from, to := filepath.Join(d.Dir, fmt.Sprintf("replica-%d", n)), filepath.Join(t.TempDir(), "out")
		before := listing(t, from)
		if code, out := run(t, "ctl", "export", from, to); code != 0 || !strings.Contains(out, "exported") {
			t.Errorf("export: exit code %d, %s", code, out)
			continue
		}
		if after := listing(t, from); after != before {
			t.Errorf("export changed the replica:\n%s\n%s", before, after)
		}
		wantFile(t, filepath.Join(to, "second"), "small")
		wantFile(t, filepath.Join(to, "link\xff"), "small")
		wantFile(t, filepath.Join(to, "large-15"), strings.Repeat("15", 1<<20))
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(to), ".export-*")); err != nil || len(left) > 0 {
			t.Errorf("export left %v, %v", left, err)
		}
	}
}

// listing describes every file below a folder by size and modification time.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			fmt.Fprintln(&b, p, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestDamagedJournal flips bytes in the middle of a journal: verify says that
// something is lost.
func TestDamagedJournal(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Replicas: 1})
	for i := range 64 {
		write(t, filepath.Join(d.Mounts[0], fmt.Sprint(i)), strings.Repeat("x", 9000))
	}
	d.Stop(t)
	replica := filepath.Join(d.Dir, "replica-1")
	segments, err := filepath.Glob(filepath.Join(replica, "log", "journal", "segment-*"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	for _, s := range segments { // one of them may be a spare
		f, err := os.OpenFile(s, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, 8192), 20*4096); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := run(t, "ctl", "journal", "verify", replica); code != 1 || !strings.Contains(out, "journal lost") {
		t.Errorf("verify: exit code %d, %q", code, out)
	}
	if code, out := run(t, "dev", "--dir", d.Dir); code != 1 || !strings.Contains(out, "state lost") {
		t.Errorf("dev: exit code %d, %q", code, out)
	}
}
