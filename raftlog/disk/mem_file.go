package disk

import (
	"io"
	"io/fs"
	"path"
	"syscall"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// memFile is a handle of a file or directory of a Mem.
type memFile struct {
	m        *Mem
	n        *inode
	name     string
	pos      int64
	writable bool
	direct   bool
	closed   bool
}

var (
	_ File         = (*memFile)(nil)
	_ failedSyncer = (*memFile)(nil)
)

func (m *Mem) handle(n *inode, name string, writable bool) *memFile {
	f := &memFile{m: m, n: n, name: name, writable: writable}
	n.opens++
	m.open[f] = true
	return f
}

// lock takes the disk's lock for a call that needs an open file.
func (f *memFile) lock(op string) error {
	if err := f.m.lock(); err != nil {
		return err
	}
	if f.closed {
		f.m.mu.Unlock()
		return f.fail(op, fs.ErrClosed)
	}
	return nil
}

// lockWrite is lock for a call that changes a file.
func (f *memFile) lockWrite(op string) error {
	if err := f.lock(op); err != nil {
		return err
	}
	if f.writable {
		return nil
	}
	f.m.mu.Unlock()
	return f.fail(op, syscall.EBADF)
}

func (f *memFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// Close implements vfs.File. It works without power.
func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return f.fail("close", fs.ErrClosed)
	}
	f.close()
	return nil
}

func (f *memFile) close() {
	f.closed = true
	delete(f.m.open, f)
	f.n.opens--
	f.m.release(f.n)
}

