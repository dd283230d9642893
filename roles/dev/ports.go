package dev

import (
	"errors"
	"fmt"
	"net"
)

// Ports of replicas lie below those that the kernel gives to outgoing
// connections, so that a worker that comes back finds its own free.
const (
	portFirst = 20000
	portLast  = 20999
)

// ports are those of one dev's replicas, kept from every other dev as long as
// it runs: also while a replica does not listen because it is about to start, or
// to start again.
type ports struct {
	numbers []int
	held    []net.Listener
}

// reservePorts takes n ports that nobody listens on and no other dev has. What
// stands for a port is a name for local sockets that the kernel gives up with
// the process.
func reservePorts(n int) (*ports, error) {
	r := &ports{}
	for p := portFirst; p <= portLast && len(r.numbers) < n; p++ {
		name, err := net.Listen("unix", fmt.Sprintf("@tak-replicated/dev/port/%d", p))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", loopback, p))
		if err != nil {
			name.Close()
			continue
		}
		l.Close()
		r.numbers, r.held = append(r.numbers, p), append(r.held, name)
	}
	if len(r.numbers) < n {
		r.release()
		return nil, errors.New("no free ports for the replicas")
	}
	return r, nil
}

func (r *ports) release() {
	for _, l := range r.held {
		l.Close()
	}
}
