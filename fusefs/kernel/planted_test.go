package kernel

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"tak-os.org/tak-replicated/e2e/posix"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

// A suite that nothing has ever failed proves little. Here filesystems are
// broken on purpose, each in one way that a real one could be, and the suite has
// to notice.

// call is an fsop.Caller in one function.
type call func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error)

func (c call) Call(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) { return c(ctx, req) }

// do runs one more operation.
func (c call) do(ctx context.Context, op fsop.Op) (*fsop.Reply, error) {
	return c(ctx, &fsop.Request{Op: op})
}

// with runs req with another operation in it.
func (c call) with(ctx context.Context, req *fsop.Request, op fsop.Op) (*fsop.Reply, error) {
	r := *req
	r.Op = op
	return c(ctx, &r)
}

// bug is one way to be wrong.
type bug struct {
	name   string
	mounts int      // 0 is 1
	cases  []string // who may find it: "group/case", or a pattern of path.Match
	// plant breaks what next does for one mount. What it returns is called by many
	// at once.
	plant func(s *oneSession, next call) call
}

func plantedBugs() []bug { return slices.Concat(nameBugs, listBugs, dataBugs, attrBugs, lockBugs) }

// TestPlantedBugs breaks the tree in many ways. The suite finds each of them, and
// the same cases find nothing in the tree as it is.
func TestPlantedBugs(t *testing.T) {
	bugs := plantedBugs()
	if testing.Short() {
		bugs = slices.DeleteFunc(bugs, func(b bug) bool { return b.mounts > 1 })
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		sound := bug{mounts: 2, plant: func(_ *oneSession, next call) call { return next }}
		for _, b := range bugs {
			sound.cases = append(sound.cases, b.cases...)
		}
		for _, f := range failures(t, sound) {
			t.Errorf("fails without a bug: %s", f)
		}
	})
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			found := slices.DeleteFunc(failures(t, b), func(f string) bool { return !asserts(f) })
			if len(found) == 0 {
				t.Errorf("not found by any of %q", b.cases)
			}
			for _, f := range found {
				t.Logf("found by %.500s", f)
			}
		})
	}
}

// failures runs the bug's cases over a tree that has it.
func failures(t *testing.T, b bug) []string {
	o := newOneTree(t)
	env := posix.Env{Dir: mountBug(t, o, b), Seed: 1, Deadline: 30 * time.Second}
	if b.mounts > 1 {
		env.Peer = mountBug(t, o, b)
	}
	failed, err := posix.Failures(env, pick(t, b.cases))
	if err != nil {
		t.Fatal(err)
	}
	return failed
}

// asserts reports whether a case said what is wrong. That it took too long, died or
// could not clean up is no finding.
func asserts(failure string) bool {
	_, said, _ := strings.Cut(failure, "\n")
	if strings.HasPrefix(said, "not done after") || strings.HasPrefix(said, "its process died") {
		return false
	}
	return strings.Contains(said, "want ") || strings.Contains(said, ".go:")
}

// pick takes cases out of the suite. Each pattern has to match one.
func pick(t *testing.T, patterns []string) (groups []posix.Group) {
	used := map[string]bool{}
	for _, g := range posix.Suite {
		g.Cases = slices.DeleteFunc(slices.Clone(g.Cases), func(cs posix.Case) bool {
			matched := false
			for _, p := range patterns {
				name := g.Name + "/" + cs.Name
				if ok, err := path.Match(p, name); p == name || ok && err == nil {
					matched, used[p] = true, true
				}
			}
			return !matched
		})
		if len(g.Cases) > 0 {
			groups = append(groups, g)
		}
	}
	for _, p := range patterns {
		if !used[p] {
			t.Errorf("no case is called %q", p)
		}
	}
	return groups
}

// mountBug mounts the tree, with a bug in between, for the length of the test.
// Nothing is answered from memory: every request goes through the bug.
func mountBug(t *testing.T, o *oneTree, b bug) (dir string) {
	t.Helper()
	needFuse(t)
	m, err := New(Options{ID: "planted", Dir: mountPoint(t), FSName: "one-tree", Subtype: "tak-test", Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	watchdog(t, m.Dir(), 2*time.Minute)
	s := o.open(t, m.Ledger())
	done := make(chan error, 1)
	go func() { done <- m.Serve(context.Background(), b.plant(s, s.Call)) }()
	t.Cleanup(func() {
		err := Unmount(m.Dir())
		if errors.Is(err, ErrBusy) {
			err = Detach(m.Dir())
		}
		if err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	settle(t, m.Dir())
	return m.Dir()
}

// attrsOf calls change for all attributes of a reply.
func attrsOf(rep *fsop.Reply, change func(*fsop.Attr)) {
	for i := range rep.Attrs {
		change(&rep.Attrs[i])
	}
	for i := range rep.Entries {
		if a := rep.Entries[i].Attr; a != nil {
			change(a)
		}
	}
}

// showing is next with changed attributes in all replies.
func (c call) showing(change func(*fsop.Attr)) call {
	return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
		rep, err := c(ctx, req)
		if err == nil {
			attrsOf(rep, change)
		}
		return rep, err
	}
}

// changing is a bug that makes another operation of each operation of one kind.
// The copy that change gets may be changed in place.
func changing[T any, P interface {
	*T
	fsop.Op
}](change func(op P)) func(*oneSession, call) call {
	return func(_ *oneSession, next call) call {
		return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
			op, ok := req.Op.(P)
			if !ok {
				return next(ctx, req)
			}
			copied := *op
			change(&copied)
			return next.with(ctx, req, P(&copied))
		}
	}
}

// answering is a bug that decides each operation of one kind by itself.
func answering[P fsop.Op](answer func(ctx context.Context, req *fsop.Request, op P, next call) (*fsop.Reply, error)) func(*oneSession, call) call {
	return func(_ *oneSession, next call) call {
		return func(ctx context.Context, req *fsop.Request) (*fsop.Reply, error) {
			if op, ok := req.Op.(P); ok {
				return answer(ctx, req, op, next)
			}
			return next(ctx, req)
		}
	}
}

// ok reports whether an operation had its effect.
func ok(rep *fsop.Reply, err error) bool { return err == nil && rep.Errno == fsop.OK }
