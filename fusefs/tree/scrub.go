package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

// Damage is found by three looks, each of a part of the replica: contents
// against their checksums (ScrubContents), the newest checkpoint's tables as the
// disk has them (ScrubCheckpoint), and records against those of the other
// replicas at one index (HashRange). A page that differs is mended from another
// replica (Mend): checksums are replicated, so that bytes which fit the checksum
// here are the right ones, whoever sent them. Damage elsewhere, or a replica that
// differs from the majority, is condemned (Condemn).

// Repair gets pages from other replicas for a tree that finds its own damaged.
type Repair interface {
	// Fetch returns a page for which fits is true, from whoever has one. fits is
	// given what ReadPage returned there. It is called while an entry is being
	// applied, which waits. An error says that nobody has one: the replica's contents
	// are given up. If somebody who may have one could not be asked it is
	// ErrUnanswered.
	Fetch(ino fsop.Ino, page uint64, fits func(data []byte, changed uint64) bool) ([]byte, error)
	// Damaged hears of pages that a read found damaged, and returns when it has
	// done what it can: with true the read is tried once more. It is called
	// without locks.
	Damaged(ino fsop.Ino, page uint64) bool
}

// ErrUnanswered is the error of a Repair that could not ask every other replica. The
// entry is not applied, and nothing is taken for lost: the next start tries again.
var ErrUnanswered = errors.New("not every other replica could be asked for a damaged page")

// PageBytes is the size of a page, the unit of checksums.
const PageBytes = pageSize

// BadPage is a page whose bytes differ from its checksum.
type BadPage struct {
	Ino  fsop.Ino
	Page uint64
}

// badPagesMax bounds what one look reports.
const badPagesMax = 1024

// ScrubContents reads the contents of files from inode from on, until at least
// most bytes are read or there are no more, and returns where to go on (0: the
// end), what it read, and the damaged pages.
func (t *Tree) ScrubContents(ctx context.Context, from fsop.Ino, most uint64) (next fsop.Ino, read uint64, bad []BadPage, err error) {
	if !t.Ready() {
		return from, 0, nil, nil
	}
	for next = from; read < most; {
		ino, ok, err := t.nextInFile(next)
		if err != nil || !ok {
			return 0, read, bad, err
		}
		next = ino + 1
		n, found, err := t.scrubFile(ctx, ino, badPagesMax-len(bad))
		read += n + pageSize // looking costs, too
		bad = append(bad, found...)
		if err != nil || len(bad) >= badPagesMax {
			return next, read, bad, err
		}
	}
	return next, read, bad, nil
}

// nextInFile finds the first inode from ino on that has a content file.
func (t *Tree) nextInFile(ino fsop.Ino) (found fsop.Ino, ok bool, err error) {
	err = t.reading(nil, func(v view) {
		v.scan(inodeKey(ino), []byte{keyInode + 1}, func(key, val []byte) bool {
			n, good := decodeInode(keyIno(key), val)
			if !good {
				stop(fmt.Sprintf("inode %d", keyIno(key)), errCorrupt)
			}
			if n.has(inFile) {
				found, ok = n.ino, true
			}
			return !ok
		})
	})
	return found, ok, t.noted(err)
}

// noted remembers damage of records that a look found.
func (t *Tree) noted(err error) error {
	if what := suspicion(err); what != "" {
		t.Condemn(err)
	}
	return err
}

// scrubFile compares one file's pages, some at a time, between which it may
// change.
func (t *Tree) scrubFile(ctx context.Context, ino fsop.Ino, most int) (read uint64, bad []BadPage, err error) {
	buf := make([]byte, regionPages*pageSize)
	for page, more := uint64(0), true; more && len(bad) < most; {
		if err := ctx.Err(); err != nil {
			return read, bad, err
		}
		var n uint64
		var found []BadPage
		if page, n, found, more, err = t.scrubPages(ino, page, buf); err != nil {
			return read, bad, err
		}
		read += n
		bad = append(bad, found...)
	}
	return read, bad, nil
}

// BadPages compares n pages of a file from page on, and returns the damaged ones.
func (t *Tree) BadPages(ino fsop.Ino, page, n uint64) ([]BadPage, error) {
	var bad []BadPage
	buf := make([]byte, regionPages*pageSize)
	for end := page + n; page < end; {
		next, _, found, more, err := t.scrubPages(ino, page, buf)
		bad = append(bad, found...)
		if err != nil || !more {
			return bad, err
		}
		page = next
	}
	return bad, nil
}

