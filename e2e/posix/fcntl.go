package posix

import (
	"golang.org/x/sys/unix"
)

const (
	rd, wr, un = unix.F_RDLCK, unix.F_WRLCK, unix.F_UNLCK
	set, wait  = unix.F_SETLK, unix.F_SETLKW
)

// lockStep is one step of a table: process 0 or 1 asks for a lock.
type lockStep struct {
	who        int
	typ        int16
	start, len int64
	want       unix.Errno
}

// lockTables are sequences of F_SETLK by two processes on one file.
var lockTables = []struct {
	name  string
	steps []lockStep
}{
	{"writers exclude writers and readers", []lockStep{
		{0, wr, 0, 10, 0}, {1, wr, 0, 10, unix.EAGAIN}, {1, rd, 0, 10, unix.EAGAIN}, {1, rd, 9, 1, unix.EAGAIN},
		{1, wr, 10, 10, 0}, {0, wr, 10, 1, unix.EAGAIN}, {0, un, 0, 10, 0}, {1, wr, 0, 10, 0},
	}},
	{"readers share and keep writers out", []lockStep{
		{0, rd, 0, 10, 0}, {1, rd, 0, 10, 0}, {1, wr, 0, 10, unix.EAGAIN}, {0, wr, 0, 10, unix.EAGAIN},
		{0, un, 0, 10, 0}, {1, wr, 0, 10, 0}, {0, rd, 0, 1, unix.EAGAIN},
	}},
	{"unlocking the middle splits", []lockStep{
		{0, wr, 0, 30, 0}, {0, un, 10, 10, 0}, {1, wr, 10, 10, 0}, {1, wr, 9, 1, unix.EAGAIN}, {1, wr, 20, 1, unix.EAGAIN},
		{1, un, 0, 100, 0}, {0, wr, 10, 10, 0}, {1, rd, 15, 1, unix.EAGAIN},
	}},
	{"upgrading and downgrading part of a range", []lockStep{
		{0, rd, 0, 30, 0}, {0, wr, 10, 10, 0}, {1, rd, 0, 10, 0}, {1, rd, 10, 1, unix.EAGAIN}, {1, rd, 20, 10, 0},
		{0, rd, 10, 10, 0}, {1, rd, 10, 10, 0}, {0, wr, 0, 1, unix.EAGAIN},
	}},
	{"neighbours join and are freed together", []lockStep{
		{0, wr, 0, 10, 0}, {0, wr, 10, 10, 0}, {0, wr, 5, 10, 0}, {0, un, 0, 20, 0}, {1, wr, 0, 20, 0},
	}},
	{"length zero is to the end, also of a file that grows", []lockStep{
		{0, wr, 100, 0, 0}, {1, wr, 99, 1, 0}, {1, wr, 100, 1, unix.EAGAIN}, {1, rd, 1 << 60, 1, unix.EAGAIN},
		{0, un, 1000, 0, 0}, {1, wr, 1000, 0, 0}, {1, wr, 999, 1, unix.EAGAIN},
	}},
	{"negative lengths reach back", []lockStep{
		{0, wr, 20, -10, 0}, {1, wr, 0, 10, 0}, {1, wr, 19, 1, unix.EAGAIN}, {1, wr, 20, 10, 0}, {0, wr, 5, -10, unix.EINVAL},
	}},
	{"the largest offsets", []lockStep{
		{0, wr, 1<<63 - 1, 1, 0}, {1, wr, 1<<63 - 1, 1, unix.EAGAIN}, {1, wr, 0, 1<<63 - 1, 0}, {1, wr, 1<<63 - 1, 2, unix.EOVERFLOW},
		{1, wr, -1, 1, unix.EINVAL},
	}},
	{"a refused request changes nothing", []lockStep{
		{0, wr, 10, 10, 0}, {1, rd, 0, 10, 0}, {1, wr, 0, 20, unix.EAGAIN}, {0, rd, 0, 10, 0}, {0, wr, 0, 1, unix.EAGAIN},
	}},
	{"own locks never conflict", []lockStep{
		{0, wr, 0, 10, 0}, {0, rd, 0, 10, 0}, {0, wr, 0, 10, 0}, {0, wr, 0, 0, 0}, {0, un, 5, 1, 0}, {1, wr, 5, 1, 0}, {0, wr, 0, 0, unix.EAGAIN},
	}},
	{"unlocking what is not held", []lockStep{
		{0, un, 0, 0, 0}, {1, wr, 0, 10, 0}, {0, un, 0, 10, 0}, {0, wr, 0, 10, unix.EAGAIN},
	}},
}

