package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// The shared memory of a mount, version 3. Integers have the machine's byte
// order (the memory never leaves it). doc.go describes it for people.
const (
	layoutVersion = 3
	// layoutPlain is the version of memory in which no handle has spaceBit. It begins
	// with that, so that the program before this one can serve a mount again.
	layoutPlain = 2

	offMagic    = 0   // 8 bytes
	offVersion  = 8   // u32
	offReady    = 12  // u32: 1 when INIT has been answered
	offIdentity = 16  // u32: which identity slot is valid, 0 none, 1, 2
	offInitIn   = 24  // u32 length
	offInitOut  = 28  // u32 length
	offHandles  = 32  // u32: handle slots that were ever used
	offHolders  = 36  // u32: holder slots that were ever used
	offInit     = 64  // initMax bytes in, initMax bytes out
	initMax     = 256 // bytes of one INIT message

	offSlots     = 4096 // two identity slots
	slotSize     = 8192
	slotSession  = 0  // u64
	slotEpoch    = 8  // u64
	slotLast     = 16 // u64: LastSeq
	slotNonce    = 24 // 16 bytes
	slotHintLen  = 40 // u32
	slotHint     = 64 // fsop.HintMax bytes
	offFlights   = offSlots + 2*slotSize
	flightSize   = 32 // state u32, sub u32, tag u64, seq u64, session u64
	offHandleTab = offFlights + fsop.InFlightMax*flightSize
	handleSize   = 16 // handle u64 (0: free), ino u64, its highest bits: slotBits
	handlesMax   = 1 << 18
	offHolderTab = offHandleTab + handlesMax*handleSize
	holderSize   = 32 // kind u32 (0: free), pad u32, ino u64, owner u64, handle u64
	holdersMax   = 1 << 16
	offRing      = offHolderTab + holdersMax*holderSize // u64: head << 32 | tail
	offRingData  = offRing + 64
	ringSize     = 16 << 20
	ringHead     = 16 // of a record: length u32, pad u32, seq u64; then the operation
	layoutSize   = offRingData + ringSize
)

var layoutMagic = [8]byte{'T', 'A', 'K', 'M', 'O', 'U', 'N', 'T'}

// memory is the mapped shared memory. Words that publish others are written
// with release semantics by atomic stores, so a process that is killed between
// two instructions leaves nothing half-published.
type memory []byte

func (m memory) u32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&m[off])) }
func (m memory) u64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&m[off])) }

func (m memory) load32(off int) uint32     { return atomic.LoadUint32(m.u32(off)) }
func (m memory) store32(off int, v uint32) { atomic.StoreUint32(m.u32(off), v) }
func (m memory) load64(off int) uint64     { return atomic.LoadUint64(m.u64(off)) }
func (m memory) store64(off int, v uint64) { atomic.StoreUint64(m.u64(off), v) }

// newMemory makes the shared memory of a new mount.
func newMemory() (memory, *os.File, error) {
	fd, err := unix.MemfdCreate("mount ledger", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("create shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "mount ledger")
	m, err := sizeMemory(fd)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	m.format()
	return m, f, nil
}

func sizeMemory(fd int) (memory, error) {
	if err := unix.Ftruncate(fd, layoutSize); err != nil {
		return nil, fmt.Errorf("size shared memory: %w", err)
	}
	// Nobody can shrink it under a reader.
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal shared memory: %w", err)
	}
	return mapFile(fd)
}

func (m memory) format() {
	copy(m[offMagic:], layoutMagic[:])
	m.store32(offVersion, layoutPlain)
}

// openMemory maps the shared memory that another process made.
func openMemory(fd int) (memory, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat shared memory: %w", err)
	}
	if st.Size != layoutSize {
		return nil, fmt.Errorf("shared memory has %d bytes, this program knows %d", st.Size, layoutSize)
	}
	m, err := mapFile(fd)
	if err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		m.unmap()
		return nil, err
	}
	return m, nil
}

func mapFile(fd int) (memory, error) {
	b, err := unix.Mmap(fd, 0, layoutSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	return b, nil
}

func (m memory) unmap() { _ = unix.Munmap(m) }

// check refuses what this program did not write. Content is taken as it is:
// every index and length is bounded where it is used.
func (m memory) check() error {
	if [8]byte(m[offMagic:offMagic+8]) != layoutMagic {
		return errors.New("shared memory is not a mount's")
	}
	if v := m.load32(offVersion); v != layoutVersion && v != layoutPlain {
		return fmt.Errorf("shared memory has version %d, this program knows %d and %d", v, layoutPlain, layoutVersion)
	}
	return nil
}

// setInit records the handshake and marks the mount as usable.
func (m memory) setInit(in, out []byte) {
	m.store32(offInitIn, uint32(copy(m[offInit:offInit+initMax], in)))
	m.store32(offInitOut, uint32(copy(m[offInit+initMax:offInit+2*initMax], out)))
	m.store32(offReady, 1)
}

// init returns the recorded handshake; nil before there was one.
func (m memory) init() (in, out []byte) {
	if m.load32(offReady) != 1 {
		return nil, nil
	}
	in = m[offInit : offInit+min(m.load32(offInitIn), initMax)]
	out = m[offInit+initMax : offInit+initMax+min(m.load32(offInitOut), initMax)]
	return in, out
}