// scrubPages compares up to regionPages pages from page on.
func (t *Tree) scrubPages(ino fsop.Ino, page uint64, buf []byte) (next, read uint64, bad []BadPage, more bool, err error) {
	stripe := &t.stripes[uint64(ino)%stripeCount]
	stripe.RLock()
	defer stripe.RUnlock()
	err = t.reading(nil, func(v view) {
		n := v.inode(ino)
		if n == nil || !n.has(inFile) {
			return
		}
		first, ok := v.nextData(n, page)
		if !ok || first*pageSize >= n.size {
			return
		}
		last := min(v.nextHole(n, first), first+regionPages, (n.size+pageSize-1)/pageSize)
		if _, err := t.fs.Stat(t.content.path(ino)); errors.Is(err, fs.ErrNotExist) {
			t.content.handles.drop(fileKey{t.content, ino}) // open, and without a name
		}
		p := buf[:(last-first)*pageSize]
		if err := t.content.readAt(ino, p, first*pageSize); err != nil {
			t.log.Error("read contents", zap.Uint64("inode", uint64(ino)), zap.Error(err))
			for q := first; q < last; q++ {
				bad = append(bad, BadPage{ino, q})
			}
		} else {
			for q := first; q < last; {
				wrong, good := v.verify(ino, q, p[(q-first)*pageSize:])
				if good {
					break
				}
				bad = append(bad, BadPage{ino, wrong})
				q = wrong + 1
			}
		}
		next, read, more = last, uint64(len(p)), true
	})
	return next, read, bad, more, t.noted(err)
}

// Mend puts a page in the place of a damaged one, durably, and reports whether it
// did. data is what another replica's ReadPage returned, and changed: it is right if
// it is what the checksum says, or if the file was last changed by the same entry
// there; then the checksum was lost with the page (see pagesums.go). A page that is
// not part of a file any more needs nothing.
func (t *Tree) Mend(ino fsop.Ino, page uint64, data []byte, changed uint64) (done bool, err error) {
	if len(data) != pageSize || !t.Ready() {
		return false, nil
	}
	stripe := &t.stripes[uint64(ino)%stripeCount]
	stripe.Lock()
	defer stripe.Unlock()
	err = t.reading(nil, func(v view) {
		n := v.inode(ino)
		if n == nil || !n.has(inFile) || page*pageSize >= n.size || !v.allocated(n, page) {
			done = true
			return
		}
		have := make([]byte, pageSize)
		want, sum := v.sum(ino, page), pageSum(data)
		switch {
		case t.content.readAt(ino, have, page*pageSize) == nil && pageSum(have) == want:
			done = true // somebody else was faster
			return
		case sum != want && changed != n.changed:
			return
		}
		g, _ := v.globals()
		t.mendPage(pageRecord{g.applied, ino, page, sum}, data)
		if sum != want {
			r := v.region(ino, page/regionPages)
			r[page%regionPages] = sum
			t.setRegion(ino, page/regionPages, &r)
		}
		done = true
	})
	if err != nil {
		return false, fmt.Errorf("mend inode %d page %d: %w", ino, page, err)
	}
	return done, nil
}

// mendPage writes a page after its checksum is durable; the caller holds the content
// lock.
func (t *Tree) mendPage(r pageRecord, data []byte) {
	if sums := t.sums.Load(); sums != nil {
		if err := sums.add([]pageRecord{r}); err != nil {
			stop("record a checksum", t.fail(err))
		}
	}
	t.writePage(r.ino, r.page, data)
	t.content.pending.drop(r.ino, r.page, r.page+1)
}

// setRegion corrects checksums outside of an entry. An entry that is being applied
// has nothing to do with them: the caller holds the inode's content lock.
func (t *Tree) setRegion(ino fsop.Ino, at uint64, r *region) {
	key, val := regionKey(ino, at), r.encode(nil)
	var err error
	if len(val) > 0 {
		err = t.db.Set(key, val, pebble.NoSync)
	} else {
		err = t.db.Delete(key, pebble.NoSync)
	}
	if err != nil {
		stop("write the store", t.fail(err))
	}
}

// writePage writes a page and makes it durable; the caller holds the content
// lock.
func (t *Tree) writePage(ino fsop.Ino, page uint64, data []byte) {
	h, err := t.content.forWriting(ino)
	if err != nil {
		stop(fmt.Sprintf("open contents of inode %d", ino), err)
	}
	defer h.release()
	if _, err := h.WriteAt(data, int64(page*pageSize)); err != nil {
		stop(fmt.Sprintf("write contents of inode %d", ino), err)
	}
	if err := h.SyncData(); err != nil {
		stop(fmt.Sprintf("sync contents of inode %d", ino), t.fail(err))
	}
}

