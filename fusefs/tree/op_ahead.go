package tree

import "tak-os.org/tak-replicated/fusefs/fsop"

// Operations that were answered before they came here, and the session's range
// of inode numbers that they take theirs from.

// orderly applies an operation whose session waits for the answer.
func (x *tx) orderly(s *session, op fsop.Op) *fsop.Reply {
	switch o := op.(type) {
	case *fsop.Mend:
		s.broke = 0
		return &fsop.Reply{}
	case *fsop.Nop, *fsop.Refuse:
		return x.mutate(s, o)
	}
	if s.broke != 0 {
		return refuse(fsop.EIO) // it was sent by somebody who believes in what failed
	}
	if o, ok := op.(*fsop.Reserve); ok {
		return x.reserveInos(s, o)
	}
	return x.mutate(s, op)
}

// ahead applies an operation as its session told it to the application. What
// differs from that breaks the stream.
func (x *tx) ahead(s *session, o *fsop.Ahead) *fsop.Reply {
	if s.broke != 0 {
		return refuse(fsop.EIO)
	}
	x.now = o.Stamp
	if x.g.stamp.Before(o.Stamp) {
		x.g.stamp = o.Stamp
	}
	var changed []fsop.Time
	for _, ino := range fsop.Names(o.Op) {
		if n := x.inode(ino); n != nil {
			changed = append(changed, n.ctime)
		}
	}
	r := x.aheadOf(s, o)
	if fsop.After(fsop.Outcome(r), changed) != o.Expect {
		s.broke = s.seq
	}
	return r
}

func (x *tx) aheadOf(s *session, o *fsop.Ahead) *fsop.Reply {
	c, ok := o.Op.(*fsop.Create)
	if !ok {
		return x.mutate(s, o.Op)
	}
	if o.Ino < s.nextIno || o.Ino >= s.endIno || x.inode(o.Ino) != nil {
		return refuse(fsop.EINVAL)
	}
	s.nextIno = o.Ino + 1
	x.given = o.Ino
	defer func() { x.given = 0 }()
	return x.create(c)
}

func (x *tx) reserveInos(s *session, o *fsop.Reserve) *fsop.Reply {
	if o.Count == 0 || o.Count > fsop.ReserveMax {
		return refuse(fsop.EINVAL)
	}
	s.nextIno = x.g.nextIno
	x.g.nextIno += fsop.Ino(o.Count)
	s.endIno = x.g.nextIno
	return &fsop.Reply{Offset: uint64(s.nextIno)}
}
