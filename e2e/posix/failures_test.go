package posix

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFailures gets each way in which a case can end reported as what it is.
func TestFailures(t *testing.T) {
	needRoot(t, "needs root")
	t.Setenv("CI", "")
	self := extra[0]
	self.Cases = slices.Clone(self.Cases)
	for i := range self.Cases {
		if self.Cases[i].Name == "panics" {
			self.Cases[i].Needs = []Cap{CapTmpfile} // and so it is not run
		}
	}
	env := Env{Dir: openDir(t), Deadline: 700 * time.Millisecond, Caps: Caps{CapTmpfile: "on purpose"}}
	failed, err := Failures(env, []Group{self})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ name, said string }{
		{"self/fails", "a call: got ENOENT, want EPERM"},
		{"self/blocks", "not done after"},
		{"self/blocks in a pipe", "not done after"},
		{"self/dies", "its process died"},
	}
	if len(failed) != len(want) {
		t.Fatalf("%d failures, want %d: %q", len(failed), len(want), failed)
	}
	for i, w := range want {
		name, said, _ := strings.Cut(failed[i], "\n")
		if name != w.name || !strings.Contains(said, w.said) {
			t.Errorf("failure %d is %q, want %q, which says %q", i, failed[i], w.name, w.said)
		}
	}
	if _, err := Failures(Env{Dir: "relative"}, []Group{self}); err == nil {
		t.Error("no error for a directory that cannot be reached")
	}
}
