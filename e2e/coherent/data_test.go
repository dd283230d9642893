package coherent

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// Slots lie on two pages, two a page.
var slots = []int64{0, 2048, 4096, 6144}

type slotOp struct {
	slot  int
	write uint64 // 0: a read
}

var slotModel = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, len(slots))
		for _, op := range ops {
			s := op.Input.(slotOp).slot
			parts[s] = append(parts[s], op)
		}
		return parts
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		if o := input.(slotOp); o.write != 0 {
			return true, o.write
		}
		return output.(uint64) == state.(uint64), state
	},
	DescribeOperation: func(input, output any) string {
		if o := input.(slotOp); o.write != 0 {
			return fmt.Sprintf("write %d to slot %d", o.write, o.slot)
		}
		return fmt.Sprintf("read %d from slot %d", output, input.(slotOp).slot)
	},
}

// TestData lets clients on two and three mounts read and write the same few places of
// a file that all of them keep open, without locks.
func TestData(t *testing.T) { onMounts(t, testData) }

func testData(t *testing.T, d *devtest.Dev) {
	if err := os.WriteFile(filepath.Join(d.Mounts[0], "file"), make([]byte, 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	files := map[string]*os.File{}
	for _, m := range d.Mounts {
		f, err := os.OpenFile(filepath.Join(m, "file"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[m] = f
	}
	ops := run(t, d.Mounts, 2, duration, func(c *client) error { return c.slotStep(files[c.mount]) })
	check(t, slotModel, withoutEarly(ops, len(d.Mounts)))
}

// withoutEarly leaves out reads that saw a write of their own node before that had
// returned: the kernel shows a write in its pages before it sends it.
func withoutEarly(ops []porcupine.Operation, mounts int) []porcupine.Operation {
	writes := map[uint64]porcupine.Operation{}
	for _, op := range ops {
		if o := op.Input.(slotOp); o.write != 0 {
			writes[o.write] = op
		}
	}
	return slices.DeleteFunc(ops, func(op porcupine.Operation) bool {
		if op.Input.(slotOp).write != 0 {
			return false
		}
		w, ok := writes[op.Output.(uint64)]
		return ok && w.ClientId%mounts == op.ClientId%mounts && op.Call < w.Return
	})
}

func (c *client) slotStep(f *os.File) (err error) {
	o := slotOp{slot: c.rand.IntN(len(slots))}
	if c.rand.IntN(3) == 0 {
		o.write = uint64(c.id+1)<<32 | uint64(len(c.log)+1)
	}
	c.do(o, func() any {
		var b [8]byte
		if o.write != 0 {
			binary.NativeEndian.PutUint64(b[:], o.write)
			_, err = f.WriteAt(b[:], slots[o.slot])
			return o.write
		}
		_, err = f.ReadAt(b[:], slots[o.slot])
		return binary.NativeEndian.Uint64(b[:])
	})
	time.Sleep(time.Duration(c.rand.IntN(2000)) * time.Microsecond)
	return err
}
