package tree

import "time"

// CheckpointInfo tells of the newest checkpoint.
type CheckpointInfo struct {
	Index uint64 // 0: there is none
	// MetadataBytes is the size of its metadata. The contents are the same files
	// that are in use.
	MetadataBytes uint64
	// Named is when it became durable.
	Named time.Time
}

// NewestCheckpoint looks at the newest checkpoint's files.
func (t *Tree) NewestCheckpoint() (info CheckpointInfo, err error) {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.db == nil {
		return info, errClosed
	}
	c := &t.cks
	c.mu.Lock()
	defer c.mu.Unlock() // keeps it from being removed
	if len(c.named) == 0 {
		return info, nil
	}
	info.Index = lastOf(c.named)
	dir := t.gen.path(ckName(info.Index))
	rec, err := t.fs.Stat(t.fs.PathJoin(dir, recordFile))
	if err != nil {
		return info, err
	}
	info.Named = rec.ModTime()
	store := t.fs.PathJoin(dir, storeDir)
	names, err := t.fs.List(store)
	if err != nil {
		return info, err
	}
	for _, name := range names {
		f, err := t.fs.Stat(t.fs.PathJoin(store, name))
		if err != nil {
			return info, err
		}
		info.MetadataBytes += uint64(f.Size())
	}
	return info, nil
}
