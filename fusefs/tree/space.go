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

// Of the inodes of a replica's disk some are kept from files: for the store, its
// checkpoints and the journal, and for a replay, which makes files again that were
// removed since. It is an eighth of all, within these bounds.
const (
	inodesKeptLeast = 1 << 10
	inodesKeptMost  = 16 << 10
)

// inodesUncounted is how many files fit a disk that makes inodes as it needs them.
const inodesUncounted = 1 << 40

// SpareInodes is how many content files may still be made on a disk with that many
// inodes, of which some are free. A total of 0 says that they are not limited.
func SpareInodes(total, free uint64) uint64 {
	if total == 0 {
		return inodesUncounted
	}
	return min(free-min(free, keptInodes(total)), inodesUncounted)
}

func keptInodes(total uint64) uint64 {
	return max(inodesKeptLeast, min(inodesKeptMost, total/8))
}

// recordBytes is about what a new inode or name costs in the store, with its
// part of compaction.
const recordBytes = 1024

// Growth is what a mutation adds to the disk of a replica.
type Growth struct{ Bytes, Files uint64 }

// Growth estimates, from above, what a mutation adds to the disk of a replica: bytes,
// and content files, for which the disk needs inodes. Nothing: it adds nothing, or
// frees; it may be done on a full disk.
func (t *Tree) Growth(op fsop.Op) Growth {
	switch o := op.(type) {
	case *fsop.Ahead:
		return t.aheadGrowth(o.Op)
	case *fsop.Create, *fsop.Tmpfile, *fsop.Link:
		return Growth{Bytes: recordBytes}
	case *fsop.SetXattr:
		return Growth{Bytes: recordBytes + uint64(len(o.Value))}
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
	return Growth{}
}

// aheadGrowth is Growth of an operation on a file that may not be there yet.
func (t *Tree) aheadGrowth(op fsop.Op) Growth {
	switch o := op.(type) {
	case *fsop.Create, *fsop.Link:
		return Growth{Bytes: recordBytes}
	case *fsop.Write:
		g := Growth{Bytes: fsop.AheadRoom(o)}
		if o.Append || o.Offset+uint64(len(o.Data)) > pageSize {
			g.Files = t.Growth(o).Files
		}
		return g
	}
	return Growth{}
}

// growth is what allocating the bytes [off, off+n) adds: nothing where the
// file is allocated already.
func (t *Tree) growth(ino fsop.Ino, off, n uint64) Growth {
	if n == 0 {
		return Growth{}
	}
	pages, files := n/pageSize+2, uint64(1)
	_ = t.reading(nil, func(v view) {
		node := v.inode(ino)
		if node == nil {
			return
		}
		if off >= fsop.FileSizeMax { // appending
			off = node.size
		}
		if node.has(inFile) || off+n <= pageSize {
			files = 0
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
		return Growth{}
	}
	return Growth{pages*pageSize + recordBytes, files}
}
