package network

import (
	"net"
	"os"
	"testing"
	"time"
)

// dialLimit bounds an attempt to connect.
const dialLimit = 500 * time.Millisecond

// dials reports whether one namespace gets a connection to another, and the
// answer over it.
func dials(t *testing.T, s *Switch, from, to byte) bool {
	t.Helper()
	l, err := in(s.spaces[to], func() (net.Listener, error) { return net.Listen("tcp", Addr(to)+":0") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte{1}) // the dialler tells
			c.Close()
		}
	}()
	// The dialler's socket is made by the calling thread when the address is one.
	c, err := in(s.spaces[from], func() (net.Conn, error) {
		return (&net.Dialer{Timeout: dialLimit, LocalAddr: &net.TCPAddr{IP: net.ParseIP(Addr(from))}}).Dial("tcp", l.Addr().String())
	})
	if err != nil {
		return false
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(dialLimit)); err != nil {
		t.Fatal(err)
	}
	_, err = c.Read(make([]byte, 1))
	if err != nil && !os.IsTimeout(err) {
		t.Fatal(err)
	}
	return err == nil
}

// in calls a function on a namespace's thread.
func in[T any](ns *namespace, f func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	ns.work <- func() {
		defer close(done)
		value, err = f()
	}
	<-done
	return value, err
}
