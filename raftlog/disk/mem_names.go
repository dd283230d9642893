package disk

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"syscall"
)

// Link implements vfs.FS.
func (m *Mem) Link(oldname, newname string) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	n, err := m.find("link", oldname)
	if err != nil {
		return err
	}
	at, err := m.walk("link", newname)
	switch {
	case err != nil:
		return err
	case n.isDir:
		return &fs.PathError{Op: "link", Path: oldname, Err: syscall.EPERM}
	case at.name == "" || at.dir.children[at.name] != nil:
		return &fs.PathError{Op: "link", Path: newname, Err: syscall.EEXIST}
	}
	m.change(edit{at, n})
	return nil
}

// Remove implements vfs.FS.
func (m *Mem) Remove(name string) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	at, err := m.walk("remove", name)
	if err != nil {
		return err
	}
	n := at.dir.children[at.name]
	switch {
	case n == nil:
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOENT}
	case len(n.children) > 0:
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	m.change(edit{at, nil})
	return nil
}

// RemoveAll implements vfs.FS.
func (m *Mem) RemoveAll(name string) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	at, err := m.walk("remove", name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if at.name == "" {
		m.removeTree(m.root)
		return nil
	}
	n := at.dir.children[at.name]
	if n == nil {
		return nil
	}
	if n.isDir {
		m.removeTree(n)
	}
	m.change(edit{at, nil})
	return nil
}

// Rename implements vfs.FS.
func (m *Mem) Rename(oldname, newname string) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	n, err := m.find("rename", oldname)
	if err != nil {
		return err
	}
	from, _ := m.walk("rename", oldname)
	to, err := m.walk("rename", newname)
	if err != nil {
		return err
	}
	if err := renamable(n, from, to); err != nil {
		return &fs.PathError{Op: "rename", Path: newname, Err: err}
	}
	if to.dir.children[to.name] != n {
		m.change(edit{to, n}, edit{from, nil})
	}
	return nil
}

func renamable(n *inode, from, to entry) error {
	if from.name == "" || to.name == "" {
		return syscall.EBUSY
	}
	if n.isDir && within(to.dir, n) {
		return syscall.EINVAL
	}
	old := to.dir.children[to.name]
	switch {
	case old == nil || old == n:
		return nil
	case n.isDir && !old.isDir:
		return syscall.ENOTDIR
	case !n.isDir && old.isDir:
		return syscall.EEXIST // what os.Rename makes of it
	case len(old.children) > 0:
		return syscall.ENOTEMPTY
	}
	return nil
}

// MkdirAll implements vfs.FS.
func (m *Mem) MkdirAll(name string, _ fs.FileMode) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	return m.mkdirAll(path.Clean("/" + name))
}

func (m *Mem) mkdirAll(name string) error {
	if name == "/" {
		return nil
	}
	if err := m.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	at, err := m.walk("mkdir", name)
	if err != nil {
		return err
	}
	if n := at.dir.children[at.name]; n != nil {
		if !n.isDir {
			return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
		}
		return nil
	}
	n, err := m.newInode(newDir())
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	m.change(edit{at, n})
	return nil
}

// Lock implements vfs.FS. A lock ends with the power.
func (m *Mem) Lock(name string) (io.Closer, error) {
	if err := m.lock(); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	key := path.Clean("/" + name)
	if m.locked[key] != nil {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: syscall.EAGAIN}
	}
	f, err := m.openRW(name, true)
	if err != nil {
		return nil, err
	}
	m.locked[key] = f
	return &memLock{m, f, key}, nil
}

type memLock struct {
	m   *Mem
	f   *memFile
	key string
}

// Close ends the lock.
func (l *memLock) Close() error {
	l.m.mu.Lock()
	if l.m.locked[l.key] == l.f {
		delete(l.m.locked, l.key)
	}
	l.m.mu.Unlock()
	return l.f.Close()
}
