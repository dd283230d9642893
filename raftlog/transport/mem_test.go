package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// tape writes down what a member is told.
type tape struct {
	member uint64
	lines  *[]string
	stream func(ctx context.Context, from uint64, s io.ReadWriter) error
}

func (h *tape) Receive(from uint64, m []byte) {
	*h.lines = append(*h.lines, fmt.Sprintf("%d→%d %s", from, h.member, m))
}

func (h *tape) Unreachable(m uint64, gone bool) {
	*h.lines = append(*h.lines, fmt.Sprintf("%d↛%d gone=%v", h.member, m, gone))
}

func (h *tape) AcceptStream(ctx context.Context, from uint64, s io.ReadWriter) error {
	return h.stream(ctx, from, s)
}

type memRig struct {
	*MemNetwork
	nodes map[uint64]*MemTransport
	lines []string
}

func newMemRig(seed uint64, n int) *memRig {
	r := &memRig{MemNetwork: NewMemNetwork(rand.New(rand.NewPCG(seed, seed))), nodes: map[uint64]*MemTransport{}}
	for i := range n {
		r.join(uint64(i + 1))
	}
	return r
}

func (r *memRig) join(id uint64) {
	r.nodes[id] = r.Node(id)
	r.nodes[id].Attach(context.Background(), &tape{member: id, lines: &r.lines})
}

// settle steps until nothing is under way, and returns what happened.
func (r *memRig) settle() []string {
	for r.Pending() > 0 {
		r.Step()
	}
	lines := r.lines
	r.lines = nil
	return lines
}

func TestMemDeliversInOrder(t *testing.T) {
	r := newMemRig(1, 2)
	r.nodes[1].Send(2, [][]byte{[]byte("a"), []byte("b")})
	r.nodes[1].Send(2, msg("c"))
	if len(r.lines) != 0 {
		t.Fatal("delivered before a step")
	}
	if n := r.Step(); n != 2 {
		t.Fatalf("%d events", n)
	}
	if got := strings.Join(r.settle(), ", "); got != "1→2 ab, 1→2 c" {
		t.Fatal(got)
	}
}