// Read implements vfs.File.
func (f *memFile) Read(b []byte) (int, error) {
	if err := f.lock("read"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	n, err := f.readAt(b, f.pos)
	f.pos += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// ReadAt implements vfs.File.
func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.lock("read"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	return f.readAt(b, off)
}

func (f *memFile) readAt(b []byte, off int64) (int, error) {
	switch {
	case f.n.isDir:
		return 0, f.fail("read", syscall.EISDIR)
	case off < 0 || !f.aligned(b, off):
		return 0, f.fail("read", syscall.EINVAL)
	case len(b) == 0:
		return 0, nil
	}
	n := max(0, min(int64(len(b)), f.n.cur.size-off))
	f.n.cur.read(b[:n], off)
	if n < int64(len(b)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// aligned holds direct calls to what a disk asks of them.
func (f *memFile) aligned(b []byte, off int64) bool {
	if !f.direct {
		return true
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return (off|int64(len(b))|int64(address))%DirectAlign == 0
}

// Write implements vfs.File.
func (f *memFile) Write(b []byte) (int, error) {
	if err := f.lockWrite("write"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	n, err := f.writeAt(b, f.pos)
	f.pos += int64(n)
	return n, err
}

// WriteAt implements vfs.File.
func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.lockWrite("write"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if !f.aligned(b, off) {
		return 0, f.fail("write", syscall.EINVAL)
	}
	return f.writeAt(b, off)
}

func (f *memFile) writeAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.fail("write", syscall.EINVAL)
	}
	fits := f.reserve(off, int64(len(b)))
	b, short := b[:fits], int64(len(b)) > fits
	if fits > 0 {
		n := f.n
		n.cur.write(b, off, n.owned)
		n.cur.size = max(n.cur.size, off+fits)
		n.modified = f.m.tick()
		n.record(change{kind: changeWrite, off: off, n: fits, data: append([]byte(nil), b...), size: n.cur.size})
	}
	if short {
		return int(fits), f.fail("write", syscall.ENOSPC)
	}
	return int(fits), nil
}

// reserve gives space to the pages of a range as far as there is some, and
// returns how many bytes from off have it.
func (f *memFile) reserve(off, n int64) int64 {
	pages := f.n.cur.pages
	for i := off / pageSize; i*pageSize < off+n; i++ {
		if pages[i] != nil {
			continue
		}
		if f.m.capacity > 0 && (f.m.used+1)*pageSize > f.m.capacity {
			return max(0, i*pageSize-off)
		}
		f.m.used++
		pages[i] = zeroPage
	}
	return n
}

// Allocate implements File. Without enough space it allocates nothing.
func (f *memFile) Allocate(off, n int64) error {
	if err := f.lockWrite("allocate"); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if off < 0 || n < 0 {
		return f.fail("allocate", syscall.EINVAL)
	}
	missing := int64(0)
	for i := off / pageSize; i*pageSize < off+n; i++ {
		if f.n.cur.pages[i] == nil {
			missing++
		}
	}
	if f.m.capacity > 0 && (f.m.used+missing)*pageSize > f.m.capacity {
		return f.fail("allocate", syscall.ENOSPC)
	}
	f.reserve(off, n)
	f.n.record(change{kind: changeAllocate, off: off, n: n, size: f.n.cur.size})
	return nil
}

// Preallocate implements vfs.File.
func (f *memFile) Preallocate(off, n int64) error { return f.Allocate(off, n) }

// Truncate implements File.
func (f *memFile) Truncate(size int64) error {
	if err := f.lockWrite("truncate"); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if size < 0 {
		return f.fail("truncate", syscall.EINVAL)
	}
	grows := size > f.n.cur.size
	f.n.cur.size = size
	if grows {
		f.n.record(change{kind: changeAllocate, off: size, size: size})
	} else {
		f.punch(size, endOfFile-size)
	}
	return nil
}

// PunchHole implements File.
func (f *memFile) PunchHole(off, n int64) error {
	if err := f.lockWrite("punch"); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if off < 0 || n < 0 {
		return f.fail("punch", syscall.EINVAL)
	}
	// Like a kernel, it frees whole pages and writes zeroes at the edges.
	first, last := (off+pageSize-1)/pageSize*pageSize, (off+n)/pageSize*pageSize
	if first >= last {
		f.zero(off, off+n)
		return nil
	}
	f.zero(off, first)
	f.punch(first, last-first)
	f.zero(last, off+n)
	return nil
}

// zero writes zeroes to [from, to), which a page boundary may divide, where there
// is something to overwrite.
func (f *memFile) zero(from, to int64) {
	for to = min(to, f.n.cur.size); from < to; {
		end := min(to, (from/pageSize+1)*pageSize)
		if f.n.cur.pages[from/pageSize] != nil {
			f.writeAt(make([]byte, end-from), from)
		}
		from = end
	}
}

func (f *memFile) punch(off, n int64) {
	before := len(f.n.cur.pages)
	c := change{kind: changeFree, off: off, n: n, size: f.n.cur.size}
	f.n.touch(c)
	f.n.cur.free(off, off+n, f.n.owned)
	f.m.used -= int64(before - len(f.n.cur.pages))
	f.n.modified = f.m.tick()
	f.n.record(c)
}

// Size implements File.
func (f *memFile) Size() (int64, error) {
	if err := f.lock("stat"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	return f.n.cur.size, nil
}

// Stat implements vfs.File.
func (f *memFile) Stat() (vfs.FileInfo, error) {
	if err := f.lock("stat"); err != nil {
		return nil, err
	}
	defer f.m.mu.Unlock()
	return f.n.info(path.Base(f.name)), nil
}

// Sync implements vfs.File.
func (f *memFile) Sync() error {
	if err := f.lock("sync"); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if f.n.isDir {
		f.m.syncNames(f.n)
	} else {
		f.n.sync()
	}
	return nil
}

// SyncData implements vfs.File.
func (f *memFile) SyncData() error { return f.Sync() }

// SyncTo implements vfs.File. It makes nothing durable, so that whoever relies on
// it is found out.
func (f *memFile) SyncTo(int64) (bool, error) { return false, nil }

// failSync is a Sync that fails: see inode.syncFailed.
func (f *memFile) failSync() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	switch {
	case f.m.off || f.closed:
	case f.n.isDir:
		f.m.namesFailed()
	default:
		f.n.syncFailed(&f.m.rand)
	}
}

// Prefetch implements vfs.File.
func (f *memFile) Prefetch(int64, int64) error { return nil }

// Fd implements vfs.File.
func (f *memFile) Fd() uintptr { return vfs.InvalidFd }
