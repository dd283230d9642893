package coord

import "tak-os.org/tak-replicated/fusefs/fsop"

// nameKey stands for a name in a directory; two names may have the same.
type nameKey struct {
	dir  fsop.Ino
	hash uint64
}

func keyOf(dir fsop.Ino, name []byte) nameKey {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range name {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return nameKey{dir, h}
}

// renames lists the names that op changes, twice the same when it is one.
func renames(op fsop.Op) (keys [2]nameKey, any bool) {
	if a, ok := op.(*fsop.Ahead); ok {
		op = a.Op
	}
	one := func(dir fsop.Ino, name []byte) ([2]nameKey, bool) {
		k := keyOf(dir, name)
		return [2]nameKey{k, k}, true
	}
	switch o := op.(type) {
	case *fsop.Create:
		return one(o.Parent, o.Name)
	case *fsop.Link:
		return one(o.Parent, o.Name)
	case *fsop.Unlink:
		return one(o.Parent, o.Name)
	case *fsop.Rename:
		return [2]nameKey{keyOf(o.Parent, o.Name), keyOf(o.NewParent, o.NewName)}, true
	}
	return keys, false
}

// launched counts a mutation as in flight.
func (c *Coordinator) launched(m *mutation) {
	s := m.session
	s.waiting[m.req.Seq] = m
	m.epoch = s.epoch
	if o, ok := m.req.Op.(*fsop.Ahead); ok {
		c.launchedAhead(s, o)
	} else {
		s.mutations++
		s.unapplied++
		c.mutations++
		c.unapplied++
	}
	if keys, ok := renames(m.req.Op); ok {
		for _, k := range keys {
			c.renaming[k]++
		}
	}
}

// landed undoes launched.
func (c *Coordinator) landed(m *mutation) {
	delete(m.session.waiting, m.req.Seq)
	if _, ahead := m.req.Op.(*fsop.Ahead); !ahead {
		m.session.unapplied--
		c.unapplied--
	}
	if keys, ok := renames(m.req.Op); ok {
		for _, k := range keys {
			if c.renaming[k]--; c.renaming[k] == 0 {
				delete(c.renaming, k)
			}
		}
	}
}
