package replicahost

import "sync"

// ports gives each worker one port, and the same again.
type ports struct {
	first, last int
	mu          struct {
		sync.Mutex
		taken map[int]string // by which replica
	}
}

func newPorts(first, last int) *ports {
	p := &ports{first: first, last: last}
	p.mu.taken = map[int]string{}
	return p
}

// take returns want if it is free for key, else the lowest free port that is
// not want; 0 when there is none.
func (p *ports) take(key string, want int, avoid map[int]bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := func(n int) bool {
		by, taken := p.mu.taken[n]
		return n >= p.first && n <= p.last && (!taken || by == key) && !avoid[n]
	}
	if !free(want) {
		want = 0
		for n := p.first; n <= p.last && want == 0; n++ {
			if free(n) {
				want = n
			}
		}
	}
	if want == 0 {
		return 0
	}
	for n, by := range p.mu.taken {
		if by == key {
			delete(p.mu.taken, n)
		}
	}
	p.mu.taken[want] = key
	return want
}

// free lets others have the ports of key.
func (p *ports) free(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, by := range p.mu.taken {
		if by == key {
			delete(p.mu.taken, n)
		}
	}
}
