package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// AlignedBuffer returns n zero bytes whose address is a multiple of DirectAlign.
func AlignedBuffer(n int) []byte {
	b := make([]byte, n+DirectAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (DirectAlign - 1)
	return b[skip : skip+n : skip+n]
}

// ReadFile returns the contents of a small file. A file of more than limit bytes
// is an error.
func ReadFile(fsys FS, path string, limit int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("read %s: over %d bytes", path, limit)
	}
	return b, nil
}

// WriteFile replaces a file, durably and atomically: after a crash at any point
// it has the old contents or the new ones. It uses path + ".tmp" on the way.
func WriteFile(fsys FS, path string, data []byte) error {
	tmp := path + ".tmp"
	if err := writeSynced(fsys, tmp, data); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return err
	}
	return fsys.SyncDir(fsys.PathDir(path))
}

func writeSynced(fsys FS, path string, data []byte) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// vfs.File may scribble over what it is given to write.
	if _, err := f.Write(append([]byte(nil), data...)); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// MkdirDurable creates a directory and its missing parents; each is durable when
// it returns.
func MkdirDurable(fsys FS, path string) error {
	_, err := fsys.Stat(path)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := fsys.PathDir(path)
	if parent != path {
		if err := MkdirDurable(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}
