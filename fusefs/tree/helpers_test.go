package tree_test

import (
	"bytes"
	"fmt"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree/treetest"
	"tak-os.org/tak-replicated/raftlog/disk"
)

const syscallEIO = fsop.EIO

func fixtureOn(t *testing.T, fs disk.FS) *fixture {
	tr := openTree(t, fs, "replica")
	return &fixture{t, tr, treetest.NewCaller(tr)}
}

func request(op fsop.Op) *fsop.Request { return &fsop.Request{Op: op} }

// file makes a file of n bytes in the root.
func (f *fixture) file(name string, n int) fsop.Ino {
	f.Helper()
	ino := f.ok(mk(fsop.Root, name, fsop.TypeFile|0o644)).Attrs[0].Ino
	if n > 0 {
		f.ok(&fsop.Write{Ino: ino, Data: bytes.Repeat([]byte{'d'}, n)})
	}
	return ino
}

func (f *fixture) dir(parent fsop.Ino, name string) fsop.Ino {
	f.Helper()
	return f.ok(mk(parent, name, fsop.TypeDir|0o755)).Attrs[0].Ino
}

func (f *fixture) attr(ino fsop.Ino) fsop.Attr {
	f.Helper()
	return f.ok(&fsop.GetAttr{Ino: ino}).Attrs[0]
}

func mk(parent fsop.Ino, name string, mode uint32) *fsop.Create {
	return &fsop.Create{Parent: parent, Name: []byte(name), Mode: mode, Excl: true}
}

func write(ino fsop.Ino, off uint64, data string) *fsop.Write {
	return &fsop.Write{Ino: ino, Offset: off, Data: []byte(data)}
}

func read4K(ino fsop.Ino, off uint64) *fsop.Read {
	return &fsop.Read{Ino: ino, Offset: off, Length: 4096}
}

func mv(from fsop.Ino, a string, to fsop.Ino, b string, flags uint32) *fsop.Rename {
	return &fsop.Rename{Parent: from, Name: []byte(a), NewParent: to, NewName: []byte(b), Flags: flags}
}

func rm(parent fsop.Ino, name string) *fsop.Unlink {
	return &fsop.Unlink{Parent: parent, Name: []byte(name)}
}

func rmdir(parent fsop.Ino, name string) *fsop.Unlink {
	return &fsop.Unlink{Parent: parent, Name: []byte(name), Dir: true}
}

func contentPath(ino fsop.Ino) string {
	return fmt.Sprintf("replica/gen-1/content/%02x/%d", byte(ino), ino)
}
