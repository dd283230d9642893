package disk

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrPowerOff is what every call on a Mem fails with after Crash.
var ErrPowerOff = errors.New("disk has no power")

// defaultMaxInodes is what Usage tells of a Mem that nobody limited.
const defaultMaxInodes = 1 << 20

// Mem is a disk in memory that can lose its power. The same seed and the same
// calls in the same order give the same disk, crashes included. Its clock counts
// changes. Relative paths start at the root.
type Mem struct {
	mu        sync.Mutex
	rand      random
	root      *inode
	pending   []nameChange
	locked    map[string]*memFile
	open      map[*memFile]bool
	clock     int64
	off       bool
	capacity  int64 // bytes; 0 is no limit
	used      int64 // pages
	maxInodes int64
	inodes    int64
}

var _ FS = (*Mem)(nil)

// NewMem returns an empty disk.
func NewMem(seed uint64) *Mem {
	return &Mem{
		rand: random{seed}, root: newDir(), locked: make(map[string]*memFile), open: make(map[*memFile]bool),
		maxInodes: defaultMaxInodes, inodes: 1,
	}
}

// SetCapacity limits the disk to so many bytes (in pages of 4096) and inodes;
// 0 is no limit. Calls that need more fail with ENOSPC.
func (m *Mem) SetCapacity(bytes, inodes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity, m.maxInodes = bytes, inodes
	if inodes == 0 {
		m.maxInodes = defaultMaxInodes
	}
}

// FlipBit turns one bit of a file over, on the medium and in the cache, as if it
// had rotten. Bit 0 is the lowest of the first byte.
func (m *Mem) FlipBit(name string, bit int64) error {
	return m.Rot(name, bit/8, 1, func(b []byte) { b[0] ^= 1 << (bit % 8) })
}

// Rot changes n bytes of a file at off, on the medium and in the cache, without a
// trace. Bytes past the end stay holes.
func (m *Mem) Rot(name string, off int64, n int, change func([]byte)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("rot", name)
	if err != nil {
		return err
	}
	for _, c := range []*content{&f.cur, &f.dur} {
		b := make([]byte, n)
		c.read(b, off)
		change(b)
		c.write(b[:max(0, min(int64(n), c.size-off))], off, make(map[int64]bool))
	}
	clear(f.owned)
	return nil
}

func (m *Mem) tick() int64 {
	m.clock++
	return m.clock
}

// lock takes the lock if there is power.
func (m *Mem) lock() error {
	m.mu.Lock()
	if m.off {
		m.mu.Unlock()
		return ErrPowerOff
	}
	return nil
}

// release frees the space of a file that has neither names nor handles.
func (m *Mem) release(n *inode) {
	if n.links > 0 || n.opens > 0 {
		return
	}
	m.used -= int64(len(n.cur.pages))
	m.inodes--
}

func (m *Mem) newInode(n *inode) (*inode, error) {
	if m.inodes >= m.maxInodes {
		return nil, syscall.ENOSPC
	}
	m.inodes++
	n.modified = m.tick()
	return n, nil
}

// Create implements vfs.FS: an existing file is replaced by a new one.
func (m *Mem) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	if err := m.lock(); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	at, err := m.walk("create", name)
	if err != nil {
		return nil, err
	}
	if old := at.dir.children[at.name]; old != nil {
		if old.isDir {
			return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.EISDIR}
		}
		m.change(edit{at, nil})
	}
	return m.create(at, name)
}

func (m *Mem) create(at entry, name string) (*memFile, error) {
	n, err := m.newInode(newFile())
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	m.change(edit{at, n})
	return m.handle(n, name, true), nil
}

// Open implements vfs.FS.
func (m *Mem) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := m.lock(); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	return m.handle(n, name, false), nil
}

// OpenDir implements vfs.FS.
func (m *Mem) OpenDir(name string) (vfs.File, error) { return m.Open(name) }

// OpenReadWrite implements vfs.FS.
func (m *Mem) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return m.OpenRW(name, true)
}

// OpenRW implements FS.
func (m *Mem) OpenRW(name string, create bool) (File, error) {
	if err := m.lock(); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return m.openRW(name, create)
}

func (m *Mem) openRW(name string, create bool) (*memFile, error) {
	at, err := m.walk("open", name)
	if err != nil {
		return nil, err
	}
	n := at.dir.children[at.name]
	switch {
	case at.name == "" || n != nil && n.isDir:
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	case n == nil && create:
		return m.create(at, name)
	case n == nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	return m.handle(n, name, true), nil
}

// OpenDirect implements FS. It insists on the alignment.
func (m *Mem) OpenDirect(name string) (File, error) {
	if err := m.lock(); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	f, err := m.openRW(name, false)
	if err != nil {
		return nil, err
	}
	f.direct = true
	return f, nil
}

// ReuseForWrite implements vfs.FS.
func (m *Mem) ReuseForWrite(oldname, newname string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	if err := m.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return m.OpenRW(newname, false)
}

// List implements vfs.FS.
func (m *Mem) List(name string) ([]string, error) {
	if err := m.lock(); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	n, err := m.find("list", name)
	if err != nil {
		return nil, err
	}
	if !n.isDir {
		return nil, &fs.PathError{Op: "list", Path: name, Err: syscall.ENOTDIR}
	}
	return slices.Sorted(maps.Keys(n.children)), nil
}

// Stat implements vfs.FS.
func (m *Mem) Stat(name string) (vfs.FileInfo, error) {
	if err := m.lock(); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	n, err := m.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n.info(path.Base(name)), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	n, err := m.find("sync", name)
	if err != nil {
		return err
	}
	if !n.isDir {
		return &fs.PathError{Op: "sync", Path: name, Err: syscall.ENOTDIR}
	}
	m.syncNames(n)
	return nil
}

// Usage implements FS.
func (m *Mem) Usage(name string) (Usage, error) {
	if err := m.lock(); err != nil {
		return Usage{}, err
	}
	defer m.mu.Unlock()
	if _, err := m.find("statfs", name); err != nil {
		return Usage{}, err
	}
	total := m.capacity
	if total == 0 {
		total = 1 << 40
	}
	free := uint64(max(0, total-m.used*pageSize))
	return Usage{
		TotalBytes: uint64(total), FreeBytes: free, AvailBytes: free,
		TotalInodes: uint64(m.maxInodes), FreeInodes: uint64(m.maxInodes - m.inodes),
	}, nil
}

// GetDiskUsage implements vfs.FS.
func (m *Mem) GetDiskUsage(name string) (vfs.DiskUsage, error) {
	u, err := m.Usage(name)
	return vfs.DiskUsage{AvailBytes: u.AvailBytes, TotalBytes: u.TotalBytes, UsedBytes: u.TotalBytes - u.FreeBytes}, err
}

// PathBase implements vfs.FS.
func (*Mem) PathBase(p string) string { return path.Base(p) }

// PathJoin implements vfs.FS.
func (*Mem) PathJoin(elem ...string) string { return path.Join(elem...) }

// PathDir implements vfs.FS.
func (*Mem) PathDir(p string) string { return path.Dir(p) }

// Unwrap implements vfs.FS.
func (*Mem) Unwrap() vfs.FS { return nil }

func (n *inode) info(name string) vfs.FileInfo {
	mode := fs.FileMode(0o644)
	if n.isDir {
		mode = fs.ModeDir | 0o755
	}
	return fileInfo{memInfo{name, n.cur.size, mode, time.Unix(0, n.modified)}}
}

type memInfo struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return i.modified }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (memInfo) Sys() any             { return nil }
