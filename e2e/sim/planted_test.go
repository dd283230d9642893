package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	plantedFlag = flag.Int("planted", 1, "how many planted bugs to look for; 0 is all")
	bugFlag     = flag.String("bug", "", "look only for planted bugs whose name contains this")
)

// bug is one mistake: texts of the product's source that are replaced by others.
type bug struct {
	name  string
	edits []edit
}

type edit struct{ file, old, new string }

var bugs = []bug{
	{"leases are not recalled", []edit{{"fusefs/coord/stream.go", "return c.recall(m, inos)\n", "return inos != nil || m.recalling == 0\n"}}},
	{"the journal is not synced", []edit{{"raftlog/wal/journal.go", "if err := seg.file.SyncData(); err != nil {\n\t\t\treturn j.poison(", "if err := error(nil); err != nil {\n\t\t\treturn j.poison("}}},
	{"acknowledged before it is synced", []edit{{"raftlog/persist.go", "\tif len(batches) > 0 || vote {\n", "\tresponses = p.answer(responses)\n\tif len(batches) > 0 || vote {\n"}}},
	{"votes twice: a vote is not kept", []edit{
		{"raftlog/persist.go", "if len(batches) > 0 || vote {", "if len(batches) > 0 {"},
	}},
	{"proposes in another term", []edit{
		{"raftlog/core.go", "p.term == c.led && c.role == RoleLeader", "c.role == RoleLeader"},
		{"raftlog/group.go", "if term == 0 || g.leading.Load() != term {", "if term == 0 {"},
	}},
	{"serves before the fence", []edit{{"fusefs/tree/tree.go", "return t.applied.Load() >= t.fence.Load()", "return true"}}},
	{"the fence of a received checkpoint is forgotten", []edit{{"fusefs/tree/receive.go", "t.SetFence(fence)\n", "_ = fence\n"}}},
	{"contents are not synced in a checkpoint", []edit{{"fusefs/tree/checkpoint.go", "if err := t.content.sync(ino); err != nil {", "if err := error(nil); err != nil {"}}},
	{"names of contents are not synced in a checkpoint", []edit{{"fusefs/tree/checkpoint.go", "if err := t.fs.SyncDir(dir); err != nil {", "if err := error(nil); dir == \"\" {"}}},
	{"names that a killed process left are not synced", []edit{{"fusefs/tree/content.go", "if !c.noted[byte(ino)] {", "if false {"}}},
	{"what may never have become durable is not written again", []edit{{"raftlog/wal/open.go", "j.rewrite(s.fresh)", "j.rewrite(nil)"}}},
	{"contents of reaped files go at once", []edit{{"fusefs/tree/checkpoint.go", "for len(c.waiting) > 0 && c.waiting[0].index <= limit {", "for len(c.waiting) > 0 && limit >= 0 {"}}},
	{"reaped though open", []edit{{"fusefs/coord/reap.go", "if _, open := r.open[ino]; !open {", "if _, open := r.open[ino]; !open || open {"}}},
	{"reaped though a session is away", []edit{{"fusefs/coord/reap.go", "if s := c.sessions[info.ID]; s == nil || s.link == nil {", "if s := c.sessions[info.ID]; s == nil && info.ID == 0 {"}}},
	{"opened under a lease while it is reaped", []edit{{"fusefs/coord/query.go", "if c.isReaped(op) || c.term != term", "if c.term != term"}}},
	{"locks are forgotten in a checkpoint", []edit{{"fusefs/tree/restore.go", "t.sessions, t.locks = v.loadSessions(), v.loadLocks()", "t.sessions, t.locks = v.loadSessions(), map[fsop.Ino][]held{}"}}},
	{"the retry table is forgotten", []edit{{"fusefs/tree/session.go", "if seq <= s.ack || seq > s.seq {", "if seq <= s.seq {"}}},
	{"a repeated operation is applied again", []edit{{"fusefs/tree/session.go", "case it.Seq <= s.seq:\n\t\treturn Duplicate, s", "case it.Seq <= s.seq:\n\t\treturn Applied, x.session(it.Session)"}}},
	{"older servers of a session are not refused", []edit{
		{"fusefs/tree/session.go", "it.Epoch != s.epoch || ", ""},
		{"fusefs/client/inherit.go", "id.Epoch++\n", ""},
	}},
	{"leases outlive their term", []edit{{"fusefs/client/link.go", "time.Millisecond * 9 / 10", "time.Millisecond * 90 / 10"}}},
	{"a lease is granted beside operations in flight", []edit{{"fusefs/coord/lease.go", "if s.link == nil || !c.quiet(s) || ", "if s.link == nil || "}, {"fusefs/coord/query.go", "if quiet && foreign == c.mutations-s.mutations {", "if quiet || foreign != 0 || true {"}}},
	{"writes do not wait for leases of the term before", []edit{{"fusefs/coord/coordinator.go", "c.graceEnds = c.cfg.Clock.Mono() + c.limits.TTL", "c.graceEnds = c.cfg.Clock.Mono()"}}},
	{"a read is not confirmed by a quorum", []edit{{"fusefs/coord/query.go", "if _, failure := c.confirm(); failure != nil {", "if failure := c.currentHint(); failure == nil {"}}},
	{"a session is kept without a quorum", []edit{{"fusefs/coord/session.go", "\t\t\t_, failure = c.confirm()\n", ""}}},
	{"reads are confirmed by a clock", []edit{{"raftlog/open.go", "raft.ReadOnlySafe", "raft.ReadOnlyLeaseBased"}}},
	{"the cache is kept over a new connection", []edit{{"fusefs/client/link.go", "s.mu.expires = 0\n\ts.cache.clear()\n\ts.mu.tries++", "s.mu.expires = 0\n\ts.mu.tries++"}}},
	{"own changes are not fenced", []edit{{"fusefs/client/cache.go", "if c.busyAll > 0 || c.busy[ino] > 0 {\n\t\treturn nil", "if c.busyAll < 0 {\n\t\treturn nil"}}},
	{"locks outlive their session", []edit{{"fusefs/tree/op_control.go", "\tx.dropLocks(s.id)\n", ""}}},
	{"a number that was given up is used again", []edit{{"fusefs/client/inherit.go", "s.mu.next = h.last + 1", "s.mu.next = max(h.last, 1)"}}},
}

