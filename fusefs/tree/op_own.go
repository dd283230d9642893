package tree

import (
	"bytes"
	"encoding/binary"
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Owner is who owns a volume that one node at a time may use.
type Owner struct {
	Session uint64
	Name    []byte
}

func appendOwner(b []byte, o *Owner) []byte {
	return appendBytes(binary.AppendUvarint(b, o.Session), o.Name)
}

func decodeOwner(b []byte) (Owner, bool) {
	d := decoder{b: b}
	o := Owner{Session: d.u64()}
	o.Name = slices.Clone(d.bytes())
	return o, d.done()
}

// owner reads the owner; false when there is none.
func (v view) owner() (o Owner, ok bool) {
	ok = v.get([]byte{keyOwner}, func(b []byte) {
		var whole bool
		if o, whole = decodeOwner(b); !whole {
			stop("owner of the volume", errCorrupt)
		}
	})
	return o, ok
}

// own makes a session the owner. Ownership is nothing but the record that names
// a session; it goes when that session ends.
func (x *tx) own(o *fsop.Own) *fsop.Reply {
	if x.peek(o.Session) == nil {
		return refuse(fsop.ESTALE)
	}
	rep := &fsop.Reply{}
	have, owned := x.owner()
	switch {
	case owned && have.Session == o.Session:
	case owned && !bytes.Equal(have.Name, o.Owner):
		return &fsop.Reply{Errno: fsop.EBUSY, Data: have.Name}
	case owned:
		x.evictSession(&fsop.EvictSession{Session: have.Session})
		rep.Session = have.Session
	}
	x.buf = appendOwner(x.buf[:0], &Owner{o.Session, o.Owner})
	x.put([]byte{keyOwner}, x.buf)
	return rep
}

// Owner returns the volume's owner; false when there is none.
func (t *Tree) Owner() (o Owner, ok bool) {
	err := t.reading(nil, func(v view) { o, ok = v.owner() })
	return o, err == nil && ok
}
