package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"tak-os.org/tak-replicated/fusefs/tree/export"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/wal"
	"tak-os.org/tak-replicated/roles/boot"
)

// exportFiles writes the files of one replica to dest, a new folder. Unless
// asked for the checkpoint as it is, the journal is first applied to a copy of
// the replica beside dest.
func exportFiles(replica, dest string, checkpointOnly bool, out io.Writer) (err error) {
	release, err := openReplica(replica)
	if err != nil {
		return err
	}
	defer release()
	if names, err := os.ReadDir(dest); err == nil && len(names) > 0 {
		return boot.Usagef("%s is not empty", dest)
	}
	if err := outside(replica, dest); err != nil {
		return err
	}
	from := treeDir(replica)
	var lost *wal.LostError
	if !checkpointOnly {
		if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
			return err
		}
		scratch, err := os.MkdirTemp(filepath.Dir(dest), ".export-*")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
		if from, lost, err = upToDate(replica, scratch); err != nil {
			return err
		}
	}
	p := newProgress("exporting")
	defer p.done()
	r, err := export.Export(disk.OS(), from, dest, func(r *export.Result) { p.at("%d inodes", r.Inodes) })
	if err != nil {
		return err
	}
	p.done()
	fmt.Fprintf(out, "exported %d inodes as of index %d, term %d, to %s\n", r.Inodes, r.Meta.Index, r.Meta.Term, dest)
	if r.Refused > 0 {
		fmt.Fprintf(out, "%d attributes or special files were refused there\n", r.Refused)
	}
	if r.Differ > 0 {
		return fmt.Errorf("%d pages differ from their checksums and were exported as they are", r.Differ)
	}
	if lost != nil {
		return fmt.Errorf("what follows is missing: %w", lost)
	}
	return nil
}

// outside refuses to write files into a replica, which export doesn't change.
func outside(replica, dest string) error {
	from, err := filepath.Abs(replica)
	if err != nil {
		return err
	}
	to, err := filepath.Abs(dest)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(from, to); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return boot.Usagef("%s is in the replica's folder, which export must not change: give another one", dest)
	}
	return nil
}
