package wal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

const (
	blockSize   = 4096
	headerSize  = 128 // of every record
	rowSize     = 24  // of an entry in the table of its batch
	firstBlock  = 2   // of the first batch in a segment
	sealReserve = 3   // blocks at the end of a segment that entries don't use
	version     = 1

	metaBlocks = 4
	metaCopy   = 2 // block of the second record
)

var (
	metaMagic    = [8]byte{'T', 'K', 'J', 'M', 'E', 'T', 'A', version}
	segmentMagic = [8]byte{'T', 'K', 'J', 'S', 'E', 'G', 'M', version}
	batchMagic   = [4]byte{'T', 'K', 'J', 'B'}

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// Position is a place in a raft log.
type Position struct{ Index, Term uint64 }

// Before tells whether a log that ends at p is older than one that ends at q, as
// raft compares logs for votes.
func (p Position) Before(q Position) bool {
	return p.Term < q.Term || p.Term == q.Term && p.Index < q.Index
}

// hardState is raft's HardState without its protobuf clothes.
type hardState struct{ term, vote, commit uint64 }

func (h hardState) put(b []byte) {
	le.PutUint64(b, h.term)
	le.PutUint64(b[8:], h.vote)
	le.PutUint64(b[16:], h.commit)
}

func getHardState(b []byte) hardState {
	return hardState{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
}

func (p Position) put(b []byte) {
	le.PutUint64(b, p.Index)
	le.PutUint64(b[8:], p.Term)
}

func getPosition(b []byte) Position { return Position{le.Uint64(b), le.Uint64(b[8:])} }

// seal puts the CRC at the end of a record.
func seal(b []byte, seed uint32) {
	le.PutUint32(b[headerSize-4:], crc32.Update(seed, castagnoli, b[:headerSize-4]))
}

func sealed(b []byte, seed uint32) bool {
	return le.Uint32(b[headerSize-4:]) == crc32.Update(seed, castagnoli, b[:headerSize-4])
}

// meta is the record of the file "meta": where the journal starts.
type meta struct {
	identity [16]byte
	number   uint64
	base     Position
	hard     hardState
	fence    Position
	first    segmentRef
	firstSeq uint64
	blocks   uint32 // in a segment
}

// segmentRef names a segment in one use of its file.
type segmentRef struct {
	id   uint64
	file uint32
}

func (m *meta) encode(b []byte) {
	clear(b[:headerSize])
	copy(b, metaMagic[:])
	copy(b[8:], m.identity[:])
	le.PutUint64(b[24:], m.number)
	m.base.put(b[32:])
	m.hard.put(b[48:])
	m.fence.put(b[72:])
	le.PutUint64(b[88:], m.first.id)
	le.PutUint32(b[96:], m.first.file)
	le.PutUint64(b[100:], m.firstSeq)
	le.PutUint32(b[108:], m.blocks)
	seal(b, 0)
}

func decodeMeta(b []byte) (m meta, ok bool) {
	if len(b) < headerSize || !bytes.Equal(b[:8], metaMagic[:]) || !sealed(b, 0) {
		return meta{}, false
	}
	copy(m.identity[:], b[8:])
	m.number = le.Uint64(b[24:])
	m.base = getPosition(b[32:])
	m.hard = getHardState(b[48:])
	m.fence = getPosition(b[72:])
	m.first = segmentRef{le.Uint64(b[88:]), le.Uint32(b[96:])}
	m.firstSeq = le.Uint64(b[100:])
	m.blocks = le.Uint32(b[108:])
	return m, m.blocks >= minBlocks && m.blocks <= maxBlocks && m.firstSeq > 0
}

// segmentHeader is the record at the start of a segment.
type segmentHeader struct {
	identity [16]byte
	segmentRef
	blocks uint32
}

func (h *segmentHeader) encode(b []byte) {
	clear(b[:headerSize])
	copy(b, segmentMagic[:])
	copy(b[8:], h.identity[:])
	le.PutUint64(b[24:], h.id)
	le.PutUint32(b[32:], h.file)
	le.PutUint32(b[36:], h.blocks)
	seal(b, 0)
}

func decodeSegmentHeader(b []byte) (h segmentHeader, ok bool) {
	if len(b) < headerSize || !bytes.Equal(b[:8], segmentMagic[:]) || !sealed(b, 0) {
		return segmentHeader{}, false
	}
	copy(h.identity[:], b[8:])
	h.id = le.Uint64(b[24:])
	h.file = le.Uint32(b[32:])
	h.blocks = le.Uint32(b[36:])
	return h, true
}

// seed is what the CRCs of the batches in a segment start from.
func (h *segmentHeader) seed() uint32 {
	var id [8]byte
	le.PutUint64(id[:], h.id)
	return crc32.Update(crc32.Checksum(h.identity[:], castagnoli), castagnoli, id[:])
}

const (
	kindBatch = 1
	kindSeal  = 2

	flagSkipped = 1 // numbers were skipped before this batch
)

// batch is the header of a batch or a seal.
type batch struct {
	kind      byte
	flags     uint16
	segment   uint64
	block     uint32
	count     uint32
	bytes     uint32 // of table and data
	tableCRC  uint32
	seq       uint64
	synced    uint64
	first     uint64     // of a batch with entries
	next      segmentRef // of a seal
	last      Position
	hard      hardState
	fence     Position
	isTheCopy bool
}

// blocks returns how many blocks the batch has, without the copy of its header.
func (h *batch) blocks() uint32 { return blocksFor(int(h.bytes)) }

func blocksFor(bytes int) uint32 {
	return uint32((headerSize + bytes + blockSize - 1) / blockSize)
}

func (h *batch) encode(b []byte, seed uint32) {
	clear(b[:headerSize])
	copy(b, batchMagic[:])
	b[4] = h.kind
	if h.isTheCopy {
		b[5] = 1
	}
	le.PutUint16(b[6:], h.flags)
	le.PutUint64(b[8:], h.segment)
	le.PutUint32(b[16:], h.block)
	le.PutUint32(b[20:], h.count)
	le.PutUint32(b[24:], h.bytes)
	le.PutUint32(b[28:], h.tableCRC)
	le.PutUint64(b[32:], h.seq)
	le.PutUint64(b[40:], h.synced)
	le.PutUint64(b[48:], h.first|h.next.id)
	h.last.put(b[56:])
	h.hard.put(b[72:])
	h.fence.put(b[96:])
	le.PutUint32(b[112:], h.next.file)
	seal(b, seed)
}

// decodeBatch reads a header, or the copy of one, of the given segment. It checks
// all that can be checked without knowing where b stands.
func decodeBatch(b []byte, s *segmentHeader, seed uint32) (h batch, ok bool) {
	if len(b) < headerSize || !bytes.Equal(b[:4], batchMagic[:]) || !sealed(b, seed) {
		return batch{}, false
	}
	h = batch{
		kind: b[4], isTheCopy: b[5] == 1, flags: le.Uint16(b[6:]), segment: le.Uint64(b[8:]),
		block: le.Uint32(b[16:]), count: le.Uint32(b[20:]), bytes: le.Uint32(b[24:]), tableCRC: le.Uint32(b[28:]),
		seq: le.Uint64(b[32:]), synced: le.Uint64(b[40:]), last: getPosition(b[56:]),
		hard: getHardState(b[72:]), fence: getPosition(b[96:]),
	}
	if h.kind == kindSeal {
		h.next = segmentRef{le.Uint64(b[48:]), le.Uint32(b[112:])}
	} else {
		h.first = le.Uint64(b[48:])
	}
	return h, h.segment == s.id && h.consistent(s.blocks)
}

func (h *batch) consistent(blocks uint32) bool {
	if h.kind != kindBatch && h.kind != kindSeal || h.seq == 0 || h.synced >= h.seq || h.block < firstBlock {
		return false
	}
	if h.count == 0 {
		return h.bytes == 0 && uint64(h.block)+2 <= uint64(blocks)
	}
	return h.kind == kindBatch && h.first > 0 && h.first <= h.last.Index &&
		h.first+uint64(h.count)-1 == h.last.Index &&
		uint64(h.count)*rowSize <= uint64(h.bytes) && h.bytes <= uint32(maxBatchBytes) &&
		uint64(h.block)+uint64(h.blocks())+1 <= uint64(blocks)
}

// row is what the table of a batch says of one entry.
type row struct {
	term uint64
	size uint32
	crc  uint32
	typ  byte
}

func (r row) put(b []byte) {
	clear(b[:rowSize])
	le.PutUint64(b, r.term)
	le.PutUint32(b[8:], r.size)
	le.PutUint32(b[12:], r.crc)
	b[16] = r.typ
}

func getRow(b []byte) row {
	return row{le.Uint64(b), le.Uint32(b[8:]), le.Uint32(b[12:]), b[16]}
}
