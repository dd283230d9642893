package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// TestFetch: all members are asked for a page at the same time. One that does not answer
// hides nobody's good copy, and as long as it may have one nothing is taken for lost.
func TestFetch(t *testing.T) {
	good := sentPage{data: []byte("good"), changed: 3}
	fits := func(data []byte, changed uint64) bool { return string(data) == "good" && changed == 3 }
	began := func() func() time.Duration {
		start := time.Now()
		return func() time.Duration { return time.Since(start) }
	}
	silence := func(ctx context.Context) (sentPage, error) {
		<-ctx.Done()
		return sentPage{}, ctx.Err()
	}
	members := []raftlog.Member{{ID: 1}, {ID: 2}, {ID: 3}}
	for _, c := range []struct {
		name    string
		members []raftlog.Member
		leave   time.Duration // 0: never
		ask     func(ctx context.Context, member uint64, since time.Duration) (sentPage, error)
		took    time.Duration // at most
		found   bool
		lost    bool // nobody has it
	}{
		{name: "the first is silent, the second has it", members: members, took: 0, found: true,
			ask: func(ctx context.Context, member uint64, _ time.Duration) (sentPage, error) {
				if member == 2 {
					return silence(ctx)
				}
				return good, nil
			}},
		{name: "all say no", members: members, took: 0, lost: true,
			ask: func(context.Context, uint64, time.Duration) (sentPage, error) { return sentPage{}, nil }},
		{name: "nobody else is there", members: members[:1], took: 0, lost: true,
			ask: func(context.Context, uint64, time.Duration) (sentPage, error) { return good, nil }},
		{name: "one says no, the other can be reached later", members: members, took: 9 * time.Second, found: true,
			ask: func(_ context.Context, member uint64, since time.Duration) (sentPage, error) {
				switch {
				case member == 2:
					return sentPage{data: []byte("bad")}, nil
				case since < 8*time.Second:
					return sentPage{}, errors.New("connection refused")
				}
				return good, nil
			}},
		{name: "one never answers", members: members, took: fetchPatience + fetchTimeout,
			ask: func(ctx context.Context, member uint64, _ time.Duration) (sentPage, error) {
				if member == 2 {
					return sentPage{}, nil
				}
				return silence(ctx)
			}},
		{name: "the replica is told to end", members: members, leave: 5 * time.Second, took: 5*time.Second + fetchTimeout,
			ask: func(ctx context.Context, _ uint64, _ time.Duration) (sentPage, error) { return silence(ctx) }},
		{name: "the log has ended", members: nil, took: 0,
			ask: func(context.Context, uint64, time.Duration) (sentPage, error) { return good, nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				since := began()
				leaving := make(chan struct{})
				if c.leave > 0 {
					time.AfterFunc(c.leave, func() { close(leaving) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), fetchPatience)
				defer cancel()
				data, err := fetch(ctx, leaving, func() []raftlog.Member { return c.members },
					func(ctx context.Context, member uint64) (sentPage, error) { return c.ask(ctx, member, since()) }, 1, fits)
				if (data != nil) != c.found || (err != nil && !errors.Is(err, tree.ErrUnanswered)) != c.lost {
					t.Fatalf("got %q, %v", data, err)
				}
				if took := since(); took > c.took {
					t.Fatalf("took %v", took)
				}
			})
		})
	}
}

// TestUnreadyMemberAnswersNothing: a member that has not replayed its journal yet can't
// tell whether it has a page, and does not say that it has none.
func TestUnreadyMemberAnswersNothing(t *testing.T) {
	tr, err := tree.Open(tree.Config{FS: disk.NewMem(1), Dir: "replica", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	r := &replica{tree: tr}
	ask := func() ([]sentPage, error) {
		var answer bytes.Buffer
		served := r.servePages(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(mendRequest{7, 0, 2}.encode()[len(mendMagic):]), &answer})
		pages, err := readPages(&answer, 2)
		if (served == nil) != (err == nil) {
			t.Fatalf("served with %v, read with %v", served, err)
		}
		return pages, err
	}
	if pages, err := ask(); err != nil || pages[0].data != nil || pages[1].data != nil {
		t.Fatalf("a file that is not there: %v, %v", pages, err)
	}
	tr.SetFence(5, 1)
	if pages, err := ask(); err == nil {
		t.Fatalf("answered %v before it was ready", pages)
	}
}