// fetched gets a damaged page from another replica while an entry is applied:
// as it is before this entry, by its checksum or because the file was last changed
// by the same entry; or as it is after it, where this entry was the last one to
// change the file: to do the entry once more changes nothing.
func (x *tx) fetched(n *inode, page uint64, p []byte) bool {
	repair := x.t.cfg.Repair
	if repair == nil {
		return false
	}
	want := x.sum(n.ino, page)
	var data []byte
	var err error
	x.standStill(func() {
		data, err = repair.Fetch(n.ino, page, func(data []byte, changed uint64) bool {
			return len(data) == pageSize && (pageSum(data) == want || changed == n.changed || changed == x.index)
		})
	})
	if errors.Is(err, ErrUnanswered) {
		stop(fmt.Sprintf("inode %d page %d", n.ino, page), err)
	}
	if err != nil {
		x.t.log.Error("no good copy of a damaged page", zap.Uint64("inode", uint64(n.ino)), zap.Uint64("page", page), zap.Error(err))
		return false
	}
	copy(p, data)
	x.t.log.Warn("mended a damaged page", zap.Uint64("inode", uint64(n.ino)), zap.Uint64("page", page))
	return true
}

// HashRange hashes the records in [lo, hi) as of the applied index. It is called
// by the goroutine that applies, between two entries. Nil bounds stand for the
// first and the end.
func (t *Tree) HashRange(lo, hi []byte) (sum [32]byte, err error) {
	lo, hi = wholeRange(lo, hi)
	h := sha256.New()
	err = t.reading(nil, func(v view) {
		v.scan(lo, hi, func(key, val []byte) bool {
			hashRecord(h, key, val)
			return true
		})
	})
	if err != nil {
		return sum, t.noted(fmt.Errorf("hash records: %w", err))
	}
	return [32]byte(h.Sum(nil)), nil
}

func wholeRange(lo, hi []byte) ([]byte, []byte) {
	if lo == nil {
		lo = []byte{0}
	}
	if len(hi) == 0 {
		hi = []byte{0xff}
	}
	return lo, hi
}

// RangeEnd returns the key that is n records behind lo, nil at the end: a bound
// for HashRange.
func (t *Tree) RangeEnd(lo []byte, n int) (hi []byte, err error) {
	lo, end := wholeRange(lo, nil)
	err = t.reading(nil, func(v view) {
		v.scan(lo, end, func(key, _ []byte) bool {
			if n--; n < 0 {
				hi = append([]byte(nil), key...)
			}
			return hi == nil
		})
	})
	return hi, t.noted(err)
}

// ScrubCheckpoint reads the newest checkpoint's tables from the disk, past every
// cache of records.
func (t *Tree) ScrubCheckpoint() error {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.db == nil {
		return errClosed
	}
	c := &t.cks
	c.mu.Lock()
	index := lastOf(c.named)
	if index == 0 {
		c.mu.Unlock()
		return nil
	}
	c.pins[index]++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unpin(index)
	}()
	s := NewShared(1 << 20)
	defer s.Close()
	dir := t.gen.path(ckName(index))
	err := verifyStore(t.fs, t.fs.PathJoin(dir, storeDir), s, t.log, index)
	if err == nil {
		var m Meta
		if m, err = checkpointMeta(t.fs, dir); err == nil && m.Index != index {
			err = fmt.Errorf("record says index %d: %w", m.Index, errCorrupt)
		}
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("checkpoint %d: %w", index, err)
	if suspicion(err) != "" || errors.Is(err, fs.ErrNotExist) {
		t.suspect(suspectStore)
		return &CondemnedError{err}
	}
	return err
}

// CondemnedError says that the replica's files are marked as damaged: its next
// start passes over them.
type CondemnedError struct{ Err error }

func (e *CondemnedError) Error() string { return fmt.Sprintf("damage is marked: %v", e.Err) }

// Unwrap returns the damage.
func (e *CondemnedError) Unwrap() error { return e.Err }

// Condemn marks the state as damaged, for the next start: records that don't
// read make it read checkpoints completely before it uses one; any other cause
// keeps it from all of them.
func (t *Tree) Condemn(cause error) *CondemnedError {
	what := suspicion(cause)
	if what == "" {
		what = suspectContents
	}
	t.suspect(what)
	return &CondemnedError{cause}
}

// ReadPage reads a page that fits its checksum, for another replica, and tells
// which entry was the last to change the file's contents. fs.ErrNotExist says that
// there is none here; any other error, as before Ready, that it is not known.
func (t *Tree) ReadPage(ino fsop.Ino, page uint64) (data []byte, changed uint64, err error) {
	if !t.Ready() {
		return nil, 0, errNotReady
	}
	bytes := &t.stripes[uint64(ino)%stripeCount].bytes
	bytes.RLock()
	defer bytes.RUnlock()
	err = t.reading(nil, func(v view) {
		n := v.inode(ino)
		if n == nil || !n.has(inFile) || page*pageSize >= n.size || !v.allocated(n, page) {
			return
		}
		p := make([]byte, pageSize)
		if err := t.content.readAt(ino, p, page*pageSize); err == nil && pageSum(p) == v.sum(ino, page) {
			data, changed = p, n.changed
		}
	})
	if err == nil && data == nil {
		err = fs.ErrNotExist
	}
	return data, changed, err
}
