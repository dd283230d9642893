package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// A scrub looks for damage that nobody has run into (C8). Each replica reads its
// contents and its newest checkpoint by itself. Records are compared: the
// coordinator logs a marker that names a range, each replica hashes the range
// before it applies the next entry, and tells the coordinator its hash in a note;
// what the majority has is logged, too, and a replica that has something else
// marks its state as damaged and ends, to begin again with a checkpoint from the
// others. Without a majority (two copies) or anybody to compare with (one) damage
// is reported.
//
// Marker and finding are entries that begin with scrubMagic; version 1, integers
// little endian:
//
//	magic   "takscrub"
//	version u8, 1
//	kind    u8, 1: marker, 2: finding
//	marker  length of lo u16, lo, length of hi u16, hi; an empty hi is the end
//	finding index of the marker u64, hash 15 bytes
const (
	scrubMagic   = "takscrub"
	scrubVersion = 1
	scrubMarker  = 1
	scrubFinding = 2

	// scrubRecords is how many records a range has: hashing them delays what is
	// applied by some milliseconds.
	scrubRecords = 2048
	// scrubPause is between two ranges, and between two pieces of contents.
	scrubPause = 50 * time.Millisecond
	// scrubAnswers is how long the hashes of the others are waited for.
	scrubAnswers = 10 * time.Second
)

// DefaultScrubRate and DefaultScrubEvery bound the scrub: bytes of contents a
// second, and the time from the beginning of one round to the next.
const (
	DefaultScrubRate  = 8 << 20
	DefaultScrubEvery = 24 * time.Hour
)

// digest is the beginning of a SHA-256: as much of it as a note has room for.
type digest [15]byte

// scrubEntry is a marker or a finding.
type scrubEntry struct {
	kind   byte
	lo, hi []byte
	index  uint64
	sum    digest
}

func isScrub(data []byte) bool {
	return len(data) >= len(scrubMagic) && string(data[:len(scrubMagic)]) == scrubMagic
}

// IsScrub reports whether an entry of the log is a scrub's, which changes
// nothing. For tools that read journals.
func IsScrub(data []byte) bool { return isScrub(data) }

func (e *scrubEntry) encode() []byte {
	b := append([]byte(scrubMagic), scrubVersion, e.kind)
	if e.kind == scrubFinding {
		b = binary.LittleEndian.AppendUint64(b, e.index)
		return append(b, e.sum[:]...)
	}
	for _, key := range [][]byte{e.lo, e.hi} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
		b = append(b, key...)
	}
	return b
}

func decodeScrub(b []byte) (e scrubEntry, err error) {
	bad := errors.New("entry of a scrub is malformed")
	head := len(scrubMagic) + 2
	if !isScrub(b) || len(b) < head {
		return e, bad
	}
	if v := b[head-2]; v != scrubVersion {
		return e, fmt.Errorf("entry of a scrub of version %d", v)
	}
	e.kind, b = b[head-1], b[head:]
	switch e.kind {
	case scrubFinding:
		if len(b) != 8+len(e.sum) {
			return e, bad
		}
		e.index = binary.LittleEndian.Uint64(b)
		e.sum = digest(b[8:])
		return e, nil
	case scrubMarker:
		for _, key := range []*[]byte{&e.lo, &e.hi} {
			if len(b) < 2 || len(b) < 2+int(binary.LittleEndian.Uint16(b)) {
				return e, bad
			}
			n := int(binary.LittleEndian.Uint16(b))
			*key, b = b[2:2+n:2+n], b[2+n:]
		}
		if len(b) == 0 {
			return e, nil
		}
	}
	return e, bad
}

// scrubber is a replica's part in scrubs, and what is known of damage.
type scrubber struct {
	r *replica

	mu struct {
		sync.Mutex
		report ScrubReport
		// The last marker applied here, and the hash of its range.
		index uint64
		sum   digest
	}
}