func TestMemFaults(t *testing.T) {
	const n = 400
	run := func(seed uint64, f Faults) []string {
		r := newMemRig(seed, 2)
		r.SetFaults(f)
		for i := range n {
			r.nodes[1].Send(2, msg(fmt.Sprint(i)))
			if i%4 == 0 {
				r.Step()
			}
		}
		return r.settle()
	}
	all := run(1, Faults{})
	if len(all) != n {
		t.Fatalf("%d of %d without faults", len(all), n)
	}
	if lost := n - len(run(1, Faults{Drop: 0.25})); lost < n/8 || lost > n/2 {
		t.Errorf("%d of %d lost", lost, n)
	}
	if more := len(run(1, Faults{Duplicate: 0.25})) - n; more < n/8 || more > n/2 {
		t.Errorf("%d of %d doubled", more, n)
	}
	if late := run(1, Faults{DelayMin: 2, DelayMax: 30}); !slices.Equal(late, all) {
		t.Error("delay alone changes the order or loses something")
	}
	mixed := run(1, Faults{DelayMax: 30, Reorder: true})
	if slices.Equal(mixed, all) || !sameSet(mixed, all) {
		t.Error("reordering keeps the order or loses something")
	}
	f := Faults{Drop: 0.1, Duplicate: 0.1, DelayMax: 10, Reorder: true}
	if !slices.Equal(run(7, f), run(7, f)) {
		t.Error("one seed gives two courses of events")
	}
	if slices.Equal(run(7, f), run(8, f)) {
		t.Error("two seeds give one course of events")
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

func TestMemCut(t *testing.T) {
	r := newMemRig(1, 3)
	r.nodes[1].Send(2, msg("under way"))
	r.Cut(1, 2)
	r.nodes[1].Send(2, msg("x"))
	r.nodes[2].Send(1, msg("y"))
	r.nodes[3].Send(2, msg("z"))
	if got := strings.Join(r.settle(), ", "); got != "1↛2 gone=false, 2→1 y, 3→2 z" {
		t.Fatal(got)
	}
	r.Heal(1, 2)
	r.nodes[1].Send(2, msg("again"))
	if got := strings.Join(r.settle(), ", "); got != "1→2 again" {
		t.Fatal(got)
	}
	r.SetLink(1, 2, Faults{Drop: 1})
	r.nodes[1].Send(2, msg("x"))
	r.nodes[1].Send(3, msg("y"))
	if got := strings.Join(r.settle(), ", "); got != "1→3 y" {
		t.Fatal(got)
	}
	r.Cut(1, 3)
	r.HealAll()
	r.nodes[1].Send(2, msg("x"))
	r.nodes[1].Send(3, msg("y"))
	if got := strings.Join(r.settle(), ", "); got != "1→2 x, 1→3 y" {
		t.Fatal(got)
	}
}

func TestMemCrash(t *testing.T) {
	r := newMemRig(1, 2)
	r.nodes[1].Send(2, msg("under way"))
	r.Crash(2)
	r.nodes[1].Send(2, msg("nobody there"))
	if got := strings.Join(r.settle(), ", "); got != "1↛2 gone=true" {
		t.Fatal(got)
	}
	r.join(2)
	r.nodes[2].Send(1, msg("back"))
	if got := strings.Join(r.settle(), ", "); got != "2→1 back" {
		t.Fatal(got)
	}
}

func TestMemStream(t *testing.T) {
	r := newMemRig(1, 2)
	ended := make(chan error, 1)
	r.serveStreams(2, func(_ context.Context, from uint64, s io.ReadWriter) error {
		b := make([]byte, 5)
		if _, err := io.ReadFull(s, b); err != nil {
			ended <- err
			return err
		}
		_, err := fmt.Fprintf(s, "%d said %s", from, b)
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	open := func() io.ReadWriteCloser {
		s, err := r.nodes[1].OpenStream(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		r.settle()
		return s
	}
	s := open()
	if _, err := s.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); err != nil || string(got) != "1 said hello" {
		t.Fatalf("%q %v", got, err)
	}
	for name, end := range map[string]func(s io.Closer){
		"cut":     func(io.Closer) { r.Cut(2, 1) },
		"crash":   func(io.Closer) { r.HealAll(); r.Crash(2); r.Crash(1) },
		"closed":  func(s io.Closer) { s.Close() },
		"context": func(io.Closer) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			r = newMemRig(1, 2)
			ctx, cancel = context.WithCancel(context.Background())
			defer func() { cancel() }()
			r.serveStreams(2, func(_ context.Context, _ uint64, s io.ReadWriter) error {
				_, err := s.Read(make([]byte, 1))
				ended <- err
				return err
			})
			s := open()
			end(s)
			if err := <-ended; err == nil {
				t.Fatal("the far side read something")
			}
			if _, err := s.Read(make([]byte, 1)); err == nil {
				t.Fatal("the near side read something")
			}
			if _, err := s.Write(make([]byte, 1)); err == nil {
				t.Fatal("the near side wrote something")
			}
			r.Wait()
		})
	}
	r = newMemRig(1, 1)
	if _, err := r.nodes[1].OpenStream(context.Background(), 2); !errors.Is(err, ErrUnknownPeer) {
		t.Fatalf("to nobody: %v", err)
	}
}

// serveStreams gives a member a handler of streams.
func (r *memRig) serveStreams(id uint64, f func(context.Context, uint64, io.ReadWriter) error) {
	r.nodes[id] = r.Node(id)
	r.nodes[id].Attach(context.Background(), &tape{member: id, lines: &r.lines, stream: f})
}

func TestMemStreamIsBounded(t *testing.T) {
	near, far := newMemStream()
	_ = near.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	n, err := near.Write(make([]byte, memStreamMost+1))
	if n != memStreamMost || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	near.Close()
	got, err := io.ReadAll(far)
	if len(got) != memStreamMost || err != nil {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	near, _ = newMemStream()
	_ = near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}
