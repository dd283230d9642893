package tree

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// halt carries an error of the disk or the store out of nested code. It is
// thrown by panic and caught at the package's border (caught), so that the
// code of operations speaks of POSIX outcomes only.
type halt struct{ err error }

func stop(what string, err error) { panic(halt{fmt.Errorf("%s: %w", what, err)}) }

// caught turns a halt into an error; to be deferred.
func caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case halt:
		*err = r.err
	default:
		panic(r)
	}
}

// errCorrupt is wrapped when a record can't be understood.
var errCorrupt = errors.New("corrupt record")

// view reads records: from the store, from a snapshot of it, or from a
// transaction that is being built.
type view struct{ r pebble.Reader }

// get hands a record's bytes to use, which must not keep them.
func (v view) get(key []byte, use func(val []byte)) bool {
	val, closer, err := v.r.Get(key)
	if err == pebble.ErrNotFound {
		return false
	}
	if err != nil {
		stop("read the store", err)
	}
	defer leave("read the store", closer)
	use(val)
	return true
}

// leave, to be deferred, closes a look at the store, also one that was stopped: what
// stays open holds a table for as long as the process lives.
func leave(what string, look io.Closer) {
	stopped := recover()
	err := look.Close()
	if stopped != nil {
		panic(stopped)
	}
	if err != nil {
		stop(what, err)
	}
}

// value returns a copy of a record's bytes, nil when there is none.
func (v view) value(key []byte) (val []byte, ok bool) {
	ok = v.get(key, func(b []byte) { val = append(make([]byte, 0, len(b)), b...) })
	return val, ok
}

// scan calls use for the records in [lo, hi) until it returns false.
func (v view) scan(lo, hi []byte, use func(key, val []byte) bool) {
	it, err := v.r.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		stop("iterate the store", err)
	}
	defer leave("iterate the store", it)
	for ok := it.First(); ok; ok = it.Next() {
		val, err := it.ValueAndErr()
		if err != nil {
			stop("iterate the store", err)
		}
		if !use(it.Key(), val) {
			break
		}
	}
}

func (v view) inode(ino fsop.Ino) *inode {
	var n *inode
	v.get(inodeKey(ino), func(b []byte) {
		var ok bool
		if n, ok = decodeInode(ino, b); !ok {
			stop(fmt.Sprintf("inode %d", ino), errCorrupt)
		}
	})
	return n
}

func (v view) dirent(key []byte) (e dirent, found bool) {
	found = v.get(key, func(b []byte) {
		var ok bool
		if e, ok = decodeDirent(b); !ok {
			stop("directory entry", errCorrupt)
		}
	})
	return e, found
}

func (v view) globals() (g globals, found bool) {
	found = v.get([]byte{keyGlobals}, func(b []byte) {
		var ok bool
		if g, ok = decodeGlobals(b); !ok {
			stop("globals (another format version?)", errCorrupt)
		}
	})
	return g, found
}
