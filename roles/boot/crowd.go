package boot

import (
	"container/list"
	"net"
	"sync"
)

// connsMost bounds the connections to a port for health and metrics, which is open to
// everybody in a cluster: each takes a descriptor and memory, of a keeper's for
// instance, with which all mounts of a node would end.
const connsMost = 64

// crowd is a listener with connsMost connections. A new one costs the oldest its place:
// strangers who only stay connected must not keep the kubelet from asking.
type crowd struct {
	net.Listener
	mu   sync.Mutex
	open list.List // of *guest, the oldest first
}

// guest is one connection in a crowd.
type guest struct {
	net.Conn
	of *crowd
	at *list.Element
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: conn, of: c}
	if oldest := c.add(g); oldest != nil {
		oldest.Close()
	}
	return g, nil
}

// add returns who has to go, nil for nobody.
func (c *crowd) add(g *guest) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.at = c.open.PushBack(g)
	if c.open.Len() <= connsMost {
		return nil
	}
	return c.open.Front().Value.(*guest)
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.of.mu.Lock()
	g.of.open.Remove(g.at)
	g.of.mu.Unlock()
	return g.Conn.Close()
}
