package tree

// namesKept bounds the names whose last known state a tree keeps in memory.
const namesKept = 256

// nameState is what is known of one name: where it leads, or that it leads
// nowhere.
type nameState struct {
	dirent
	found bool
}

// names holds recently used names under their keys. It is more than a cache:
// the store finds a deleted key by walking over all its versions in memory, so
// a name that is made and removed again and again (a temporary file renamed
// into place) would become slower each time.
//
// Tree.names is guarded by Tree.mu and shows the applied state; a transaction
// has a set of its own that is added when it commits.
type names map[string]nameState

// add takes over what a transaction learned.
func (n names) add(more names) {
	if len(n)+len(more) > namesKept {
		clear(n)
	}
	for key, state := range more {
		n[key] = state
	}
}

// name finds a name as the entry has it by now.
func (x *tx) name(key []byte) nameState {
	if s, ok := x.names[string(key)]; ok {
		return s
	}
	if s, ok := x.t.names[string(key)]; ok {
		return s
	}
	var s nameState
	s.dirent, s.found = x.dirent(key)
	x.names[string(key)] = s
	return s
}

// setName records where a name leads from here on.
func (x *tx) setName(key []byte, s nameState) {
	x.names[string(key)] = s
	if !s.found {
		x.del(key)
		return
	}
	x.buf = appendDirent(x.buf[:0], s.dirent)
	x.put(key, x.buf)
}
