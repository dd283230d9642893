package wal

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tak-os.org/tak-replicated/raftlog/disk"
)

const (
	metaName      = "meta"
	segmentPrefix = "segment-"
	zeroChunk     = 1 << 20
)

func segmentName(file uint32) string { return fmt.Sprintf("%s%04d", segmentPrefix, file) }

// segmentFile returns the number of a segment file.
func segmentFile(name string) (uint32, bool) {
	digits, ok := strings.CutPrefix(name, segmentPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil && segmentName(uint32(n)) == name
}

// segment is an open segment. The header does not change while it is in use;
// the rest is guarded by Journal.mu.
type segment struct {
	segmentHeader
	seed uint32
	file disk.File

	firstSeq uint64 // of its first batch, or of the one to come
	high     uint64 // highest index that one of its batches ended at
	next     uint32 // block of the next batch
}

func newSegment(h segmentHeader, file disk.File) *segment {
	return &segment{segmentHeader: h, seed: h.seed(), file: file, next: firstBlock}
}

func (s *segment) String() string { return segmentName(s.segmentHeader.file) }

// fits tells whether a batch of so many blocks may be written to the segment.
func (s *segment) fits(blocks uint32) bool {
	return uint64(s.next)+uint64(blocks)+sealReserve <= uint64(s.blocks)
}

// create makes a new segment file, written over with zeroes, and a header in it.
// All of it is durable when it returns.
func create(fs disk.FS, dir string, h segmentHeader) (*segment, error) {
	path := fs.PathJoin(dir, segmentName(h.file))
	file, err := createFile(fs, path, int64(h.blocks)*blockSize)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create %s: %w", segmentName(h.file), err), removeIfThere(fs, path))
	}
	s := newSegment(h, file)
	if err := s.writeHeader(); err != nil {
		file.Close()
		return nil, err
	}
	if err := fs.SyncDir(dir); err != nil {
		file.Close()
		return nil, &syncError{fmt.Errorf("sync directory of %s: %w", s, err)}
	}
	return s, nil
}

func removeIfThere(fs disk.FS, path string) error {
	if _, err := fs.Stat(path); err != nil {
		return nil
	}
	return fs.Remove(path)
}

func createFile(fs disk.FS, path string, size int64) (disk.File, error) {
	plain, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if err := plain.Close(); err != nil {
		return nil, err
	}
	file, err := fs.OpenDirect(path)
	if err != nil {
		return nil, err
	}
	if err := fill(file, size); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// fill gives a file its size, its space and its zeroes.
func fill(file disk.File, size int64) error {
	if err := file.Allocate(0, size); err != nil {
		return err
	}
	if err := file.Truncate(size); err != nil {
		return err
	}
	zeroes := getBuffer(zeroChunk)
	defer zeroes.release()
	clear(zeroes.b)
	for off := int64(0); off < size; off += zeroChunk {
		if _, err := file.WriteAt(zeroes.b[:min(zeroChunk, size-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// writeHeader starts a new use of the file, durably.
func (s *segment) writeHeader() error {
	buf := getBuffer(firstBlock * blockSize)
	defer buf.release()
	clear(buf.b)
	for i := range firstBlock {
		s.encode(buf.b[i*blockSize:])
	}
	if _, err := s.file.WriteAt(buf.b, 0); err != nil {
		return &syncError{fmt.Errorf("write header of %s: %w", s, err)}
	}
	if err := s.file.SyncData(); err != nil {
		return &syncError{fmt.Errorf("sync header of %s: %w", s, err)}
	}
	return nil
}

// syncError is a failure after which nobody knows what is durable.
type syncError struct{ error }

func (e *syncError) Unwrap() error { return e.error }

// readHeader reads the header of a segment, from either copy of it.
func readHeader(file io.ReaderAt) (h segmentHeader, ok bool, err error) {
	buf := getBuffer(firstBlock * blockSize)
	defer buf.release()
	n, err := file.ReadAt(buf.b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, false, err
	}
	clear(buf.b[n:])
	for i := range firstBlock {
		if h, ok := decodeSegmentHeader(buf.b[i*blockSize:]); ok {
			return h, true, nil
		}
	}
	return h, false, nil
}
