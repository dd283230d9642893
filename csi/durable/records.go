package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// recordBytesMost bounds what is read of a record.
const recordBytesMost = 1 << 20

// partPrefix marks a record that is being written.
const partPrefix = "."

// Records is a folder of records. Different names may be used concurrently.
type Records struct {
	root *os.Root
}

// OpenRecords opens a folder of root, which it makes if need be, and removes
// unfinished writes.
func OpenRecords(root *os.Root, folder string) (*Records, error) {
	sub, err := OpenFolder(root, folder)
	if err != nil {
		return nil, err
	}
	r := &Records{sub}
	names, err := r.list()
	if err != nil {
		sub.Close()
		return nil, err
	}
	for _, name := range names {
		if strings.HasPrefix(name, partPrefix) {
			if err := sub.Remove(name); err != nil {
				sub.Close()
				return nil, err
			}
		}
	}
	return r, nil
}

// OpenFolder opens a folder of root, and makes it durably, mode 0700, if it is not
// there.
func OpenFolder(root *os.Root, folder string) (*os.Root, error) {
	if err := MakeFolder(root, folder, 0o700); err != nil {
		return nil, err
	}
	return root.OpenRoot(folder)
}

// MakeFolder makes a folder durably. One that is there already is left alone, and
// made durable: whoever made it may have crashed before.
func MakeFolder(root *os.Root, folder string, mode os.FileMode) error {
	err := root.Mkdir(folder, mode&0o777)
	switch {
	case err == nil:
		if err := root.Chmod(folder, mode); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	info, err := root.Lstat(folder)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s in %s is not a folder", folder, root.Name())
	}
	return SyncFolder(root)
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Close ends the use of the folder.
func (r *Records) Close() error { return r.root.Close() }

// Read returns a record; [fs.ErrNotExist] when there is none.
func (r *Records) Read(name string) ([]byte, error) {
	f, err := r.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, recordBytesMost+1))
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", name, err)
	}
	if len(b) > recordBytesMost {
		return nil, fmt.Errorf("record %s: more than %d bytes", name, recordBytesMost)
	}
	return b, nil
}

// Write makes or replaces a record, durably when it returns nil. After an error
// the record is the old one or the new one.
func (r *Records) Write(name string, b []byte) error {
	if err := r.write(name, b); err != nil {
		return fmt.Errorf("write record %s: %w", name, err)
	}
	return nil
}

func (r *Records) write(name string, b []byte) error {
	part := partPrefix + name
	f, err := r.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := r.root.Rename(part, name); err != nil {
		return err
	}
	return SyncFolder(r.root)
}

// Remove removes a record durably; one that is not there is removed already.
func (r *Records) Remove(name string) error {
	if err := r.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return SyncFolder(r.root)
}

// Names lists the records, sorted.
func (r *Records) Names() ([]string, error) {
	all, err := r.list()
	if err != nil {
		return nil, err
	}
	names := all[:0]
	for _, n := range all {
		if !strings.HasPrefix(n, partPrefix) {
			names = append(names, n)
		}
	}
	return names, nil
}

func (r *Records) list() ([]string, error) {
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
