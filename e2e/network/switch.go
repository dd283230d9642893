package network

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"time"
)

// Rule is what happens to the packets from one namespace to another.
type Rule struct {
	Loss  float64 // part of them that is dropped, 0 to 1
	Delay time.Duration
	// Jitter is up to how much later each packet is passed on besides, so that they
	// overtake each other.
	Jitter time.Duration
}

// Cut drops everything.
var Cut = Rule{Loss: 1}

// The switch's network.
const (
	network   = "10.88.0."
	headBytes = 20 // of an IPv4 packet; its receiver is at its end
)

// Switch joins namespaces. Safe for concurrent use once all are added.
type Switch struct {
	spaces  map[byte]*namespace // by the last byte of the address
	reading sync.WaitGroup

	mu struct {
		sync.Mutex
		dice    *rand.Rand
		rules   map[[2]byte]Rule // sender and receiver
		dropped int
		late    int
	}
}

// NewSwitch makes one without namespaces. The seed chooses which packets are lost.
func NewSwitch(seed uint64) *Switch {
	s := &Switch{spaces: map[byte]*namespace{}}
	s.mu.dice, s.mu.rules = rand.New(rand.NewPCG(seed, 88)), map[[2]byte]Rule{}
	return s
}

// Addr is the address of a number.
func Addr(n byte) string { return fmt.Sprint(network, n) }

// Add makes a namespace with a number's address.
func (s *Switch) Add(n byte) error {
	ns, err := newNamespace([4]byte{10, 88, 0, n})
	if err != nil {
		return err
	}
	s.spaces[n] = ns
	return nil
}

// Run passes packets on from now on, until Close.
func (s *Switch) Run() {
	for n, ns := range s.spaces {
		s.reading.Go(func() { s.read(n, ns) })
	}
}

// Start starts a process in a namespace.
func (s *Switch) Start(n byte, cmd *exec.Cmd) error { return s.spaces[n].start(cmd) }

// Close ends the switch and lets go of the namespaces.
func (s *Switch) Close() error {
	var errs []error
	for _, ns := range s.spaces {
		errs = append(errs, ns.close())
	}
	s.reading.Wait()
	return errors.Join(errs...)
}

// Set makes the rule for packets from one namespace to another.
func (s *Switch) Set(from, to byte, r Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rules[[2]byte{from, to}] = r
}

// Heal forgets all rules, and returns how many packets they have dropped and
// delayed.
func (s *Switch) Heal() (dropped, late int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.mu.rules)
	dropped, late = s.mu.dropped, s.mu.late
	s.mu.dropped, s.mu.late = 0, 0
	return dropped, late
}

// read passes on what a namespace sends.
func (s *Switch) read(from byte, ns *namespace) {
	buf := make([]byte, mtuBytes+headBytes)
	for {
		n, err := ns.tun.Read(buf)
		if err != nil {
			return // it was closed
		}
		if n < headBytes || buf[0]>>4 != 4 {
			continue
		}
		to, ok := s.spaces[buf[headBytes-1]]
		if !ok {
			continue
		}
		pass, wait := s.judge(from, buf[headBytes-1])
		switch {
		case !pass:
		case wait == 0:
			_, _ = to.tun.Write(buf[:n]) // what can't be passed on is lost
		default:
			packet := append([]byte(nil), buf[:n]...)
			time.AfterFunc(wait, func() { _, _ = to.tun.Write(packet) })
		}
	}
}

// judge says what happens to one packet.
func (s *Switch) judge(from, to byte) (pass bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.mu.rules[[2]byte{from, to}]
	if !ok {
		return true, 0
	}
	if s.mu.dice.Float64() < r.Loss {
		s.mu.dropped++
		return false, 0
	}
	wait = r.Delay
	if r.Jitter > 0 {
		wait += time.Duration(s.mu.dice.Int64N(int64(r.Jitter)))
	}
	if wait > 0 {
		s.mu.late++
	}
	return true, wait
}
