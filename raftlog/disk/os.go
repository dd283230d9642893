package disk

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// OS returns the operating system's file system. Relative paths start in the
// process's working directory.
func OS() FS { return osFS{vfs.Default} }

type osFS struct{ vfs.FS }

var _ FS = osFS{}

// Unwrap hides nothing: pebble finds vfs.Default below.
func (o osFS) Unwrap() vfs.FS { return o.FS }

func (o osFS) List(dir string) ([]string, error) {
	names, err := o.FS.List(dir)
	slices.Sort(names)
	return names, err
}

func (osFS) OpenRW(path string, create bool) (File, error) {
	flags := os.O_RDWR | unix.O_CLOEXEC
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o666)
	if err != nil {
		return nil, err
	}
	return newOSFile(f), nil
}

func (o osFS) OpenDirect(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		return o.OpenRW(path, false)
	}
	if err != nil {
		return nil, err
	}
	direct := newOSFile(f)
	if direct.needsAlign() <= DirectAlign {
		return direct, nil
	}
	f.Close()
	return o.OpenRW(path, false)
}

func (osFS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		d.Close()
		return err
	}
	return d.Close()
}

func (osFS) Usage(path string) (Usage, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(path, &st) }); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	unit := uint64(st.Frsize)
	if unit == 0 {
		unit = uint64(st.Bsize)
	}
	return Usage{
		TotalBytes: st.Blocks * unit, FreeBytes: st.Bfree * unit, AvailBytes: st.Bavail * unit,
		TotalInodes: st.Files, FreeInodes: st.Ffree,
	}, nil
}

// osFile adds to os.File what pebble and the journal need. The descriptor is
// kept, because os.File.Fd costs a lock and a system call.
type osFile struct {
	*os.File
	fd int
}

var _ File = (*osFile)(nil)

func newOSFile(f *os.File) *osFile { return &osFile{File: f, fd: int(f.Fd())} }

func (f *osFile) Fd() uintptr { return uintptr(f.fd) }

func (f *osFile) SyncData() error {
	return f.do("fdatasync", func() error { return unix.Fdatasync(f.fd) })
}

func (f *osFile) SyncTo(int64) (fullSync bool, err error) { return true, f.SyncData() }

func (f *osFile) PunchHole(off, n int64) error {
	return f.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func (f *osFile) Allocate(off, n int64) error {
	return f.fallocate(unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func (f *osFile) Preallocate(off, n int64) error { return f.Allocate(off, n) }

func (f *osFile) Prefetch(off, n int64) error {
	return f.do("fadvise", func() error { return unix.Fadvise(f.fd, off, n, unix.FADV_WILLNEED) })
}

func (f *osFile) Size() (int64, error) {
	var st unix.Stat_t
	err := f.do("fstat", func() error { return unix.Fstat(f.fd, &st) })
	return st.Size, err
}

// Stat leaves the device number empty: pebble's type for it can't be filled in
// from outside, and only vfs.FS.Stat is used to learn it.
func (f *osFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	return fileInfo{info}, nil
}

// needsAlign returns the alignment in bytes that the file asks of direct calls,
// or 0 if the kernel (before 6.1) doesn't tell.
func (f *osFile) needsAlign() uint32 {
	var st unix.Statx_t
	err := unix.Statx(f.fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return 0
	}
	return max(st.Dio_mem_align, st.Dio_offset_align)
}

func (f *osFile) fallocate(mode uint32, off, n int64) error {
	if n <= 0 {
		return nil
	}
	return f.do("fallocate", func() error { return unix.Fallocate(f.fd, mode, off, n) })
}

func (f *osFile) do(op string, call func() error) error {
	if err := retry(call); err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

// retry repeats a call that a signal interrupted: Go's runtime preempts threads
// with signals, so any slow call may see it.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// fileInfo makes pebble's FileInfo of the standard one.
type fileInfo struct{ fs.FileInfo }

func (fileInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
