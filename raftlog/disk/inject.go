package disk

import (
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Call is one call on a disk, before it is made.
type Call struct {
	Op   Op
	Path string // as the file was opened; of two, the new one
	Off  int64  // of calls on a range, in bytes; Read and Write have -1
	Len  int64
}

// Injector is asked before every call. Its error becomes that of the call, which
// then is not made; a *ShortWrite is made in part. It may block, to model
// latency; it may be called concurrently.
type Injector func(Call) error

// ShortWrite makes a write put only its first N bytes and then fail with Err.
type ShortWrite struct {
	N   int
	Err error
}

func (e *ShortWrite) Error() string { return "short write: " + e.Err.Error() }

// Unwrap returns Err.
func (e *ShortWrite) Unwrap() error { return e.Err }

// Inject decorates a file system with an injector. A sync that is made to fail on
// a Mem leaves the disk as a real one would be: some of the data is on it, and no
// later sync writes the rest.
func Inject(inner FS, injector Injector) FS { return &injected{inner, injector} }

type injected struct {
	inner  FS
	before Injector
}

var _ FS = (*injected)(nil)

// failedSyncer is a file that can model what a failed sync leaves.
type failedSyncer interface{ failSync() }

func (i *injected) call(op Op, path string) error {
	return i.before(Call{Op: op, Path: path, Off: -1})
}

// open makes a call that gives a handle, and decorates the handle.
func (i *injected) open(op Op, path string, open func() (vfs.File, error)) (*injectedFile, error) {
	if err := i.call(op, path); err != nil {
		return nil, err
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	full, _ := f.(File)
	return &injectedFile{fs: i, path: path, plain: f, full: full, syncOp: OpSync}, nil
}

// vfsFile avoids an interface that holds a nil pointer.
func vfsFile(f *injectedFile, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (i *injected) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return vfsFile(i.open(OpCreate, path, func() (vfs.File, error) { return i.inner.Create(path, c) }))
}

func (i *injected) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	return vfsFile(i.open(OpOpen, path, func() (vfs.File, error) { return i.inner.Open(path, opts...) }))
}

func (i *injected) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return vfsFile(i.open(OpOpen, path, func() (vfs.File, error) { return i.inner.OpenReadWrite(path, c, opts...) }))
}

func (i *injected) OpenDir(path string) (vfs.File, error) {
	f, err := i.open(OpOpenDir, path, func() (vfs.File, error) { return i.inner.OpenDir(path) })
	if err != nil {
		return nil, err
	}
	f.syncOp = OpSyncDir
	return f, nil
}

func (i *injected) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return vfsFile(i.open(OpCreate, newname, func() (vfs.File, error) { return i.inner.ReuseForWrite(oldname, newname, c) }))
}

func (i *injected) OpenRW(path string, create bool) (File, error) {
	return i.openFile(path, func() (File, error) { return i.inner.OpenRW(path, create) })
}

func (i *injected) OpenDirect(path string) (File, error) {
	return i.openFile(path, func() (File, error) { return i.inner.OpenDirect(path) })
}

