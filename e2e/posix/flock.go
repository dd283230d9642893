package posix

import (
	"time"

	"golang.org/x/sys/unix"
)

var locks = []Cap{CapLocks}

var flockGroup = Group{"flock", []Case{
	{Name: "exclusive excludes, shared is shared", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_EX|unix.LOCK_NB), "first LOCK_EX")
		c.Want(unix.EAGAIN, b.Flock(fb, unix.LOCK_EX|unix.LOCK_NB), "second LOCK_EX")
		c.Want(unix.EAGAIN, b.Flock(fb, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH beside LOCK_EX")
		c.OK(a.Flock(fa, unix.LOCK_UN), "unlock")
		c.OK(b.Flock(fb, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH")
		c.OK(a.Flock(fa, unix.LOCK_SH|unix.LOCK_NB), "second LOCK_SH")
		c.Want(unix.EAGAIN, a.Flock(fa, unix.LOCK_EX|unix.LOCK_NB), "upgrade beside another LOCK_SH")
		c.OK(b.Flock(fb, unix.LOCK_UN), "unlock")
		c.OK(a.Flock(fa, unix.LOCK_EX|unix.LOCK_NB), "upgrade alone")
		c.Want(unix.EAGAIN, b.Flock(fb, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH after the upgrade")
		c.OK(a.Flock(fa, unix.LOCK_SH|unix.LOCK_NB), "downgrade")
		c.OK(b.Flock(fb, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH after the downgrade")
	}},
	{Name: "a lock that can't be had as another one is gone", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH")
		c.OK(b.Flock(fb, unix.LOCK_SH|unix.LOCK_NB), "second LOCK_SH")
		c.Want(unix.EAGAIN, a.Flock(fa, unix.LOCK_EX|unix.LOCK_NB), "upgrade beside another LOCK_SH")
		c.OK(b.Flock(fb, unix.LOCK_EX|unix.LOCK_NB), "upgrade of the other")
	}},
	{Name: "two that share and both want it alone", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_SH), "LOCK_SH")
		c.OK(b.Flock(fb, unix.LOCK_SH), "second LOCK_SH")
		a.BeginFlock(fa, unix.LOCK_EX)
		b.send(request{Op: "flock", Fd: fb, Flags: unix.LOCK_EX})
		first, then, fd := b, a, fb // as a rule: the other has given up what is in its way
		select {
		case r := <-a.replies:
			Eq(c, r.Errno, 0, "upgrade of the first")
			first, then, fd = a, b, fa
		case r := <-b.replies:
			Eq(c, r.Errno, 0, "upgrade of the second, beside one that waits for its own")
		case <-time.After(20 * time.Second):
			c.Fatalf("they wait for each other")
		}
		c.OK(first.Flock(fd, unix.LOCK_UN), "unlock")
		c.OK(then.Finish(), "upgrade of the other")
	}},
	{Name: "a waiter gets it when it is released", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		for _, how := range []int{unix.LOCK_EX, unix.LOCK_SH} {
			c.OK(a.Flock(fa, unix.LOCK_EX), "LOCK_EX")
			b.BeginFlock(fb, how)
			c.OK(a.Flock(fa, unix.LOCK_UN), "unlock")
			c.OK(b.Finish(), "the waiter")
			c.OK(b.Flock(fb, unix.LOCK_UN), "unlock")
		}
	}},
	{Name: "a waiter gets it when the holder downgrades", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_EX), "LOCK_EX")
		b.BeginFlock(fb, unix.LOCK_SH)
		c.OK(a.Flock(fa, unix.LOCK_SH), "downgrade")
		c.OK(b.Finish(), "the waiter")
	}},
	{Name: "several shared waiters all get it", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		d := c.Agent()
		fd := d.Open(c.P("f"), unix.O_RDWR)
		c.OK(a.Flock(fa, unix.LOCK_EX), "LOCK_EX")
		b.BeginFlock(fb, unix.LOCK_SH)
		d.BeginFlock(fd, unix.LOCK_SH)
		c.OK(a.Flock(fa, unix.LOCK_UN), "unlock")
		c.OK(b.Finish(), "first waiter")
		c.OK(d.Finish(), "second waiter")
	}},
	{Name: "closing the last descriptor releases, an earlier one does not", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_EX), "LOCK_EX")
		dup := a.Dup(fa)
		a.Close(fa)
		c.Want(unix.EAGAIN, b.Flock(fb, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX while a duplicate is open")
		b.BeginFlock(fb, unix.LOCK_EX)
		a.Close(dup)
		c.OK(b.Finish(), "the waiter")
	}},
	{Name: "what the last close released can be had at once", Needs: locks, Fn: func(c *C) {
		c.put(c.P("f"), nil)
		fd := c.open(c.P("f"), unix.O_RDWR)
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		for range 100 {
			x, err := unix.Open(c.P("f"), unix.O_RDWR|unix.O_CLOEXEC, 0)
			c.OK(err, "open")
			c.OK(unix.Flock(x, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX")
			c.OK(unix.FcntlFlock(uintptr(x), unix.F_OFD_SETLK, &lock), "OFD lock")
			c.OK(unix.Close(x), "close")
			c.OK(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX by the other")
			c.OK(unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock), "OFD lock by the other")
			c.OK(unix.Flock(fd, unix.LOCK_UN), "unlock")
			unlock := unix.Flock_t{Type: unix.F_UNLCK}
			c.OK(unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unlock), "OFD unlock")
		}
	}},
	{Name: "death of the holder releases", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_EX), "LOCK_EX")
		b.BeginFlock(fb, unix.LOCK_EX)
		a.Kill()
		c.OK(b.Finish(), "the waiter")
	}},
	{Name: "a signal interrupts a waiter, which then holds nothing", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_EX), "LOCK_EX")
		b.BeginFlock(fb, unix.LOCK_EX)
		b.Interrupt()
		c.Want(unix.EINTR, b.Finish(), "the interrupted waiter")
		c.OK(a.Flock(fa, unix.LOCK_UN), "unlock")
		c.OK(a.Flock(fa, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX again")
		c.OK(a.Flock(fa, unix.LOCK_UN), "unlock")
		c.OK(b.Flock(fb, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX by the one that was interrupted")
	}},
	{Name: "death of a waiter leaves no lock behind", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_EX), "LOCK_EX")
		b.BeginFlock(fb, unix.LOCK_EX)
		b.Kill()
		c.OK(a.Flock(fa, unix.LOCK_UN), "unlock")
		d := c.Agent()
		fd := d.Open(c.Q("f"), unix.O_RDWR)
		c.OK(d.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX by a third")
	}},
	{Name: "two opens of one process exclude each other", Needs: locks, Fn: func(c *C) {
		c.put(c.P("f"), nil)
		x, y := c.open(c.P("f"), unix.O_RDWR), c.open(c.P("f"), unix.O_RDWR)
		c.OK(unix.Flock(x, unix.LOCK_EX|unix.LOCK_NB), "first")
		c.Want(unix.EAGAIN, unix.Flock(y, unix.LOCK_EX|unix.LOCK_NB), "second")
		c.OK(unix.Flock(x, unix.LOCK_EX|unix.LOCK_NB), "the first again")
	}},
	{Name: "read-only handles and unlinked files lock", Needs: locks, Fn: func(c *C) {
		c.put(c.P("f"), nil)
		x, y := c.open(c.P("f"), unix.O_RDONLY), c.open(c.Q("f"), unix.O_RDONLY)
		c.OK(unix.Flock(x, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX")
		c.Want(unix.EAGAIN, unix.Flock(y, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH on the other side")
		c.OK(unix.Unlink(c.P("f")), "unlink")
		c.Want(unix.EAGAIN, unix.Flock(y, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH once unlinked")
		c.OK(unix.Flock(x, unix.LOCK_UN), "unlock")
		c.OK(unix.Flock(y, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH")
	}},
	{Name: "directories lock", Needs: []Cap{CapLocks, CapDirFlock}, Fn: func(c *C) {
		mustMkdir(c, "d", 0o755)
		x, y := c.open(c.P("d"), unix.O_RDONLY), c.open(c.Q("d"), unix.O_RDONLY)
		c.OK(unix.Flock(x, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX")
		c.Want(unix.EAGAIN, unix.Flock(y, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH on the other side")
		c.OK(unix.Flock(x, unix.LOCK_UN), "unlock")
		c.OK(unix.Flock(y, unix.LOCK_SH|unix.LOCK_NB), "LOCK_SH")
	}},
	{Name: "flock and fcntl locks do not meet", Needs: locks, Fn: func(c *C) {
		a, b, fa, fb := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX")
		c.OK(b.Lock(fb, unix.F_SETLK, unix.F_WRLCK, 0, 0), "fcntl lock beside it")
	}},
	{Name: "bad requests", Needs: locks, Fn: func(c *C) {
		c.put(c.P("f"), nil)
		fd := c.open(c.P("f"), unix.O_RDWR)
		c.Want(unix.EINVAL, unix.Flock(fd, 0), "no operation")
		c.Want(unix.EBADF, unix.Flock(9999, unix.LOCK_EX), "no descriptor")
		c.OK(unix.Flock(fd, unix.LOCK_UN), "unlocking what is not locked")
	}},
	{Name: "locks follow the file through rename, not the name", Needs: locks, Fn: func(c *C) {
		a, b, fa, _ := flockPair(c)
		c.OK(a.Flock(fa, unix.LOCK_EX), "LOCK_EX")
		c.OK(unix.Rename(c.P("f"), c.P("g")), "rename")
		c.put(c.P("f"), nil)
		c.OK(b.Flock(b.Open(c.Q("f"), unix.O_RDWR), unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX of the new file")
		c.Want(unix.EAGAIN, b.Flock(b.Open(c.Q("g"), unix.O_RDWR), unix.LOCK_EX|unix.LOCK_NB), "LOCK_EX of the renamed file")
	}},
	{Name: "a counter under a contended lock loses nothing", Needs: locks, Fn: func(c *C) {
		c.put(c.P("f"), []byte{0, 0})
		const rounds = 100
		worker := func(path string) func() {
			return func() {
				for range rounds {
					fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
					c.OK(err, "open")
					c.OK(flockWait(fd), "LOCK_EX")
					bump(c, fd)
					unix.Close(fd)
				}
			}
		}
		c.Go(worker(c.P("f")), worker(c.Q("f")), worker(c.P("f")), worker(c.Q("f")))
		got := c.get(c.P("f"))
		Eq(c, int(got[0])|int(got[1])<<8, 4*rounds, "counter")
	}},
}}

func flockWait(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

// bump adds one to the number in the first two bytes, by read and write.
func bump(c *C, fd int) {
	b := make([]byte, 2)
	_, err := unix.Pread(fd, b, 0)
	c.OK(err, "read the counter")
	n := int(b[0]) | int(b[1])<<8
	n++
	c.OK(writeAll(fd, []byte{byte(n), byte(n >> 8)}, 0), "write the counter")
}

// flockPair is two processes that have one file open, one on each side.
func flockPair(c *C) (a, b *Agent, fa, fb int) {
	c.put(c.P("f"), []byte("0123456789"))
	a, b = c.Agent(), c.Agent()
	return a, b, a.Open(c.P("f"), unix.O_RDWR), b.Open(c.Q("f"), unix.O_RDWR)
}
