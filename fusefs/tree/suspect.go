package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"
)

// A replica that finds damage stops, and leaves a mark for its next start, which
// would otherwise go on from the same damaged files and find them again, or not.
//
// SUSPECT in the generation's folder is one word. "store": records did not read,
// so every checkpoint is read completely before it is opened, and those that
// don't read are passed over. "contents": a page that an entry changes in part
// was damaged; replay could not tell that damage from newer bytes and would
// give it a good checksum, so that no checkpoint of this generation may be used.
// The mark goes with the generation, or when a checkpoint is named after a start
// that has taken it into account.
const (
	suspectFile     = "SUSPECT"
	suspectStore    = "store"
	suspectContents = "contents"
)

// suspicion tells which mark an error calls for, "" for none.
func suspicion(err error) string {
	switch {
	case errors.Is(err, errDamaged):
		return suspectContents
	case errors.Is(err, errCorrupt), errors.Is(err, pebble.ErrCorruption):
		return suspectStore
	}
	return ""
}

// suspect leaves the mark. That it can't be written is only logged: the replica
// stops for another reason already.
func (t *Tree) suspect(what string) {
	path := t.gen.path(suspectFile)
	err := t.fs.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = writeFile(t.fs, path, []byte(what))
	}
	if err == nil {
		err = t.fs.SyncDir(t.gen.dir)
	}
	if err != nil {
		t.log.Error("mark damage for the next start", zap.Error(err))
	}
}

// suspected reads the mark.
func (g *generation) suspected() (string, error) {
	b, err := readFile(g.fs, g.path(suspectFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the mark of damage: %w", err)
	case string(b) == suspectContents:
		return suspectContents, nil
	}
	return suspectStore, nil // whatever a crash has left of it
}

// clearSuspicion removes the mark and checkpoints that were passed over, once a newer
// one is named. The caller holds cks.mu.
func (t *Tree) clearSuspicion() error {
	all, err := numbered(t.fs, t.gen.dir, ckPrefix)
	if err != nil {
		return err
	}
	for _, index := range all {
		if !slices.Contains(t.cks.named, index) {
			if err := t.removeCheckpoint(index); err != nil {
				return err
			}
		}
	}
	return t.fs.RemoveAll(t.gen.path(suspectFile))
}
