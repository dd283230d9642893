package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// createMeta makes the file "meta" appear, complete and durable.
func createMeta(fsys disk.FS, dir string, m meta) error {
	b := make([]byte, metaBlocks*blockSize)
	m.encode(b)
	m.encode(b[metaCopy*blockSize:])
	if err := disk.WriteFile(fsys, fsys.PathJoin(dir, metaName), b); err != nil {
		return fmt.Errorf("create %s: %w", metaName, err)
	}
	return nil
}

// writeMeta replaces both records, one after the other.
func writeMeta(fsys disk.FS, dir string, m meta) error {
	file, err := fsys.OpenDirect(fsys.PathJoin(dir, metaName))
	if err != nil {
		return fmt.Errorf("open %s: %w", metaName, err)
	}
	defer file.Close()
	buf := getBuffer(blockSize)
	defer buf.release()
	clear(buf.b)
	m.encode(buf.b)
	for _, block := range []int64{0, metaCopy} {
		if _, err := file.WriteAt(buf.b, block*blockSize); err != nil {
			return &syncError{fmt.Errorf("write %s: %w", metaName, err)}
		}
		if err := file.SyncData(); err != nil {
			return &syncError{fmt.Errorf("sync %s: %w", metaName, err)}
		}
	}
	return nil
}

// readMeta returns the newest valid record, and whether both are equal to it.
func readMeta(fsys disk.FS, dir string) (m meta, healthy bool, err error) {
	path := fsys.PathJoin(dir, metaName)
	file, err := fsys.Open(path, vfs.RandomReadsOption)
	if errors.Is(err, fs.ErrNotExist) {
		return meta{}, false, &LostError{What: "the journal is missing", Where: path}
	}
	if err != nil {
		return meta{}, false, fmt.Errorf("open %s: %w", path, err)
	}
	defer file.Close()
	b := make([]byte, metaBlocks*blockSize)
	if n, err := file.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n < len(b)) {
		return meta{}, false, fmt.Errorf("read %s: %w", path, err)
	}
	one, ok1 := decodeMeta(b)
	two, ok2 := decodeMeta(b[metaCopy*blockSize:])
	switch {
	case !ok1 && !ok2:
		return meta{}, false, &LostError{What: "neither record reads", Where: path}
	case !ok2 || ok1 && one.number >= two.number:
		return one, ok2 && one == two, nil
	default:
		return two, false, nil
	}
}
