package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/wal"
	"tak-os.org/tak-replicated/roles/worker"
)

// upToDate copies a replica's state into scratch, applies everything that the
// journal holds, and returns the folder of the copy, whose newest checkpoint
// then is the end of the journal. That may include what was never confirmed:
// without a quorum nobody can tell it from what was. Where a part of the journal
// is lost, the copy is as of the end of what reads, and lost says so.
func upToDate(replica, scratch string) (dir string, lost *wal.LostError, err error) {
	dir = filepath.Join(scratch, "tree")
	if err := copyFolder(treeDir(replica), dir); err != nil {
		return "", nil, fmt.Errorf("copy replica: %w", err)
	}
	t, err := tree.Open(tree.Config{FS: disk.OS(), Dir: dir, Log: zap.NewNop()})
	if err != nil {
		return "", nil, fmt.Errorf("open the copy: %w", err)
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if lost, err = replay(t, journalDir(replica)); err != nil {
		return "", nil, fmt.Errorf("apply the journal: %w", err)
	}
	finish, err := t.BeginCheckpoint(nil)
	if err != nil {
		return "", nil, err
	}
	_, err = finish(context.Background())
	return dir, lost, err
}

// replay applies the journal's entries to t. Where a later batch replaced
// entries, only the last ones count.
func replay(t *tree.Tree, journal string) (*wal.LostError, error) {
	found, err := wal.Verify(disk.OS(), journal)
	if err != nil {
		return nil, err
	}
	t.SetFence(contentsEnd(found), 0)
	if index, _ := t.Applied(); index == 0 && found.Base.Index == 1 {
		// A log begins with its membership, which is not in the journal.
		if _, err := t.Apply(found.Base.Index, found.Base.Term, nil); err != nil {
			return nil, err
		}
	}
	var runs timeline
	err = dumpReadable(journal, func(r *wal.Record) error {
		if len(r.Entries) > 0 {
			runs.add(run{seq: r.Seq, first: r.Entries[0].GetIndex()})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found.Lost, applyRuns(t, journal, runs)
}

// contentsEnd is how new a replica's contents may be: only what its journal
// holds was applied. Where a part of that is lost nobody can tell.
func contentsEnd(journal *wal.Report) uint64 {
	if journal.Lost != nil {
		return math.MaxUint64
	}
	return journal.Last.Index
}

// dumpReadable is wal.Dump up to where the journal is lost.
func dumpReadable(journal string, visit func(*wal.Record) error) error {
	err := wal.Dump(disk.OS(), journal, visit)
	var lost *wal.LostError
	if errors.As(err, &lost) {
		return nil
	}
	return err
}

func applyRuns(t *tree.Tree, journal string, runs timeline) error {
	p := newProgress("applying journal")
	defer p.done()
	next, _ := t.Applied()
	next++
	return dumpReadable(journal, func(r *wal.Record) error {
		for _, e := range r.Entries {
			index := e.GetIndex()
			if index < next || runs.owner(index) != r.Seq {
				continue
			}
			if index != next {
				return fmt.Errorf("entry %d is followed by entry %d", next-1, index)
			}
			if err := applyEntry(t, index, e.GetTerm(), e.GetType().String(), e.GetData()); err != nil {
				return err
			}
			p.at("index %d", index)
			next++
		}
		return nil
	})
}

func applyEntry(t *tree.Tree, index, term uint64, typ string, data []byte) error {
	var e *fsop.Entry
	if typ == "EntryNormal" && len(data) > 0 && !worker.IsScrub(data) {
		var err error
		if e, err = fsop.DecodeEntry(data); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
	}
	_, err := t.Apply(index, term, e)
	return err
}

// run is the entries of one batch, from first up to the next run's.
type run struct{ seq, first uint64 }

// timeline is the runs that are still valid, oldest first.
type timeline []run

// add takes the next batch: it replaces everything from its first index on.
func (t *timeline) add(r run) {
	for len(*t) > 0 && (*t)[len(*t)-1].first >= r.first {
		*t = (*t)[:len(*t)-1]
	}
	*t = append(*t, r)
}

// owner returns the number of the batch whose entry of that index counts.
func (t timeline) owner(index uint64) uint64 {
	lo, hi := 0, len(t)
	for lo < hi {
		if mid := (lo + hi) / 2; t[mid].first <= index {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0
	}
	return t[lo-1].seq
}

// copyFolder copies a folder of regular files. Files with several names below
// it stay one; blocks are shared where the file system can.
func copyFolder(from, to string) error {
	p := newProgress("copying replica")
	defer p.done()
	links := map[uint64]string{}
	files := 0
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dest := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(dest, 0o700)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		files++
		p.at("%d files", files)
		if st.Nlink > 1 {
			if first, ok := links[st.Ino]; ok {
				return os.Link(first, dest)
			}
			links[st.Ino] = dest
		}
		return copyFile(path, dest)
	})
}

// copyFile copies a file with its holes.
func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	for off := int64(0); off < info.Size(); {
		data, err := unix.Seek(int(src.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(dst, data), io.NewSectionReader(src, data, hole-data)); err != nil {
			return err
		}
		off = hole
	}
	return nil
}