// TestPlantedBugs builds the simulation with one mistake in the product at a time,
// and expects it to notice within 500 seeds.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program for each bug")
	}
	left := *plantedFlag
	for _, b := range bugs {
		if !strings.Contains(b.name, *bugFlag) {
			continue
		}
		t.Run(b.name, func(t *testing.T) { find(t, b) })
		if left--; left == 0 {
			return
		}
	}
}

func find(t *testing.T, b bug) {
	dir := t.TempDir()
	program := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-c", "-overlay", overlay(t, dir, b), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	run := exec.Command(program, "-test.run", "^TestWorlds$", "-brief", "-seeds", "500", "-test.timeout", "400s")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatal("not found in 500 seeds")
	}
	if bytes.Contains(out, []byte("panic: test timed out")) {
		t.Fatalf("not found in time\n%.2000s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "seed ") || strings.HasPrefix(line, "panic") {
			t.Logf("found by %.300s", line)
			return
		}
	}
	t.Logf("found: %.1000s", out)
}

// overlay writes the changed files, and tells the go command of them.
func overlay(t *testing.T, dir string, b bug) string {
	texts := map[string]string{}
	for _, e := range b.edits {
		path, err := filepath.Abs(filepath.Join("..", "..", e.file))
		if err != nil {
			t.Fatal(err)
		}
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
		if n := strings.Count(texts[path], e.old); n != 1 {
			t.Fatalf("%s has this %d times: %s", e.file, n, e.old)
		}
		texts[path] = strings.Replace(texts[path], e.old, e.new, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		changed := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = changed
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPlantedBugsFit finds out at once when the source has moved on from under a bug.
func TestPlantedBugsFit(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) { overlay(t, t.TempDir(), b) })
	}
}
