package tree

import (
	"fmt"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Apply takes the entry at index, the one after Applied. It returns what became
// of each item, in order; e is nil for an entry of the log's own. One goroutine
// calls it. After an error the tree takes nothing more: the replica stops.
// Results and replies do not alias e.
func (t *Tree) Apply(index, term uint64, e *fsop.Entry) (results []Result, err error) {
	if err := t.failed(); err != nil {
		return nil, err
	}
	if applied, _ := t.Applied(); index != applied+1 {
		return nil, fmt.Errorf("apply entry %d after %d", index, applied)
	}
	defer func() {
		if err != nil {
			err = t.fail(fmt.Errorf("apply entry %d: %w", index, err))
		}
	}()
	defer caught(&err)
	t.meetTerm(index, term)
	if results, err = t.enter(index, term, e); err != nil {
		return nil, err
	}
	return results, t.settlePending()
}

// enter makes an entry part of the state.
func (t *Tree) enter(index, term uint64, e *fsop.Entry) (results []Result, err error) {
	x := t.begin(index, term)
	defer x.end()
	if e != nil {
		results = make([]Result, len(e.Items))
		for i := range e.Items {
			results[i] = x.item(&e.Items[i], e.Stamp)
		}
	}
	x.compareRecorded()
	if err := x.commit(); err != nil {
		return nil, err
	}
	t.retire(index, x.reaped)
	return results, nil
}

// item applies one operation.
func (x *tx) item(it *fsop.Item, stamp fsop.Time) Result {
	x.touched = nil
	kind := it.Op.Kind()
	if kind.Control() && it.Session == 0 {
		x.tick(stamp)
		r := x.control(it.Op)
		r.Index = x.index
		return Result{Applied, r, x.touched, false}
	}
	status, s := x.fate(it)
	switch status {
	case Duplicate:
		return Result{Status: Duplicate, Reply: x.storedReply(s, it.Seq)}
	case Gap, Fenced:
		return Result{Status: status}
	}
	s.seq = it.Seq
	s.ack = max(s.ack, it.Ack)
	if o, ok := it.Op.(*fsop.Ahead); ok {
		r := x.ahead(s, o)
		r.Index = x.index
		return Result{Applied, r, x.touched, s.broke != 0} // not stored: the session knows it
	}
	x.tick(stamp)
	r := x.orderly(s, it.Op)
	r.Index = x.index
	x.storeReply(s, it.Seq, r)
	return Result{Applied, r, x.touched, false}
}

// tick gives the item its time: the entry's, but after every earlier item's.
func (x *tx) tick(stamp fsop.Time) {
	x.now = stamp
	if !x.g.stamp.Before(stamp) {
		x.now = x.g.stamp.Next()
	}
	x.g.stamp = x.now
}

func (x *tx) mutate(s *session, op fsop.Op) *fsop.Reply {
	switch o := op.(type) {
	case *fsop.Create:
		return x.create(o)
	case *fsop.Tmpfile:
		return x.tmpfile(o)
	case *fsop.Link:
		return x.link(o)
	case *fsop.Unlink:
		return x.unlink(o)
	case *fsop.Rename:
		return x.rename(o)
	case *fsop.SetAttr:
		return x.setAttr(o)
	case *fsop.Write:
		return x.write(o)
	case *fsop.Fallocate:
		return x.fallocate(o)
	case *fsop.SetXattr:
		return x.setXattr(o)
	case *fsop.RemoveXattr:
		return x.removeXattr(o)
	case *fsop.Lock:
		return x.lock(s, o)
	case *fsop.Refuse:
		return refuse(o.Errno)
	case *fsop.Nop:
		return &fsop.Reply{}
	}
	return refuse(fsop.ENOSYS)
}
