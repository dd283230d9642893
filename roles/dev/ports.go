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

// freePorts finds n ports that nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for p := portFirst; p <= portLast && len(ports) < n; p++ {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", loopback, p))
		if err != nil {
			continue
		}
		l.Close()
		ports = append(ports, p)
	}
	if len(ports) < n {
		return nil, errors.New("no free ports for the replicas")
	}
	return ports, nil
}
