package dev

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/roles/ctl"
	"tak-os.org/tak-replicated/roles/worker"
)

// TestReplace replaces a replica of three and of four under load: the old copy is
// destroyed, and one that comes back is barred (C10).
func TestReplace(t *testing.T) {
	for _, replicas := range []int{3, 4} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			d := devtest.Start(t, devtest.Options{Replicas: replicas, Processes: true, Args: []string{"--log-level", "info"}})
			put(t, d.Mounts[0], 8)
			load := startLoad(t, filepath.Join(d.Mounts[0], "load"))
			st := d.Healthy(t)
			victim := followerOf(t, st)
			old := filepath.Join(d.Dir, victim.Replica)
			if out, err := d.Run("ctl", "replace", "--dir", d.Dir, "--replica", victim.Replica, "--incarnation", "7"); err == nil || !strings.Contains(string(out), "is of incarnation 1, not 7") {
				t.Fatalf("another incarnation was replaced: %v\n%s", err, out)
			}
			kept := filepath.Join(t.TempDir(), "kept")
			copied(t, old, kept)
			if out, err := d.Run("ctl", "replace", "--dir", d.Dir, "--replica", victim.Replica, "--incarnation", "1"); err != nil {
				t.Fatalf("replace: %v\n%s", err, out)
			}
			if n := load(); n == 0 {
				t.Error("nothing was written meanwhile")
			}
			next := memberOf(t, d.Status(t), victim.Replica)
			if next.Report == nil || next.Report.Incarnation != 2 || next.ID != uint64(replicas+1) {
				t.Errorf("the new member is %+v", next)
			}
			if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the old copy is still there: %v", err)
			}
			barred(t, d, kept, victim)
			equalExports(t, d, replicas)
			if out, err := d.Run("ctl", "status", "--dir", d.Dir); err == nil {
				t.Errorf("dev still runs:\n%s", out)
			}
		})
	}
}

// barred starts the worker of a replaced replica on a copy of its folder: it ends
// and says why.
func barred(t *testing.T, d *devtest.Dev, folder string, was ctl.Member) {
	t.Helper()
	args := []string{
		"worker", "--dir", folder, "--volume", d.Status(t).Volume, "--replica", was.Replica, "--incarnation", "1",
		"--listen", "127.0.0.1:0", "--trust", filepath.Join(d.Dir, "trust", was.Replica), "--reserve-bytes", "0",
	}
	for _, m := range d.Status(t).Members {
		id := m.ID
		if m.Replica == was.Replica {
			id = was.ID
		}
		args = append(args, "--member", fmt.Sprintf("%d=%s@%s", id, m.Replica, m.Addr))
	}
	cmd := exec.Command(devtest.Binary(t), args...)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait() // how it ended is in its state
	if code := cmd.ProcessState.ExitCode(); code != worker.ExitReplaced {
		t.Errorf("the old member's worker ended with %d:\n%s", code, said.String())
	}
}

// TestForcedReplace loses one of two replicas for good: the other one goes on
// alone with all that it has, at the operator's word, and then has a second one
// again (C10).
func TestForcedReplace(t *testing.T) {
	t.Parallel()
	devtest.NeedFUSE(t)
	dir := filepath.Join(t.TempDir(), "dev")
	o := devtest.Options{Dir: dir, Replicas: 2, Processes: true, Args: []string{"--log-level", "info"}}
	d := devtest.Start(t, o)
	want := put(t, d.Mounts[0], 4)
	d.Stop(t)
	lost := filepath.Join(t.TempDir(), "lost")
	copied(t, filepath.Join(dir, "replica-2"), lost)
	if err := os.RemoveAll(filepath.Join(dir, "replica-2")); err != nil {
		t.Fatal(err)
	}
	// dev can't mount before there is a quorum.
	replaced := make(chan error, 1)
	go func() {
		replaced <- func() error {
			bin, args := devtest.Binary(t), []string{"ctl", "replace", "--dir", dir, "--replica", "replica-2", "--incarnation", "1"}
			var out []byte
			var err error
			for range 200 {
				time.Sleep(100 * time.Millisecond)
				if out, err = exec.Command(bin, args...).CombinedOutput(); strings.Contains(string(out), "quorum") {
					break
				}
			}
			if err == nil || !strings.Contains(string(out), "--force") {
				return fmt.Errorf("without a quorum: %v, %s", err, out)
			}
			if out, err = exec.Command(bin, append(args, "--force")...).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}()
	}()
	d = devtest.Start(t, o)
	if err := <-replaced; err != nil {
		t.Fatalf("force: %v\n%s", err, d.Stderr())
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(d.Mounts[0], name)); err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	put(t, d.Mounts[0], 6)
	st := d.Status(t)
	one, two := memberOf(t, st, "replica-1"), memberOf(t, st, "replica-2")
	if one.ID != 3 || two.ID != 4 || one.Report == nil || one.Report.Incarnation != 2 || two.Report == nil || two.Report.Incarnation != 2 {
		t.Errorf("members are %+v and %+v", one, two)
	}
	two.ID = 2
	barred(t, d, lost, two)
	equalExports(t, d, 2)
	// And once more from the settings that this has left.
	d = devtest.Start(t, o)
	for name := range want {
		if _, err := os.Stat(filepath.Join(d.Mounts[0], name)); err != nil {
			t.Error(err)
		}
	}
}

// put writes some files, and returns their texts.
func put(t *testing.T, mnt string, n int) map[string]string {
	t.Helper()
	all := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("file-%d", i)
		all[name] = strings.Repeat(name, 1<<uint(2*i))
		if err := os.WriteFile(filepath.Join(mnt, name), []byte(all[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// startLoad appends to a file until stop is called, which returns how often.
func startLoad(t *testing.T, path string) (stop func() int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-end:
				ended <- f.Close()
				return
			default:
			}
			if _, err := f.WriteString(strings.Repeat("load ", 2000)); err != nil {
				ended <- errors.Join(err, f.Close())
				return
			}
			n.Add(1)
			time.Sleep(time.Millisecond)
		}
	}()
	return func() int64 {
		close(end)
		if err := <-ended; err != nil {
			t.Errorf("load: %v", err)
		}
		return n.Load()
	}
}

func followerOf(t *testing.T, st *ctl.Status) ctl.Member {
	t.Helper()
	for _, m := range st.Members {
		if m.Role == "follower" {
			return m
		}
	}
	t.Fatal("no follower")
	panic("unreachable")
}

func memberOf(t *testing.T, st *ctl.Status, replica string) ctl.Member {
	t.Helper()
	for _, m := range st.Members {
		if m.Replica == replica {
			return m
		}
	}
	t.Fatalf("no member %s", replica)
	panic("unreachable")
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
}

// equalExports ends dev and wants all replicas to hold the same files.
func equalExports(t *testing.T, d *devtest.Dev, replicas int) {
	t.Helper()
	d.Stop(t)
	folders, err := filepath.Glob(filepath.Join(d.Dir, "replica-*"))
	if err != nil || len(folders) != replicas {
		t.Fatalf("replicas in %v, %v", folders, err)
	}
	first := ""
	for _, folder := range folders {
		out := filepath.Join(t.TempDir(), "export")
		if text, err := d.Run("ctl", "export", folder, out); err != nil {
			t.Fatalf("export %s: %v\n%s", folder, err, text)
		}
		if first == "" {
			first = out
			continue
		}
		if text, err := exec.Command("diff", "-r", first, out).CombinedOutput(); err != nil {
			t.Errorf("%s differs:\n%s", filepath.Base(folder), text)
		}
	}
}
