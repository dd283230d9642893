package power

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// sectorBytes is what a disk writes whole or not at all.
const sectorBytes = 512

// Survivors says what of the writes that no flush covered is on the disk after
// the power went.
type Survivors int

// Each is a state that a disk with a volatile cache may be found in.
const (
	None Survivors = iota // nothing of it
	Some                  // any sectors, whatever their order was
	All                   // everything that the disk was sent
)

// Loss is what a cut has cost.
type Loss struct {
	Sectors int // of unflushed writes that the disk had taken
	Refused int // writes and flushes that came after the cut
}

var (
	errOff       = errors.New("the power is off")
	errUnaligned = errors.New("not whole sectors")
)

// store is the disk's medium and its volatile cache. Safe for concurrent use.
type store struct {
	medium medium
	// lag is how long a flush is only pretended: what it covers is durable so much
	// later. 0 for an honest disk.
	lag time.Duration

	mu struct {
		sync.Mutex
		off     bool
		cache   []write          // in order
		newest  map[int64][]byte // sector → what is in the cache of it
		flushes []flush          // pretended ones
		loss    Loss
	}
}

// medium is what is durable.
type medium interface {
	io.ReaderAt
	io.WriterAt
}

var _ medium = (*os.File)(nil)

// write is one sector in the cache.
type write struct {
	sector int64
	data   []byte
}

// flush is one that is not durable yet: it covers the first writes of the cache.
type flush struct {
	at     time.Time
	covers int
}

func newStore(m medium, lag time.Duration) *store {
	s := &store{medium: m, lag: lag}
	s.mu.newest = map[int64][]byte{}
	return s
}

func whole(p []byte, off int64) bool { return len(p)%sectorBytes == 0 && off%sectorBytes == 0 }

// ReadAt reads whole sectors, as they were written last.
func (s *store) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.off:
		return 0, errOff
	case !whole(p, off):
		return 0, errUnaligned
	}
	if n, err := s.medium.ReadAt(p, off); err != nil {
		return n, err
	}
	if len(s.mu.newest) == 0 {
		return len(p), nil
	}
	for i := 0; i < len(p); i += sectorBytes {
		if data, ok := s.mu.newest[off/sectorBytes+int64(i/sectorBytes)]; ok {
			copy(p[i:], data)
		}
	}
	return len(p), nil
}

// WriteAt takes whole sectors into the cache.
func (s *store) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.off:
		s.mu.loss.Refused++
		return 0, errOff
	case !whole(p, off):
		return 0, errUnaligned
	}
	kept := append([]byte(nil), p...)
	for i := 0; i < len(kept); i += sectorBytes {
		w := write{off/sectorBytes + int64(i/sectorBytes), kept[i : i+sectorBytes]}
		s.mu.cache = append(s.mu.cache, w)
		s.mu.newest[w.sector] = w.data
	}
	return len(p), nil
}

// Flush makes everything in the cache durable.
func (s *store) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.off {
		s.mu.loss.Refused++
		return errOff
	}
	covers := len(s.mu.cache)
	if s.lag > 0 {
		s.mu.flushes = append(s.mu.flushes, flush{time.Now(), covers})
		covers = s.arrived(time.Now())
	}
	return s.settle(covers)
}

// arrived is how many writes of the cache are covered by pretended flushes that
// are old enough to be true now; it forgets those.
func (s *store) arrived(now time.Time) (covers int) {
	for len(s.mu.flushes) > 0 && now.Sub(s.mu.flushes[0].at) >= s.lag {
		covers = s.mu.flushes[0].covers
		s.mu.flushes = s.mu.flushes[1:]
	}
	for i := range s.mu.flushes {
		s.mu.flushes[i].covers -= covers
	}
	return covers
}

// settle moves the first n writes of the cache to the medium.
func (s *store) settle(n int) error {
	for run := s.mu.cache[:n]; len(run) > 0; {
		k := contiguous(run)
		var data []byte
		for _, w := range run[:k] {
			data = append(data, w.data...)
		}
		if _, err := s.medium.WriteAt(data, run[0].sector*sectorBytes); err != nil {
			return err
		}
		run = run[k:]
	}
	s.mu.cache = append([]write(nil), s.mu.cache[n:]...)
	clear(s.mu.newest)
	for _, w := range s.mu.cache {
		s.mu.newest[w.sector] = w.data
	}
	return nil
}

// contiguous is how many writes follow each other on the disk.
func contiguous(run []write) int {
	k := 1
	for k < len(run) && run[k].sector == run[k-1].sector+1 {
		k++
	}
	return k
}

// Cut takes the power away: from now on everything is refused, and the medium
// holds what a disk would be found with.
func (s *store) Cut(left Survivors, seed uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.off {
		return nil
	}
	s.mu.off = true
	dice := rand.New(rand.NewPCG(seed, 512))
	for _, w := range s.mu.cache {
		if left == None || left == Some && dice.IntN(2) == 0 {
			s.mu.loss.Sectors++
			continue
		}
		if _, err := s.medium.WriteAt(w.data, w.sector*sectorBytes); err != nil {
			return err
		}
	}
	s.mu.cache, s.mu.newest, s.mu.flushes = nil, nil, nil
	return nil
}

// Lost is what the cut has cost so far.
func (s *store) Lost() Loss {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.loss
}