func (i *injected) openFile(path string, open func() (File, error)) (File, error) {
	f, err := i.open(OpOpen, path, func() (vfs.File, error) { return open() })
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (i *injected) Link(oldname, newname string) error {
	if err := i.call(OpLink, newname); err != nil {
		return err
	}
	return i.inner.Link(oldname, newname)
}

func (i *injected) Remove(path string) error {
	if err := i.call(OpRemove, path); err != nil {
		return err
	}
	return i.inner.Remove(path)
}

func (i *injected) RemoveAll(path string) error {
	if err := i.call(OpRemoveAll, path); err != nil {
		return err
	}
	return i.inner.RemoveAll(path)
}

func (i *injected) Rename(oldname, newname string) error {
	if err := i.call(OpRename, newname); err != nil {
		return err
	}
	return i.inner.Rename(oldname, newname)
}

func (i *injected) MkdirAll(path string, perm fs.FileMode) error {
	if err := i.call(OpMkdir, path); err != nil {
		return err
	}
	return i.inner.MkdirAll(path, perm)
}

func (i *injected) Lock(path string) (io.Closer, error) {
	if err := i.call(OpLock, path); err != nil {
		return nil, err
	}
	return i.inner.Lock(path)
}

func (i *injected) List(path string) ([]string, error) {
	if err := i.call(OpList, path); err != nil {
		return nil, err
	}
	return i.inner.List(path)
}

func (i *injected) Stat(path string) (vfs.FileInfo, error) {
	if err := i.call(OpStat, path); err != nil {
		return nil, err
	}
	return i.inner.Stat(path)
}

func (i *injected) SyncDir(path string) error {
	d, err := i.inner.OpenDir(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := i.call(OpSyncDir, path); err != nil {
		failSync(d)
		return err
	}
	return i.inner.SyncDir(path)
}

func (i *injected) Usage(path string) (Usage, error) {
	if err := i.call(OpUsage, path); err != nil {
		return Usage{}, err
	}
	return i.inner.Usage(path)
}

func (i *injected) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if err := i.call(OpUsage, path); err != nil {
		return vfs.DiskUsage{}, err
	}
	return i.inner.GetDiskUsage(path)
}

func (i *injected) PathBase(path string) string    { return i.inner.PathBase(path) }
func (i *injected) PathJoin(elem ...string) string { return i.inner.PathJoin(elem...) }
func (i *injected) PathDir(path string) string     { return i.inner.PathDir(path) }
func (i *injected) Unwrap() vfs.FS                 { return i.inner }

func failSync(f vfs.File) {
	switch f := f.(type) {
	case failedSyncer:
		f.failSync()
	case *injectedFile:
		failSync(f.plain)
	}
}

// injectedFile decorates a handle. full is nil for those that only pebble uses.
type injectedFile struct {
	fs     *injected
	path   string
	plain  vfs.File
	full   File
	syncOp Op
}

var _ File = (*injectedFile)(nil)

func (f *injectedFile) call(op Op, off, n int64) error {
	return f.fs.before(Call{Op: op, Path: f.path, Off: off, Len: n})
}

func (f *injectedFile) Read(b []byte) (int, error) {
	if err := f.call(OpRead, -1, int64(len(b))); err != nil {
		return 0, err
	}
	return f.plain.Read(b)
}

func (f *injectedFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.call(OpRead, off, int64(len(b))); err != nil {
		return 0, err
	}
	return f.plain.ReadAt(b, off)
}

func (f *injectedFile) Write(b []byte) (int, error) {
	return f.write(-1, b, f.plain.Write)
}

func (f *injectedFile) WriteAt(b []byte, off int64) (int, error) {
	return f.write(off, b, func(b []byte) (int, error) { return f.plain.WriteAt(b, off) })
}

func (f *injectedFile) write(off int64, b []byte, write func([]byte) (int, error)) (int, error) {
	err := f.call(OpWrite, off, int64(len(b)))
	var short *ShortWrite
	if errors.As(err, &short) {
		n, _ := write(b[:min(short.N, len(b))])
		return n, err
	}
	if err != nil {
		return 0, err
	}
	return write(b)
}

func (f *injectedFile) sync(sync func() error) error {
	if err := f.call(f.syncOp, -1, 0); err != nil {
		failSync(f.plain)
		return err
	}
	return sync()
}

func (f *injectedFile) Sync() error     { return f.sync(f.plain.Sync) }
func (f *injectedFile) SyncData() error { return f.sync(f.plain.SyncData) }

func (f *injectedFile) SyncTo(length int64) (full bool, err error) {
	err = f.sync(func() error {
		full, err = f.plain.SyncTo(length)
		return err
	})
	return full, err
}

func (f *injectedFile) Truncate(size int64) error {
	if err := f.call(OpTruncate, size, 0); err != nil {
		return err
	}
	return f.full.Truncate(size)
}

func (f *injectedFile) PunchHole(off, n int64) error {
	if err := f.call(OpPunch, off, n); err != nil {
		return err
	}
	return f.full.PunchHole(off, n)
}

func (f *injectedFile) Allocate(off, n int64) error {
	if err := f.call(OpAllocate, off, n); err != nil {
		return err
	}
	return f.full.Allocate(off, n)
}

func (f *injectedFile) Preallocate(off, n int64) error {
	if err := f.call(OpAllocate, off, n); err != nil {
		return err
	}
	return f.plain.Preallocate(off, n)
}

func (f *injectedFile) Size() (int64, error) {
	if err := f.call(OpStat, -1, 0); err != nil {
		return 0, err
	}
	return f.full.Size()
}

func (f *injectedFile) Stat() (vfs.FileInfo, error) {
	if err := f.call(OpStat, -1, 0); err != nil {
		return nil, err
	}
	return f.plain.Stat()
}

func (f *injectedFile) Prefetch(off, n int64) error { return f.plain.Prefetch(off, n) }
func (f *injectedFile) Fd() uintptr                 { return f.plain.Fd() }
func (f *injectedFile) Close() error                { return f.plain.Close() }