// ScrubReport is what a worker tells of its scrubs.
type ScrubReport struct {
	Rounds  uint64    `json:"rounds"` // complete ones since the start
	Bytes   uint64    `json:"bytes"`  // of contents that were read
	Ranges  uint64    `json:"ranges"` // of records that were hashed
	LastEnd time.Time `json:"lastEnd"`
	Found   uint64    `json:"found"`  // damaged pages found, by the scrub or a read
	Mended  uint64    `json:"mended"` // of them mended
	Left    uint64    `json:"left"`   // damaged pages that the last round could not mend
	// Differs counts ranges on which the replicas did not agree, as far as this
	// one knows; Unsettled those of them without a majority.
	Differs   uint64 `json:"differs"`
	Unsettled uint64 `json:"unsettled"`
}

func (s *scrubber) update(f func(*ScrubReport)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.mu.report)
}

func (s *scrubber) found(n int)  { s.update(func(r *ScrubReport) { r.Found += uint64(n) }) }
func (s *scrubber) mended(n int) { s.update(func(r *ScrubReport) { r.Mended += uint64(n) }) }

func (s *scrubber) status() ScrubReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.report
}

// last is the newest marker applied here.
func (s *scrubber) last() (index uint64, sum digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.index, s.mu.sum
}

// apply takes an entry of a scrub, between the entry before and the next one. It
// is called by the goroutine that applies.
func (s *scrubber) apply(index uint64, data []byte) error {
	e, err := decodeScrub(data)
	if err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	if !s.r.tree.Ready() {
		return nil // replaying: the others know what they hash
	}
	if e.kind == scrubFinding {
		return s.judge(e)
	}
	lo := e.lo
	if len(lo) == 0 {
		lo = nil
	}
	sum, err := s.r.tree.HashRange(lo, e.hi)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.mu.index, s.mu.sum = index, digest(sum[:])
	s.mu.report.Ranges++
	s.mu.Unlock()
	s.r.spawn(s.r.tellRoom)
	return nil
}

// judge compares what the majority found with what was found here.
func (s *scrubber) judge(e scrubEntry) error {
	index, sum := s.last()
	if index != e.index || sum == e.sum {
		return nil
	}
	s.update(func(r *ScrubReport) { r.Differs++ })
	return s.r.tree.Condemn(fmt.Errorf("records as of entry %d differ from the majority's", index))
}

