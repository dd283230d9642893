package replicahost

import (
	"cmp"
	"slices"
	"sync"

	"tak-os.org/tak-replicated/kube/api"
)

// seats are the places of a host's workers. Who books first has one first, and keeps it until it gives it back,
// whatever else it waits for: of more replicas than there are places the first are served, and on every node
// the same.
type seats struct {
	all int
	mu  struct {
		sync.Mutex
		taken int
		line  []*seat // those that wait, in their order
	}
}

// seat is a place that was booked. granted is closed when it may be taken.
type seat struct{ granted chan struct{} }

func newSeats(all int) *seats { return &seats{all: all} }

// book returns a place, or one in the line for it.
func (s *seats) book() *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &seat{make(chan struct{})}
	if s.mu.taken == s.all {
		s.mu.line = append(s.mu.line, b)
		return b
	}
	s.mu.taken++
	close(b.granted)
	return b
}

// giveBack gives a place to the next in the line, or leaves the line.
func (s *seats) giveBack(b *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.mu.line, b); i >= 0 {
		s.mu.line = slices.Delete(s.mu.line, i, i+1)
		return
	}
	if len(s.mu.line) == 0 {
		s.mu.taken--
		return
	}
	close(s.mu.line[0].granted)
	s.mu.line = slices.Delete(s.mu.line, 0, 1)
}

// count is how many places are taken.
func (s *seats) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.taken
}

// arrivals remember in which order volumes appeared in the watch, which is that of the API
// server's revisions and so the same on all nodes that watched then: it tells volumes apart that were made in one
// second, as fine as their times are. A watch that begins tells of those that are there by name.
type arrivals struct {
	mu struct {
		sync.Mutex
		last uint64
		of   map[string]uint64
	}
}

// note takes a volume that the watch has told of.
func (a *arrivals) note(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.of == nil {
		a.mu.of = map[string]uint64{}
	}
	if _, known := a.mu.of[name]; !known {
		a.mu.last++
		a.mu.of[name] = a.mu.last
	}
}

// last is the latest arrival so far.
func (a *arrivals) last() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.last
}

// order sorts volumes by the second in which they were made, and those of one by their arrival. It forgets arrivals until before of volumes
// that are not among them. What the watch has not told of yet comes last in its second.
func (a *arrivals) order(volumes []*api.ReplicatedVolume, before uint64) {
	there := map[string]bool{}
	for _, v := range volumes {
		there[v.Name] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range a.mu.of {
		if n <= before && !there[name] {
			delete(a.mu.of, name)
		}
	}
	place := func(v *api.ReplicatedVolume) uint64 { return a.mu.of[v.Name] - 1 } // none is the greatest
	slices.SortFunc(volumes, func(v, w *api.ReplicatedVolume) int {
		return cmp.Or(v.CreationTimestamp.Compare(w.CreationTimestamp.Time), cmp.Compare(place(v), place(w)), cmp.Compare(v.Name, w.Name))
	})
}
