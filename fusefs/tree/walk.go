package tree

import (
	"fmt"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// Node is one name found by Walk.
type Node struct {
	Path   string // from the root, which is "."; names are bytes
	Link   string // set: the same inode was made under this path before
	Attr   fsop.Attr
	Target []byte // of a symbolic link
	Xattrs []Xattr
}

// Xattr is an extended attribute.
type Xattr struct{ Name, Value []byte }

// Sink takes what Walk finds. For each name Make is called; unless it is a
// hard link to an earlier one, Write follows for the ranges of a file that are
// not holes, in order, and then Finish: for a directory when all its entries
// are finished. An error ends the walk.
type Sink interface {
	Make(n *Node) error
	Write(n *Node, off uint64, data []byte) error
	Finish(n *Node) error
}

// Walk visits the files of the newest checkpoint of the replica in dir, without
// changing it; no worker may serve it meanwhile. Orphans are left out. It
// returns the checkpoint and the number of pages that differ from their
// checksum: damaged, or written since the checkpoint. They are visited as they
// are.
func Walk(fsys disk.FS, dir string, sink Sink) (meta Meta, differ uint64, err error) {
	w := walker{sink: sink, made: make(map[fsop.Ino]string)}
	err = withReplica(fsys, dir, func(o *offline) error {
		w.o, meta = o, o.meta
		return w.entry(fsop.Root, ".")
	})
	return meta, w.differ, err
}

type walker struct {
	o      *offline
	sink   Sink
	made   map[fsop.Ino]string // where an inode with several names was made
	differ uint64
}

func (w *walker) entry(ino fsop.Ino, path string) error {
	n := w.o.inode(ino)
	if n == nil {
		return fmt.Errorf("inode %d: %w", ino, errCorrupt)
	}
	node := &Node{Path: path, Attr: n.attr(), Link: w.made[ino]}
	if node.Link != "" {
		return w.sink.Make(node)
	}
	if !n.isDir() && n.nlink > 1 {
		w.made[ino] = path
	}
	if n.kind() == fsop.TypeLink {
		node.Target, _ = w.o.value(inlineKey(ino))
	}
	w.o.eachXattr(ino, func(name, val []byte) bool {
		node.Xattrs = append(node.Xattrs, Xattr{append([]byte(nil), name...), append([]byte(nil), val...)})
		return true
	})
	if err := w.sink.Make(node); err != nil {
		return err
	}
	if err := w.inside(n, node); err != nil {
		return err
	}
	return w.sink.Finish(node)
}

// inside visits what a directory or file holds.
func (w *walker) inside(n *inode, node *Node) error {
	switch {
	case n.isDir():
		return w.children(n.ino, node.Path)
	case n.has(inFile):
		differ, err := w.o.compare(n, func(off uint64, data []byte) error { return w.sink.Write(node, off, data) })
		w.differ += differ
		return err
	case n.isFile():
		if val, ok := w.o.value(inlineKey(n.ino)); ok {
			return w.sink.Write(node, 0, val)
		}
	}
	return nil
}

func (w *walker) children(ino fsop.Ino, path string) (err error) {
	prefix := ""
	if path != "." {
		prefix = path + "/"
	}
	w.o.scan(key1(keyDirent, uint64(ino)), prefixEnd(keyDirent, uint64(ino)), func(key, val []byte) bool {
		d, ok := decodeDirent(val)
		name := key[17:]
		if !ok || checkName(name) != fsop.OK {
			err = fmt.Errorf("an entry of directory %d: %w", ino, errCorrupt)
			return false
		}
		err = w.entry(d.ino, prefix+string(name))
		return err == nil
	})
	return err
}
