package tree

import (
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/tree/store"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// Verified is what VerifyCheckpoint found.
type Verified struct {
	Meta   Meta
	Inodes uint64
	Files  uint64 // with a content file
	Bytes  uint64 // allocated by files
	// Differ counts pages whose bytes differ from their checksum at the
	// checkpoint: damaged, or written since. Only replaying the journal tells.
	Differ uint64
}

// verifyStore reads every record of a store and checks that it shows index.
func verifyStore(fsys disk.FS, dir string, s *Shared, log *zap.Logger, index uint64) error {
	return withStore(fsys, dir, s, log, func(v view) error {
		g, ok := v.globals()
		if !ok || g.applied != index {
			return fmt.Errorf("the store shows index %d", g.applied)
		}
		v.scan([]byte{0}, []byte{0xff}, func([]byte, []byte) bool { return true })
		return nil
	})
}

// openReadOnly opens a store to look at: nothing is written, not even a lock
// file, and damage is the error of the look, not the end of the tree.
func openReadOnly(fsys disk.FS, dir string, s *Shared, log *zap.Logger) (*store.DB, error) {
	return store.Open(unlocked{fsys}, dir, s.store, log, true, nil)
}

// unlocked is a file system that makes no lock files.
type unlocked struct{ disk.FS }

// Lock implements vfs.FS.
func (unlocked) Lock(string) (io.Closer, error) { return noLock{}, nil }

type noLock struct{}

func (noLock) Close() error { return nil }

// withStore runs use on a store that stays as it is.
func withStore(fsys disk.FS, dir string, s *Shared, log *zap.Logger, use func(view) error) (err error) {
	db, err := openReadOnly(fsys, dir, s, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	defer caught(&err)
	return use(view{db})
}

// offline is a replica's newest checkpoint, looked at without changing
// anything.
type offline struct {
	view
	meta    Meta
	g       globals
	content *content
}

// withReplica runs use on the newest checkpoint in a replica's folder.
func withReplica(fsys disk.FS, dir string, use func(*offline) error) error {
	s := NewShared(8 << 20)
	defer s.Close()
	gens, err := numbered(fsys, dir, genPrefix)
	if err != nil {
		return fmt.Errorf("look for a replica: %w", err)
	}
	if len(gens) == 0 {
		return fmt.Errorf("%s holds no replica", dir)
	}
	g := generationAt(fsys, dir, lastOf(gens))
	named, err := numbered(fsys, g.dir, ckPrefix)
	if err != nil {
		return fmt.Errorf("look for checkpoints: %w", err)
	}
	if len(named) == 0 {
		return fmt.Errorf("%s has no checkpoint yet", dir)
	}
	ck := g.path(ckName(lastOf(named)))
	o := &offline{}
	if o.meta, err = checkpointMeta(fsys, ck); err != nil {
		return err
	}
	o.content = newContent(fsys, g.path(contentDir), s.handles)
	defer s.handles.dropAll(o.content)
	return withStore(fsys, fsys.PathJoin(ck, storeDir), s, zap.NewNop(), func(v view) error {
		var ok bool
		o.view = v
		if o.g, ok = v.globals(); !ok || o.g.applied != o.meta.Index {
			return fmt.Errorf("checkpoint %d shows index %d", o.meta.Index, o.g.applied)
		}
		return use(o)
	})
}

// VerifyCheckpoint checks the newest checkpoint of the replica in dir, which no
// worker may serve meanwhile: every record, the invariants of Check, and the
// bytes of contents against their checksums.
func VerifyCheckpoint(fsys disk.FS, dir string) (*Verified, error) {
	var found *Verified
	err := withReplica(fsys, dir, func(o *offline) error {
		c := newChecker(o.view, nil)
		if err := c.run(); err != nil {
			return err
		}
		found = &Verified{Meta: o.meta, Inodes: c.inodes, Bytes: c.pages * pageSize}
		return o.eachInode(func(n *inode) error {
			if !n.has(inFile) {
				return nil
			}
			found.Files++
			differ, err := o.compare(n, nil)
			found.Differ += differ
			return err
		})
	})
	return found, err
}

func (v view) eachInode(use func(*inode) error) (err error) {
	v.scan([]byte{keyInode}, []byte{keyInode + 1}, func(key, val []byte) bool {
		n, ok := decodeInode(keyIno(key), val)
		if !ok {
			stop(fmt.Sprintf("inode %d", keyIno(key)), errCorrupt)
		}
		err = use(n)
		return err == nil
	})
	return err
}

// compare reads the allocated ranges of a file in order, hands them to use (if
// any), and counts the pages that differ from their checksums.
func (o *offline) compare(n *inode, use func(off uint64, data []byte) error) (differ uint64, err error) {
	buf := make([]byte, regionPages*pageSize)
	for page, ok := o.nextData(n, 0); ok && page*pageSize < n.size; page, ok = o.nextData(n, page) {
		last := min(o.nextHole(n, page), page+regionPages)
		p := buf[:(last-page)*pageSize]
		if err := o.content.readAt(n.ino, p, page*pageSize); err != nil {
			return differ, fmt.Errorf("contents of inode %d: %w", n.ino, err)
		}
		for q := page; q < last; {
			bad, good := o.verify(n.ino, q, p[(q-page)*pageSize:])
			if good {
				break
			}
			differ++
			q = bad + 1
		}
		if use != nil {
			if err := use(page*pageSize, p[:min(uint64(len(p)), n.size-page*pageSize)]); err != nil {
				return differ, err
			}
		}
		page = last
	}
	return differ, nil
}
