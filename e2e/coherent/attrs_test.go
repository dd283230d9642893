package coherent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// attrFiles is how many files the clients share.
const attrFiles = 2

// attrOp is an operation on one property of a file: its mode, its size, or the flock
// on it. Each has a history of its own: together they are linearizable when each is
// (Herlihy and Wing 1990, locality).
type attrOp struct {
	file     int
	property string // mode, size, lock
	set      int    // what it becomes; -1: it is looked at. A lock: the client that takes it, 0: it lets go
	client   int
}

var attrModel = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, op := range ops {
			o := op.Input.(attrOp)
			key := fmt.Sprint(o.file, o.property)
			parts[key] = append(parts[key], op)
		}
		var all [][]porcupine.Operation
		for _, part := range parts {
			all = append(all, part)
		}
		return all
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		o, now, saw := input.(attrOp), state.(int), output.(int)
		switch {
		case o.set < 0:
			return saw == now, now
		case o.property == "lock" && o.set > 0: // saw: whether it was taken
			if now != 0 {
				return saw == 0, now
			}
			return saw == 1, o.set
		case o.property == "lock":
			return now == o.client, 0
		}
		return true, o.set
	},
	DescribeOperation: func(input, output any) string {
		o := input.(attrOp)
		return fmt.Sprintf("client %d: %s of file %d := %d → %d", o.client, o.property, o.file, o.set, output)
	},
}

// TestAttributes lets clients on two and three mounts change and look at modes and
// sizes of the same files, and lock them without waiting.
func TestAttributes(t *testing.T) { onMounts(t, testAttributes) }

func testAttributes(t *testing.T, d *devtest.Dev) {
	for i := range attrFiles {
		path := filepath.Join(d.Mounts[0], fmt.Sprint("file", i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	const clients = 2 // a mount
	hands := make([]hand, clients*len(d.Mounts))
	for i := range hands {
		hands[i].open(t, d.Mounts[i%len(d.Mounts)])
	}
	ops := run(t, d.Mounts, clients, duration, func(c *client) error { return hands[c.id].step(c) })
	check(t, attrModel, ops)
	taken, refused := 0, 0
	for _, op := range ops {
		if o := op.Input.(attrOp); o.property == "lock" && o.set > 0 {
			taken += op.Output.(int)
			refused += 1 - op.Output.(int)
		}
	}
	t.Logf("%d locks taken, %d refused", taken, refused)
	if taken == 0 || refused == 0 {
		t.Error("nobody met anybody")
	}
}

// hand is a client's open files, and which of them it has locked.
type hand struct {
	files  [attrFiles]*os.File
	locked [attrFiles]bool
}

func (h *hand) open(t *testing.T, mount string) {
	t.Helper()
	for i := range h.files {
		f, err := os.OpenFile(filepath.Join(mount, fmt.Sprint("file", i)), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		h.files[i] = f
	}
}

func (h *hand) step(c *client) (err error) {
	o := attrOp{
		file: c.rand.IntN(attrFiles), property: []string{"mode", "size", "lock"}[c.rand.IntN(3)], set: -1, client: c.id + 1,
	}
	switch {
	case o.property == "lock" && h.locked[o.file]:
		o.set = 0
	case o.property == "lock":
		o.set = o.client
	case c.rand.IntN(2) == 0:
		o.set = c.rand.IntN(0o777)
	}
	c.do(o, func() any {
		var saw int
		saw, err = h.call(o)
		return saw
	})
	if err != nil {
		return fmt.Errorf("%s of file %d: %w", o.property, o.file, err)
	}
	time.Sleep(time.Duration(c.rand.IntN(3000)) * time.Microsecond)
	return nil
}

func (h *hand) call(o attrOp) (saw int, err error) {
	f := h.files[o.file]
	fd := int(f.Fd())
	var st unix.Stat_t
	switch {
	case o.property == "lock" && o.set == 0:
		h.locked[o.file] = false
		return 0, unix.Flock(fd, unix.LOCK_UN)
	case o.property == "lock":
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == unix.EWOULDBLOCK {
			return 0, nil
		}
		h.locked[o.file] = err == nil
		return 1, err
	case o.set >= 0 && o.property == "mode":
		return 0, unix.Chmod(f.Name(), uint32(o.set))
	case o.set >= 0:
		return 0, unix.Ftruncate(fd, int64(o.set))
	}
	if err := unix.Stat(f.Name(), &st); err != nil {
		return 0, err
	}
	if o.property == "mode" {
		return int(st.Mode & 0o7777), nil
	}
	return int(st.Size), nil
}

// TestAttrModelNotices: the model finds a stale look, a lock that two have, and one that
// is refused though it is free.
func TestAttrModelNotices(t *testing.T) {
	op := func(o attrOp, saw int, call, ret int64) porcupine.Operation {
		return porcupine.Operation{ClientId: o.client, Input: o, Output: saw, Call: call, Return: ret}
	}
	take := func(client, saw int, call, ret int64) porcupine.Operation {
		return op(attrOp{0, "lock", client, client}, saw, call, ret)
	}
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"stale":        {[]porcupine.Operation{op(attrOp{0, "mode", 7, 1}, 0, 1, 2), op(attrOp{0, "mode", -1, 2}, 0, 3, 4)}, false},
		"overlapping":  {[]porcupine.Operation{op(attrOp{0, "mode", 7, 1}, 0, 1, 4), op(attrOp{0, "mode", -1, 2}, 0, 2, 3)}, true},
		"another file": {[]porcupine.Operation{op(attrOp{0, "mode", 7, 1}, 0, 1, 2), op(attrOp{1, "mode", -1, 2}, 0, 3, 4)}, true},
		"both have it": {[]porcupine.Operation{take(1, 1, 1, 2), take(2, 1, 3, 4)}, false},
		"refused":      {[]porcupine.Operation{take(1, 1, 1, 2), take(2, 0, 3, 4)}, true},
		"free":         {[]porcupine.Operation{take(2, 0, 3, 4)}, false},
	} {
		if ok := porcupine.CheckOperations(attrModel, c.ops); ok != c.ok {
			t.Errorf("%s: %v", name, ok)
		}
	}
}
