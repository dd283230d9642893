package tree

import (
	"fmt"
	"math"
	"slices"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Feature levels: what entries after the operation that raises the level mean. A
// replica whose program does not know a level stops there, until it is updated.
const (
	// FeatureLimits: growth beyond the limits is refused where it is applied, and so
	// exactly. Below, the coordinator refuses it before it is logged, by estimates.
	FeatureLimits = 2
	// FeatureMax is the highest level that this program knows.
	FeatureMax = 2
)

func (x *tx) control(op fsop.Op) *fsop.Reply {
	switch o := op.(type) {
	case *fsop.OpenSession:
		return x.openSession(o)
	case *fsop.AttachSession:
		return x.attachSession(o)
	case *fsop.EvictSession:
		return x.evictSession(o)
	case *fsop.Own:
		return x.own(o)
	case *fsop.Seal:
		return x.seal()
	case *fsop.Reap:
		return x.reap(o)
	case *fsop.SetLimits:
		x.g.limitBytes, x.g.limitInodes = o.Bytes, o.Inodes
		return &fsop.Reply{}
	case *fsop.SetFeature:
		if o.Level > FeatureMax {
			stop("raise the feature level", fmt.Errorf("level %d, this program knows %d", o.Level, FeatureMax))
		}
		x.g.feature = max(x.g.feature, o.Level)
		return &fsop.Reply{}
	}
	return refuse(fsop.ENOSYS)
}

func (x *tx) openSession(o *fsop.OpenSession) *fsop.Reply {
	for _, set := range []map[uint64]*session{x.sessions, x.t.sessions} {
		for _, s := range set {
			if s.nonce == o.Nonce && x.peek(s.id) != nil {
				return &fsop.Reply{Session: s.id}
			}
		}
	}
	if x.sealed() {
		return refuse(fsop.EROFS)
	}
	if x.g.seeded == 0 {
		x.g.seeded, x.g.seed = 1, o.Nonce
		x.dateRoot()
	}
	s := &session{
		id: x.g.nextSession, nonce: o.Nonce, opened: x.now,
		name: slices.Clone(o.Name[:min(len(o.Name), fsop.NameMax)]),
	}
	x.g.nextSession++
	x.sessions[s.id] = s
	x.put(key1(keySession, s.id), appendSession(nil, s))
	x.putPosition(s)
	return &fsop.Reply{Session: s.id}
}

// dateRoot gives a new volume's root directory its times: no entry has made it.
func (x *tx) dateRoot() {
	root := x.inode(fsop.Root)
	if root == nil || root.ctime != (fsop.Time{}) {
		return
	}
	root.atime, root.mtime, root.ctime = x.now, x.now, x.now
	x.change(root)
}

// attachSession lets a server take a session over: the one before is refused
// from here on.
func (x *tx) attachSession(o *fsop.AttachSession) *fsop.Reply {
	if s := x.peek(o.Session); s == nil || o.Epoch < s.epoch {
		return refuse(fsop.ESTALE)
	}
	x.session(o.Session).epoch = o.Epoch
	return &fsop.Reply{Session: o.Session}
}

func (x *tx) evictSession(o *fsop.EvictSession) *fsop.Reply {
	s := x.session(o.Session)
	if s == nil {
		return &fsop.Reply{}
	}
	x.dropLocks(s.id)
	s.ended = true
	x.del(key1(keySession, s.id))
	x.del(key1(keyPosition, s.id))
	x.delAll(key1(keyReply, s.id), prefixEnd(keyReply, s.id))
	if o, ok := x.owner(); ok && o.Session == s.id {
		x.del([]byte{keyOwner})
	}
	return &fsop.Reply{}
}

func (x *tx) reap(o *fsop.Reap) *fsop.Reply {
	for _, ino := range o.Inos {
		if n := x.inode(ino); n != nil && n.nlink == 0 {
			x.remove(n)
		}
	}
	return &fsop.Reply{}
}

// remove deletes every record of an orphan. Its content file goes when no
// checkpoint needs it any more.
func (x *tx) remove(n *inode) {
	x.change(n)
	n.gone = true
	x.g.inodes--
	x.del(inodeKey(n.ino))
	x.del(orphanKey(n.ino))
	if len(x.held(n.ino)) > 0 {
		x.setHeld(n.ino, nil)
	}
	if n.xattrs > 0 {
		x.delAll(key1(keyXattr, uint64(n.ino)), prefixEnd(keyXattr, uint64(n.ino)))
	}
	if n.isFile() || n.kind() == fsop.TypeLink {
		x.del(inlineKey(n.ino))
	}
	if n.has(inFile) {
		x.zeroSums(n.ino, 0, x.sumsEnd(n), x.sumsEnd(n))
		x.t.content.pending.drop(n.ino, 0, math.MaxUint64)
	}
	x.free(n, 0, 1<<63)
	if n.isFile() && n.changed > 0 {
		x.reaped = append(x.reaped, n.ino)
	}
}
