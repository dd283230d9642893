package ctl

import (
	"fmt"
	"io"

	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// verifyCheckpoint checks a replica's newest checkpoint. The error says what is
// damaged.
func verifyCheckpoint(replica string, out io.Writer) error {
	release, err := openReplica(replica)
	if err != nil {
		return err
	}
	defer release()
	p := newProgress("reading checkpoint")
	defer p.done()
	p.at("%s", replica)
	v, err := tree.VerifyCheckpoint(disk.OS(), treeDir(replica))
	if err != nil {
		return err
	}
	p.done()
	fmt.Fprintf(out, "checkpoint at index %d, term %d: %d inodes, %d content files, %s in files\n",
		v.Meta.Index, v.Meta.Term, v.Inodes, v.Files, size(v.Bytes))
	if v.Differ > 0 {
		fmt.Fprintf(out, "%d pages differ from their checksums: damaged, or written since the checkpoint, which the journal then repeats\n", v.Differ)
		return nil
	}
	fmt.Fprintln(out, "all checksums agree")
	return nil
}
