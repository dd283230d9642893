package coherent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// onMounts runs a test on two and on three mounts of a volume of three replicas.
func onMounts(t *testing.T, test func(t *testing.T, d *devtest.Dev)) {
	for _, mounts := range []int{2, 3} {
		t.Run(fmt.Sprint(mounts, " mounts"), func(t *testing.T) {
			t.Parallel() // they mostly wait
			test(t, devtest.Start(t, devtest.Options{Mounts: mounts, Processes: true}))
		})
	}
}

// client is one application: operations one after another on one mount.
type client struct {
	id    int
	mount string
	rand  *rand.Rand
	begin time.Time
	log   []porcupine.Operation
}

// do runs an operation and records it.
func (c *client) do(input any, f func() any) {
	call := time.Since(c.begin).Nanoseconds()
	output := f()
	c.log = append(c.log, porcupine.Operation{
		ClientId: c.id, Input: input, Call: call, Output: output, Return: time.Since(c.begin).Nanoseconds(),
	})
}

// run lets n clients a mount work until the time is over, and returns what they
// did.
func run(t *testing.T, mounts []string, n int, length time.Duration, work func(*client) error) []porcupine.Operation {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	begin := time.Now()
	var clients []*client
	for range n {
		for _, m := range mounts {
			id := len(clients)
			clients = append(clients, &client{id: id, mount: m, begin: begin, rand: rand.New(rand.NewPCG(seed, uint64(id)))})
		}
	}
	var wg sync.WaitGroup
	errs := make(chan error, len(clients))
	for _, c := range clients {
		wg.Go(func() {
			for time.Since(begin) < length {
				if err := work(c); err != nil {
					errs <- fmt.Errorf("client %d: %w", c.id, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	var all []porcupine.Operation
	for _, c := range clients {
		all = append(all, c.log...)
	}
	return all
}

// check looks for an order of all operations that the model explains.
func check(t *testing.T, model porcupine.Model, ops []porcupine.Operation) {
	t.Helper()
	t.Logf("%d operations", len(ops))
	switch porcupine.CheckOperationsTimeout(model, ops, time.Minute) {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		t.Fatal("no verdict within a minute")
	}
	for _, s := range blamed(model, ops) {
		t.Log(s)
	}
	t.Fatal("no order of the operations explains what was seen")
}

// until returns the first n operations to end and what had begun by then and
// changes something.
func until(byEnd []porcupine.Operation, n int) []porcupine.Operation {
	ops := slices.Clone(byEnd[:n])
	for _, op := range byEnd[n:] {
		if o, ok := op.Input.(slotOp); ok && o.write == 0 {
			continue
		}
		if op.Call < byEnd[n-1].Return {
			ops = append(ops, op)
		}
	}
	return ops
}

// blamed lists the shortest history from the start that has no explanation.
func blamed(model porcupine.Model, ops []porcupine.Operation) (lines []string) {
	parts := [][]porcupine.Operation{ops}
	if model.Partition != nil {
		parts = model.Partition(ops)
	}
	for _, part := range parts {
		if porcupine.CheckOperations(model, part) {
			continue
		}
		byEnd := slices.SortedFunc(slices.Values(part), func(a, b porcupine.Operation) int { return int(a.Return - b.Return) })
		lo, hi := 1, len(byEnd)
		for lo < hi {
			mid := (lo + hi) / 2
			if ok := porcupine.CheckOperationsTimeout(model, until(byEnd, mid), 5*time.Second); ok != porcupine.Illegal {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		for _, op := range until(byEnd, lo)[max(0, lo-12):] {
			lines = append(lines, fmt.Sprintf("%12d–%12d client %d: %s", op.Call, op.Return, op.ClientId, model.DescribeOperation(op.Input, op.Output)))
		}
		return lines
	}
	return lines
}
