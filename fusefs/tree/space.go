package tree

import "tak-os.org/tak-replicated/fusefs/fsop"

// Space tells what decides about ENOSPC and the quota.
func (t *Tree) Space() (SpaceInfo, error) {
	t.mu.RLock()
	g := t.g
	t.mu.RUnlock()
	return t.space(&g)
}

func (t *Tree) space(g *globals) (SpaceInfo, error) {
	u, err := t.fs.Usage(t.cfg.Dir)
	return SpaceInfo{
		UsedBytes: g.pages * pageSize, UsedInodes: g.inodes,
		LimitBytes: g.limitBytes, LimitInodes: g.limitInodes,
		DiskBytes: u.TotalBytes, DiskFree: u.AvailBytes,
		DiskInodes: u.TotalInodes, InodesFree: u.FreeInodes,
		Reserve: t.cfg.ReserveBytes, LimitsExact: g.feature >= FeatureLimits,
	}, err
}

// fits reports whether the pages that [p0, p1) of a file lack are within the
// limit. What is allocated already can be written again on a full volume.
func (x *tx) fits(n *inode, p0, p1 uint64) bool {
	if x.g.feature < FeatureLimits || x.g.limitBytes == 0 {
		return true
	}
	lacking, limit := x.lacking(n, p0, p1), x.g.limitBytes/pageSize
	return lacking == 0 || x.g.pages < limit && lacking <= limit-x.g.pages
}

// fitsInode reports whether there may be another inode.
func (x *tx) fitsInode() bool {
	return x.g.feature < FeatureLimits || x.g.limitInodes == 0 || x.g.inodes < x.g.limitInodes
}

// recordBytes is about what a new inode or name costs in the store, with its
// part of compaction.
const recordBytes = 1024

// Growth estimates, from above, the bytes that a mutation adds to the disk of
// a replica. Zero: it adds nothing, or frees; it may be done on a full disk.
func (t *Tree) Growth(op fsop.Op) uint64 {
	switch o := op.(type) {
	case *fsop.Ahead:
		return aheadGrowth(o.Op)
	case *fsop.Create, *fsop.Tmpfile, *fsop.Link:
		return recordBytes
	case *fsop.SetXattr:
		return recordBytes + uint64(len(o.Value))
	case *fsop.Write:
		off := o.Offset
		if o.Append {
			off = fsop.FileSizeMax
		}
		return t.growth(o.Ino, off, uint64(len(o.Data)))
	case *fsop.Fallocate:
		if o.Mode&fsop.FallocPunchHole == 0 {
			return t.growth(o.Ino, o.Offset, o.Length)
		}
	}
	return 0
}

// aheadGrowth is Growth without a look at the file, which may not be there yet.
func aheadGrowth(op fsop.Op) uint64 {
	switch o := op.(type) {
	case *fsop.Create, *fsop.Link:
		return recordBytes
	case *fsop.Write:
		return fsop.AheadRoom(o)
	}
	return 0
}

// growth is what allocating the bytes [off, off+n) adds: nothing where the
// file is allocated already.
func (t *Tree) growth(ino fsop.Ino, off, n uint64) (add uint64) {
	if n == 0 {
		return 0
	}
	pages := n/pageSize + 2
	_ = t.reading(nil, func(v view) {
		node := v.inode(ino)
		if node == nil {
			return
		}
		if off >= fsop.FileSizeMax { // appending
			off = node.size
		}
		p0, p1 := pagesOf(off, off+n)
		pages = p1 - p0
		if p1 <= node.dense {
			pages = 0
		} else if p0 < node.dense {
			pages = p1 - node.dense
		} else if pages == 1 && v.allocated(node, p0) {
			pages = 0
		}
	})
	if pages == 0 {
		return 0
	}
	return pages*pageSize + recordBytes
}