var fcntlGroup = Group{"fcntl", Join(lockTableCases(), []Case{
	{Name: "a waiter gets the range when it is free", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		for _, typ := range []int16{wr, rd} {
			c.OK(a.Lock(fa, set, wr, 0, 100), "lock")
			b.BeginLock(fb, wait, typ, 50, 10)
			c.OK(a.Lock(fa, set, un, 0, 50), "unlock the other half")
			c.OK(a.Lock(fa, set, un, 50, 50), "unlock")
			c.OK(b.Finish(), "the waiter")
			c.Want(unix.EAGAIN, a.Lock(fa, set, wr, 50, 10), "lock of what the waiter holds")
			c.OK(b.Lock(fb, set, un, 0, 0), "unlock")
		}
	}},
	{Name: "a waiter does not get it by half of its range", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 20), "lock")
		b.BeginLock(fb, wait, wr, 0, 20)
		c.OK(a.Lock(fa, set, un, 0, 10), "unlock half")
		c.OK(a.Lock(fa, set, wr, 0, 10), "lock the half again")
		c.OK(a.Lock(fa, set, un, 0, 20), "unlock all")
		c.OK(b.Finish(), "the waiter")
	}},
	{Name: "a waiting reader gets it when the writer downgrades", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 10), "lock")
		b.BeginLock(fb, wait, rd, 0, 10)
		c.OK(a.Lock(fa, set, rd, 0, 10), "downgrade")
		c.OK(b.Finish(), "the waiter")
	}},
	{Name: "a signal interrupts a waiter, which then holds nothing", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 10), "lock")
		c.OK(b.Lock(fb, set, rd, 20, 5), "lock elsewhere")
		b.BeginLock(fb, wait, wr, 0, 30)
		b.Interrupt()
		c.Want(unix.EINTR, b.Finish(), "the interrupted waiter")
		c.OK(a.Lock(fa, set, un, 0, 10), "unlock")
		c.OK(a.Lock(fa, set, wr, 0, 20), "lock what the waiter asked for")
		c.OK(a.Lock(fa, set, rd, 20, 5), "read lock beside the waiter's own")
		c.Want(unix.EAGAIN, a.Lock(fa, set, wr, 20, 5), "the waiter's own lock stays")
	}},
	{Name: "any close of the file drops the process's locks", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 10), "lock")
		other := a.Open(c.P("f"), unix.O_RDONLY)
		c.Want(unix.EAGAIN, b.Lock(fb, set, wr, 0, 10), "lock while held")
		a.Close(other)
		c.OK(b.Lock(fb, set, wr, 0, 10), "lock after another descriptor was closed")
	}},
	{Name: "closing a duplicate drops them too and wakes a waiter", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 10), "lock")
		dup := a.Dup(fa)
		b.BeginLock(fb, wait, wr, 0, 10)
		a.Close(dup)
		c.OK(b.Finish(), "the waiter")
	}},
	{Name: "death of the holder releases", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 10), "lock")
		b.BeginLock(fb, wait, wr, 5, 1)
		a.Kill()
		c.OK(b.Finish(), "the waiter")
	}},
	{Name: "death of a waiter leaves nothing behind", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 10), "lock")
		b.BeginLock(fb, wait, wr, 0, 10)
		b.Kill()
		c.OK(a.Lock(fa, set, un, 0, 0), "unlock")
		d := c.Agent()
		c.OK(d.Lock(d.Open(c.Q("f"), unix.O_RDWR), set, wr, 0, 0), "lock by a third")
	}},
	{Name: "F_GETLK names the lock in the way", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		Eq(c, a.GetLock(fa, unix.F_GETLK, wr, 0, 0).Type, un, "type when all is free")
		c.OK(a.Lock(fa, set, rd, 10, 20), "lock")
		Eq(c, a.GetLock(fa, unix.F_GETLK, wr, 0, 0).Type, un, "type of one's own lock")
		Eq(c, b.GetLock(fb, unix.F_GETLK, rd, 0, 0).Type, un, "type for a reader")
		got := b.GetLock(fb, unix.F_GETLK, wr, 0, 0)
		Eq(c, got.Type, rd, "type")
		Eq(c, got.Start, 10, "start")
		Eq(c, got.Len, 20, "length")
		Eq(c, got.Whence, 0, "whence")
		if c.dir == c.peer {
			Eq(c, got.Pid, int32(a.PID()), "process")
		}
		Eq(c, b.GetLock(fb, unix.F_GETLK, wr, 30, 5).Type, un, "type beside the lock")
	}},
	{Name: "access mode limits the type", Needs: locks, Fn: func(c *C) {
		c.put(c.P("f"), nil)
		a := c.Agent()
		r, w := a.Open(c.P("f"), unix.O_RDONLY), a.Open(c.P("f"), unix.O_WRONLY)
		c.Want(unix.EBADF, a.Lock(r, set, wr, 0, 1), "write lock by a read-only handle")
		c.Want(unix.EBADF, a.Lock(w, set, rd, 0, 1), "read lock by a write-only handle")
		c.OK(a.Lock(r, set, rd, 0, 1), "read lock")
		c.OK(a.Lock(w, set, wr, 5, 1), "write lock")
		c.Want(unix.EINVAL, a.Lock(w, set, 77, 5, 1), "unknown type")
	}},
	{Name: "a deadlock is refused or can be interrupted", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 1), "lock 0")
		c.OK(b.Lock(fb, set, wr, 1, 1), "lock 1")
		a.BeginLock(fa, wait, wr, 1, 1)
		b.send(lockRequest(fb, wait, wr, 0, 1))
		if !eventually(300e6, func() bool { return len(b.replies) > 0 }) {
			b.Interrupt()
		}
		c.WantIn(b.Finish(), []unix.Errno{unix.EDEADLK, unix.EINTR}, "the lock that closes the circle")
		c.OK(b.Lock(fb, set, un, 1, 1), "unlock 1")
		c.OK(a.Finish(), "the waiter")
	}},
	{Name: "exec and threads share the process's locks", Needs: locks, Fn: func(c *C) {
		c.put(c.P("f"), nil)
		x, y := c.open(c.P("f"), unix.O_RDWR), c.open(c.P("f"), unix.O_RDWR)
		lk := unix.Flock_t{Type: wr, Len: 10}
		c.OK(unix.FcntlFlock(uintptr(x), set, &lk), "lock by one descriptor")
		c.OK(unix.FcntlFlock(uintptr(y), set, &lk), "lock by another of the same process")
		c.Go(func() { c.OK(unix.FcntlFlock(uintptr(y), set, &lk), "lock by a thread") })
		a := c.Agent()
		c.Want(unix.EAGAIN, a.Lock(a.Open(c.Q("f"), unix.O_RDWR), set, wr, 0, 1), "lock by another process")
	}},
	{Name: "OFD locks belong to the open file", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		second := a.Open(c.P("f"), unix.O_RDWR)
		c.OK(a.Lock(fa, unix.F_OFD_SETLK, wr, 0, 10), "OFD lock")
		c.Want(unix.EAGAIN, a.Lock(second, unix.F_OFD_SETLK, wr, 0, 10), "OFD lock by a second open of the process")
		c.Want(unix.EAGAIN, b.Lock(fb, unix.F_OFD_SETLK, rd, 0, 10), "OFD lock by another process")
		c.Want(unix.EAGAIN, b.Lock(fb, set, wr, 0, 10), "POSIX lock against an OFD lock")
		a.Close(second)
		c.Want(unix.EAGAIN, b.Lock(fb, unix.F_OFD_SETLK, wr, 0, 10), "OFD lock after an unrelated close")
		dup := a.Dup(fa)
		a.Close(fa)
		c.Want(unix.EAGAIN, b.Lock(fb, unix.F_OFD_SETLK, wr, 0, 10), "OFD lock while a duplicate is open")
		got := b.GetLock(fb, unix.F_OFD_GETLK, wr, 0, 0)
		Eq(c, got.Type, wr, "type")
		Eq(c, got.Len, 10, "length")
		b.BeginLock(fb, unix.F_OFD_SETLKW, wr, 0, 10)
		a.Close(dup)
		c.OK(b.Finish(), "the waiter")
	}},
	{Name: "an OFD waiter is interrupted", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, unix.F_OFD_SETLK, wr, 0, 0), "lock")
		b.BeginLock(fb, unix.F_OFD_SETLKW, rd, 3, 1)
		b.Interrupt()
		c.Want(unix.EINTR, b.Finish(), "the interrupted waiter")
	}},
	{Name: "locks outlive unlink and rename of the file", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 10), "lock")
		c.OK(unix.Rename(c.P("f"), c.P("g")), "rename")
		c.Want(unix.EAGAIN, b.Lock(fb, set, wr, 0, 10), "lock after rename")
		c.OK(unix.Unlink(c.P("g")), "unlink")
		c.Want(unix.EAGAIN, b.Lock(fb, set, wr, 0, 10), "lock after unlink")
		c.OK(a.Lock(fa, set, un, 0, 0), "unlock")
		c.OK(b.Lock(fb, set, wr, 0, 10), "lock")
	}},
	{Name: "two hundred ranges of one file", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		for i := range int64(200) {
			c.OK(a.Lock(fa, set, wr, i*10, 5), "lock %d", i)
		}
		for i := range int64(200) {
			c.Want(unix.EAGAIN, b.Lock(fb, set, wr, i*10+4, 1), "lock inside %d", i)
			c.OK(b.Lock(fb, set, wr, i*10+5, 5), "lock between %d", i)
		}
		a.Close(fa)
		c.OK(b.Lock(fb, set, wr, 0, 0), "lock of all")
	}},
	{Name: "waiters queue and all are served", Needs: locks, Fn: func(c *C) {
		a, _, fa, _ := flockPair(c)
		c.OK(a.Lock(fa, set, wr, 0, 1), "lock")
		var waiters []*Agent
		for i := range 4 {
			w := c.Agent()
			w.BeginLock(w.Open(c.Sides()[i%2]("f"), unix.O_RDWR), wait, wr, 0, 1)
			waiters = append(waiters, w)
		}
		a.Kill()
		for len(waiters) > 0 {
			next := -1
			ok := eventually(10e9, func() bool {
				for i, w := range waiters {
					if len(w.replies) > 0 {
						next = i
						return true
					}
				}
				return false
			})
			if !ok {
				c.Fatalf("%d waiters were not served", len(waiters))
			}
			c.OK(waiters[next].Finish(), "a waiter")
			waiters[next].Kill()
			waiters = append(waiters[:next], waiters[next+1:]...)
		}
	}},
})}

// lockTableCases runs every table with POSIX locks and with OFD locks.
func lockTableCases() (cases []Case) {
	for _, cmd := range []struct {
		name string
		nr   int
	}{{"POSIX", set}, {"OFD", unix.F_OFD_SETLK}} {
		for _, t := range lockTables {
			cases = append(cases, Case{Name: cmd.name + " " + t.name, Needs: locks, Fn: func(c *C) {
				a, b, fa, fb := flockPair(c)
				agents, fds := []*Agent{a, b}, []int{fa, fb}
				for i, s := range t.steps {
					err := agents[s.who].Lock(fds[s.who], cmd.nr, s.typ, s.start, s.len)
					c.Want(s.want, err, "step %d: process %d, type %d, start %d, length %d", i, s.who, s.typ, s.start, s.len)
				}
			}})
		}
	}
	return cases
}
