package coherent

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
)

const names = 3

var (
	duration = 3 * time.Second
	entries  = 3000
)

func TestMain(m *testing.M) {
	flag.DurationVar(&duration, "coherent.for", duration, "how long clients work")
	flag.IntVar(&entries, "coherent.entries", entries, "how many entries of a directory are removed while it is listed")
	flag.Parse()
	os.Exit(m.Run())
}

// nameOp is an operation on names whose files say by their size which they are.
type nameOp struct {
	kind string // put, exclusive, get, stat, unlink, rename
	a, b int
	size int
}

// nameResult is the size that was seen, or -1 when there is no such name.
type nameResult int

const (
	absent nameResult = -1
	exists nameResult = -2
)

// nameState is the size of the file under each name; absent ones have -1.
type nameState [names]int

var nameModel = porcupine.Model{
	Init: func() any { return nameState{-1, -1, -1} },
	Step: func(state, input, output any) (bool, any) {
		s, o, r := state.(nameState), input.(nameOp), output.(nameResult)
		now := nameResult(s[o.a])
		switch o.kind {
		case "put":
			s[o.a] = o.size
			return r == 0, s
		case "exclusive":
			if now != absent {
				return r == exists, s
			}
			s[o.a] = 0
			return r == 0, s
		case "unlink":
			s[o.a] = -1
			return r == min(now, 0), s
		case "rename":
			if now == absent {
				// A kernel that finds one file under both names, the other node having
				// moved it between its two lookups, asks nobody and reports success.
				return r == absent || r == 0, s
			}
			s[o.a] = -1
			s[o.b] = int(now)
			return r == 0, s
		}
		return r == now, s
	},
	DescribeOperation: func(input, output any) string {
		o := input.(nameOp)
		return fmt.Sprintf("%s %d %d (size %d) → %d", o.kind, o.a, o.b, o.size, output)
	},
}

// TestNames lets clients on two and three mounts replace, create, move, remove and
// look at the same few names.
func TestNames(t *testing.T) { onMounts(t, testNames) }

func testNames(t *testing.T, d *devtest.Dev) {
	sizes := make(chan int)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for n := 1; ; n++ {
			select {
			case sizes <- n:
			case <-stop:
				return
			}
		}
	}()
	ops := run(t, d.Mounts, 2, duration, func(c *client) error { return c.nameStep(<-sizes) })
	check(t, nameModel, ops)
}

func (c *client) path(i int) string { return filepath.Join(c.mount, fmt.Sprint("name", i)) }

func (c *client) nameStep(size int) (err error) {
	o := nameOp{a: c.rand.IntN(names), b: c.rand.IntN(names), size: size}
	o.kind = []string{"put", "put", "exclusive", "get", "get", "stat", "stat", "unlink", "rename"}[c.rand.IntN(9)]
	if o.kind == "rename" && o.a == o.b {
		return nil
	}
	tmp := filepath.Join(c.mount, fmt.Sprintf("tmp%d", c.id))
	if o.kind == "put" {
		if err := os.WriteFile(tmp, make([]byte, size), 0o644); err != nil {
			return err
		}
	}
	c.do(o, func() any {
		var r nameResult
		r, err = c.nameCall(o, tmp)
		return r
	})
	if err != nil {
		return fmt.Errorf("%s: %w", o.kind, err)
	}
	time.Sleep(time.Duration(c.rand.IntN(3000)) * time.Microsecond)
	return nil
}

func (c *client) nameCall(o nameOp, tmp string) (nameResult, error) {
	var r nameResult
	var err error
	switch o.kind {
	case "put":
		err = os.Rename(tmp, c.path(o.a))
	case "exclusive":
		var fd int
		if fd, err = unix.Open(c.path(o.a), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644); err == nil {
			err = unix.Close(fd)
		}
	case "get":
		var b []byte
		b, err = os.ReadFile(c.path(o.a))
		r = nameResult(len(b))
	case "stat":
		var st unix.Stat_t
		err = unix.Stat(c.path(o.a), &st)
		r = nameResult(st.Size)
	case "unlink":
		err = unix.Unlink(c.path(o.a))
	case "rename":
		err = os.Rename(c.path(o.a), c.path(o.b))
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return absent, nil
	case errors.Is(err, unix.EEXIST):
		return exists, nil
	}
	return r, err
}
