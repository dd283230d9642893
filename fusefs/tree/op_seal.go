package tree

import (
	"maps"
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// sealed reports whether the volume takes no new sessions any more.
func (v view) sealed() bool { return v.get([]byte{keySeal}, func([]byte) {}) }

// seal closes the volume for good, unless a session is left.
func (x *tx) seal() *fsop.Reply {
	ids := slices.Concat(slices.Collect(maps.Keys(x.t.sessions)), slices.Collect(maps.Keys(x.sessions)))
	slices.Sort(ids)
	for _, id := range ids {
		if s := x.peek(id); s != nil {
			return &fsop.Reply{Errno: fsop.EBUSY, Data: slices.Clone(s.name)}
		}
	}
	x.put([]byte{keySeal}, []byte{1})
	return &fsop.Reply{}
}

// Sealed reports whether the volume takes no new sessions any more.
func (t *Tree) Sealed() (sealed bool) {
	err := t.reading(nil, func(v view) { sealed = v.sealed() })
	return err == nil && sealed
}
