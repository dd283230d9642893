package ctl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/wal"
	"tak-os.org/tak-replicated/roles/worker"
)

// verifyJournal reads a replica's whole journal and reports what it found. The
// error says that something is lost.
func verifyJournal(replica string, out io.Writer) error {
	release, err := openReplica(replica)
	if err != nil {
		return err
	}
	defer release()
	p := newProgress("reading journal")
	defer p.done()
	p.at("%s", replica)
	r, err := wal.Verify(disk.OS(), journalDir(replica))
	if err != nil {
		return err
	}
	p.done()
	fmt.Fprintf(out, "entries %d to %d, last of term %d\n", r.Base.Index+1, r.Last.Index, r.Last.Term)
	fmt.Fprintf(out, "%d batches with %d entries and %d bytes of data, in %d segments; %d spare files\n",
		r.Batches, r.Entries, r.Bytes, len(r.Segments), r.Spares)
	if r.Hard != nil {
		fmt.Fprintf(out, "term %d, vote %d, commit %d\n", r.Hard.GetTerm(), r.Hard.GetVote(), r.Hard.GetCommit())
	}
	if r.Dropped > 0 || r.Fence != (wal.Position{}) {
		fmt.Fprintf(out, "the tail does not read: the log may have ended at index %d, term %d; the replica catches up before it votes\n", r.Fence.Index, r.Fence.Term)
	}
	if r.MetaDamaged {
		fmt.Fprintln(out, "one of the two records in meta does not read; the other one does")
	}
	if r.Lost != nil {
		return r.Lost
	}
	fmt.Fprintln(out, "nothing is lost")
	return nil
}

// dumpJournal lists a replica's journal: batches, entries, and what kinds of
// operations they carry. Names and contents are not shown.
func dumpJournal(replica string, out io.Writer) error {
	release, err := openReplica(replica)
	if err != nil {
		return err
	}
	defer release()
	w := bufio.NewWriter(out)
	p := newProgress("reading journal")
	defer p.done()
	err = wal.Dump(disk.OS(), journalDir(replica), func(r *wal.Record) error {
		p.at("index %d", r.Last.Index)
		if r.Seal {
			_, err := fmt.Fprintf(w, "%s block %d: seal, goes on in %s\n", r.Segment, r.Block, r.NextFile)
			return err
		}
		fmt.Fprintf(w, "%s block %d: batch %d, synced %d, last %d of term %d", r.Segment, r.Block, r.Seq, r.Synced, r.Last.Index, r.Last.Term)
		if r.Hard != nil {
			fmt.Fprintf(w, ", vote %d, commit %d", r.Hard.GetVote(), r.Hard.GetCommit())
		}
		fmt.Fprintln(w)
		for _, e := range r.Entries {
			if _, err := fmt.Fprintf(w, "  %d term %d %s\n", e.GetIndex(), e.GetTerm(), describe(e.GetType().String(), e.GetData())); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, w.Flush())
}

// describe tells what an entry carries.
func describe(typ string, data []byte) string {
	if typ != "EntryNormal" {
		return typ
	}
	if len(data) == 0 {
		return "start of a term"
	}
	if worker.IsScrub(data) {
		return fmt.Sprintf("%d bytes: mark of a scrub", len(data))
	}
	e, err := fsop.DecodeEntry(data)
	if err != nil {
		return fmt.Sprintf("%d bytes: %v", len(data), err)
	}
	var ops []string
	for i := range e.Items {
		it := &e.Items[i]
		name := strings.TrimPrefix(fmt.Sprintf("%T", it.Op), "*fsop.")
		if it.Session != 0 {
			name += fmt.Sprintf("(session %d, seq %d)", it.Session, it.Seq)
		}
		ops = append(ops, name)
	}
	return fmt.Sprintf("%d bytes: %s", len(data), strings.Join(ops, " "))
}