// run scrubs until ctx ends.
func (s *scrubber) run(ctx context.Context) error {
	for {
		begun := time.Now()
		if err := s.round(ctx); err != nil {
			return err
		}
		if !pause(ctx, max(s.r.cfg.ScrubEvery-time.Since(begun), scrubPause)) {
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// round looks at everything once. Damage that can't be mended here is the error:
// the replica ends, and begins again without what is damaged.
func (s *scrubber) round(ctx context.Context) error {
	for !s.r.tree.Ready() || s.r.group.Status().Stateless {
		if !pause(ctx, time.Second) {
			return nil
		}
	}
	if err := s.contents(ctx); err != nil {
		return s.ending(ctx, err)
	}
	if err := s.r.tree.ScrubCheckpoint(); err != nil {
		return s.ending(ctx, err)
	}
	if err := s.records(ctx); err != nil {
		return s.ending(ctx, err)
	}
	s.update(func(r *ScrubReport) { r.Rounds++; r.LastEnd = time.Now().UTC() })
	return nil
}

// ending tells damage that ends the replica from what only ends the round.
func (s *scrubber) ending(ctx context.Context, err error) error {
	var condemned *tree.CondemnedError
	if errors.As(err, &condemned) && len(s.r.others()) > 0 {
		return err
	}
	if ctx.Err() == nil {
		s.update(func(r *ScrubReport) { r.Differs++; r.Unsettled++ })
		s.r.log.Error("scrub", zap.Error(err))
	}
	return nil
}

// contents reads all contents at the bounded rate, and mends what is damaged.
func (s *scrubber) contents(ctx context.Context) error {
	piece := uint64(s.r.cfg.ScrubRate) * uint64(scrubPause) / uint64(time.Second)
	left := 0
	for ino := fsop.Ino(1); ino != 0; {
		next, read, bad, err := s.r.tree.ScrubContents(ctx, ino, max(piece, 1))
		if err != nil {
			return err
		}
		left += len(bad) - s.r.mend(ctx, bad)
		s.update(func(r *ScrubReport) { r.Bytes += read })
		ino = next
		if ino != 0 && !pause(ctx, time.Duration(read*uint64(time.Second)/uint64(s.r.cfg.ScrubRate))) {
			return ctx.Err()
		}
	}
	s.update(func(r *ScrubReport) { r.Left = uint64(left) })
	if left > 0 {
		s.r.log.Error("contents are damaged and no other replica has them whole", zap.Int("pages", left))
	}
	return nil
}

// records has all replicas compare their records, if this one coordinates.
func (s *scrubber) records(ctx context.Context) error {
	var lo []byte
	for ctx.Err() == nil {
		term := s.r.machine.leads.Load()
		if term == 0 || len(s.r.others()) == 0 {
			return nil
		}
		hi, err := s.r.tree.RangeEnd(lo, scrubRecords)
		if err != nil {
			return err
		}
		if err := s.compare(ctx, term, lo, hi); err != nil {
			return err
		}
		if hi == nil || !pause(ctx, scrubPause) {
			return nil
		}
		lo = hi
	}
	return nil
}

// compare logs one marker, gathers the hashes, and logs what the majority has.
func (s *scrubber) compare(ctx context.Context, term uint64, lo, hi []byte) error {
	before, _ := s.last()
	e := scrubEntry{kind: scrubMarker, lo: lo, hi: hi}
	if err := s.r.group.Propose(term, e.encode()); err != nil {
		return nil // another one coordinates now, or is busy: the next round
	}
	for end := time.Now().Add(scrubAnswers); ctx.Err() == nil; {
		index, own := s.last()
		if index > before {
			sums, missing := s.hashes(index, own)
			if !missing || time.Now().After(end) {
				return s.settle(term, index, sums)
			}
		} else if time.Now().After(end) {
			return nil
		}
		pause(ctx, 20*time.Millisecond)
	}
	return nil
}

// hashes are what the members found at a marker.
func (s *scrubber) hashes(index uint64, own digest) (sums map[uint64]digest, missing bool) {
	sums = map[uint64]digest{s.r.cfg.Member: own}
	for _, m := range s.r.group.Status().Members {
		if m.ID == s.r.cfg.Member || m.Learner {
			continue
		}
		n, ok := decodeNote(m.Note)
		if ok && n.scrubIndex == index {
			sums[m.ID] = n.scrubSum
		} else {
			missing = true
		}
	}
	return sums, missing
}

// settle logs the majority's finding when somebody differs.
func (s *scrubber) settle(term, index uint64, sums map[uint64]digest) error {
	votes := map[digest]int{}
	for _, sum := range sums {
		votes[sum]++
	}
	if len(votes) < 2 {
		return nil
	}
	voters := 0
	for _, m := range s.r.group.Members() {
		if !m.Learner {
			voters++
		}
	}
	for sum, n := range votes {
		if n <= voters/2 {
			continue
		}
		s.r.log.Error("a replica's records differ from the majority's", zap.Uint64("index", index), zap.Uint64s("members", minority(sums, sum)))
		s.update(func(r *ScrubReport) { r.Differs++ })
		e := scrubEntry{kind: scrubFinding, index: index, sum: sum}
		if err := s.r.group.Propose(term, e.encode()); err != nil {
			s.r.log.Warn("finding not logged", zap.Error(err))
		}
		return nil
	}
	s.update(func(r *ScrubReport) { r.Differs++; r.Unsettled++ })
	s.r.log.Error("replicas' records differ, and no majority agrees", zap.Uint64("index", index), zap.Int("findings", len(votes)))
	return nil
}

func minority(sums map[uint64]digest, good digest) (members []uint64) {
	for id, sum := range sums {
		if sum != good {
			members = append(members, id)
		}
	}
	return members
}
