package tree_test

import (
	"fmt"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/fusefs/tree/treetest"
	"tak-os.org/tak-replicated/raftlog/disk"
)

const page = 4096

// pageModel is which pages each file has, as simple as it can be said.
type pageModel struct {
	pages map[fsop.Ino]map[uint64]bool
	size  map[fsop.Ino]uint64
	names map[string]fsop.Ino
	links map[fsop.Ino]int
}

func (m *pageModel) used() (n uint64) {
	for _, p := range m.pages {
		n += uint64(len(p))
	}
	return n
}

// add allocates [off, end) if that fits the limit.
func (m *pageModel) add(ino fsop.Ino, off, end, limit uint64) bool {
	var fresh []uint64
	for p := off / page; p*page < end; p++ {
		if !m.pages[ino][p] {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) > 0 && m.used()+uint64(len(fresh)) > limit {
		return false
	}
	for _, p := range fresh {
		m.pages[ino][p] = true
	}
	return true
}

func (m *pageModel) cut(ino fsop.Ino, from, to uint64) {
	for p := range m.pages[ino] {
		if p >= from && p < to {
			delete(m.pages[ino], p)
		}
	}
}

// TestQuotaIsExact compares random growth and shrinking of files with holes, hard
// links and orphans with a model: what fits the limit is done, what does not is
// refused, to the page, also after a checkpoint (CONTRACT A7).
func TestQuotaIsExact(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { quotaIsExact(t, seed) })
	}
}

func quotaIsExact(t *testing.T, seed uint64) {
	const limit = 60
	mem := disk.NewMem(seed)
	f := fixtureOn(t, mem)
	f.ok(&fsop.SetFeature{Level: tree.FeatureLimits})
	f.ok(&fsop.SetLimits{Bytes: limit*page + 4095})
	m := &pageModel{map[fsop.Ino]map[uint64]bool{}, map[fsop.Ino]uint64{}, map[string]fsop.Ino{}, map[fsop.Ino]int{}}
	d := dice(seed + 77)
	refused := 0
	grow := func(fits bool, op fsop.Op) {
		t.Helper()
		if fits {
			f.ok(op)
			return
		}
		f.fails(fsop.ENOSPC, op)
		refused++
	}
	for step := range 1500 {
		name := fmt.Sprint("f", d.below(8))
		ino, exists := m.names[name]
		off := d.below(40 * page)
		end := off + 1 + d.below(6*page)
		switch what := d.below(20); {
		case !exists:
			ino = f.ok(mk(root, name, fsop.TypeFile|0o644)).Attrs[0].Ino
			m.names[name], m.links[ino], m.pages[ino], m.size[ino] = ino, 1, map[uint64]bool{}, 0
		case what < 8:
			fits := m.add(ino, off, end, limit)
			grow(fits, &fsop.Write{Ino: ino, Offset: off, Data: make([]byte, end-off)})
			if fits {
				m.size[ino] = max(m.size[ino], end)
			}
		case what < 10: // appending
			end := m.size[ino] + end - off
			fits := m.add(ino, m.size[ino], end, limit)
			grow(fits, &fsop.Write{Ino: ino, Append: true, Data: make([]byte, end-m.size[ino])})
			if fits {
				m.size[ino] = end
			}
		case what < 12:
			mode := []uint32{0, fsop.FallocKeepSize, fsop.FallocZeroRange}[d.below(3)]
			fits := m.add(ino, off, end, limit)
			grow(fits, &fsop.Fallocate{Ino: ino, Mode: mode, Offset: off, Length: end - off})
			if fits && mode != fsop.FallocKeepSize {
				m.size[ino] = max(m.size[ino], end)
			}
		case what < 13:
			p0 := off / page
			p1 := p0 + 1 + d.below(8)
			f.ok(&fsop.Fallocate{Ino: ino, Mode: fsop.FallocPunchHole | fsop.FallocKeepSize, Offset: p0 * page, Length: (p1 - p0) * page})
			m.cut(ino, p0, p1)
		case what < 15:
			f.ok(&fsop.SetAttr{Ino: ino, Valid: fsop.SetSize, Size: off})
			if off <= m.size[ino] { // what is reserved past the end goes, too
				m.cut(ino, (off+page-1)/page, 1<<40)
			}
			m.size[ino] = off
		case what < 16:
			other := fmt.Sprint("f", d.below(8))
			if _, taken := m.names[other]; !taken {
				f.ok(&fsop.Link{Ino: ino, Parent: root, Name: []byte(other)})
				m.names[other] = ino
				m.links[ino]++
			}
		default:
			f.ok(rm(root, name))
			delete(m.names, name)
			m.links[ino]--
			if m.links[ino] == 0 && d.one(2) { // else it stays an orphan
				f.ok(&fsop.Reap{Inos: []fsop.Ino{ino}})
				delete(m.pages, ino)
			}
		}
		if step%10 == 9 { // orphans go after a while
			for ino := range m.pages {
				if m.links[ino] == 0 {
					f.ok(&fsop.Reap{Inos: []fsop.Ino{ino}})
					delete(m.pages, ino)
				}
			}
		}
		if step%400 == 399 {
			checkpoint(t, f.t)
			f.t.Close()
			f.t = openTree(t, mem, "replica")
			f.c = treetest.NewCaller(f.t)
		}
		fs := f.ok(&fsop.StatFSQuery{}).FS
		if used := fs.Bytes - fs.BytesFree; fs.Bytes != limit*page || used != m.used()*page {
			t.Fatalf("step %d: statfs shows %d of %d pages, the model has %d", step, used/page, fs.Bytes/page, m.used())
		}
	}
	if refused < 50 {
		t.Fatalf("only %d refusals", refused)
	}
}

// TestInodeLimit refuses another inode where the limit is reached, and takes one
// when an orphan has been reaped.
func TestInodeLimit(t *testing.T) {
	f := memFixture(t)
	f.ok(&fsop.SetFeature{Level: tree.FeatureLimits})
	f.ok(&fsop.SetLimits{Inodes: 3}) // the root is one
	a := f.file("a", 0)
	f.file("b", 0)
	f.fails(fsop.ENOSPC, mk(root, "c", fsop.TypeFile))
	f.fails(fsop.ENOSPC, &fsop.Tmpfile{Parent: root, Mode: 0o600})
	f.ok(&fsop.Link{Ino: a, Parent: root, Name: []byte("a2")}) // no inode
	f.ok(rm(root, "a"))
	f.ok(rm(root, "a2"))
	f.fails(fsop.ENOSPC, mk(root, "c", fsop.TypeFile))
	f.ok(&fsop.Reap{Inos: []fsop.Ino{a}})
	f.file("c", 0)
}

// TestLimitsBelowTheirFeatureLevel leaves logs that were begun with an earlier
// release as they are: there the tree takes what was logged (CONTRACT C9).
func TestLimitsBelowTheirFeatureLevel(t *testing.T) {
	f := memFixture(t)
	f.ok(&fsop.SetLimits{Bytes: page, Inodes: 1})
	f.file("a", 3*page)
	f.ok(&fsop.SetFeature{Level: tree.FeatureLimits})
	f.fails(fsop.ENOSPC, write(2, 3*page, "more"))
	f.ok(write(2, 0, "in place"))
	fs := f.ok(&fsop.StatFSQuery{}).FS
	if fs.Bytes != 3*page || fs.BytesFree != 0 {
		t.Errorf("a volume that holds more than its limit shows %+v", fs)
	}
}
