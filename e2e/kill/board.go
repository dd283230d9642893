package kill

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handsMost is how many hands a load may have.
const handsMost = 64

// Board is what the hands of a load are doing, in memory that the load and the
// test share.
type Board struct {
	slots *[handsMost]slot
	mem   []byte
}

// slot is one hand's line on the board.
type slot struct {
	started atomic.Int64 // when the operation in flight began (now), 0 for none
	op      atomic.Uint32
	used    atomic.Uint32 // 1 once a hand has this line
	done    atomic.Uint64 // operations that have ended
	_       [5]uint64     // a cache line each
}

const boardBytes = handsMost * int(unsafe.Sizeof(slot{}))

// MakeBoard makes an empty board in a file, for a load that is about to start.
func MakeBoard(path string) (*Board, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(boardBytes)); err != nil {
		return nil, err
	}
	return mapBoard(f)
}

// OpenBoard opens the board of the test that started this process.
func OpenBoard(path string) (*Board, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mapBoard(f)
}

func mapBoard(f *os.File) (*Board, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, boardBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map board: %w", err)
	}
	return &Board{(*[handsMost]slot)(unsafe.Pointer(&mem[0])), mem}, nil
}

// Close unmaps the board.
func (b *Board) Close() error { return unix.Munmap(b.mem) }

// InFlight is how many operations that began before a moment have not ended.
func (b *Board) InFlight(before int64) (n int) {
	for i := range b.slots {
		if at := b.slots[i].started.Load(); at != 0 && at < before {
			n++
		}
	}
	return n
}

// Done is how many operations each hand has ended, by hand.
func (b *Board) Done() map[int]uint64 {
	done := map[int]uint64{}
	for i := range b.slots {
		if s := &b.slots[i]; s.used.Load() != 0 {
			done[i] = s.done.Load()
		}
	}
	return done
}

// Stuck lists what has been in flight for longer than d.
func (b *Board) Stuck(d time.Duration) (all []string) {
	t := now()
	for i := range b.slots {
		s := &b.slots[i]
		if at := s.started.Load(); at != 0 && t-at > int64(d) {
			all = append(all, fmt.Sprintf("hand %d: %s for %v", i, Op(s.op.Load()), time.Duration(t-at).Round(time.Millisecond)))
		}
	}
	return all
}

// now is the machine's monotonic time in nanoseconds, the same in all processes.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
