package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/disk"
)

// Names in the replica's folder; see doc.go for the picture.
const (
	genPrefix    = "gen-"
	ckPrefix     = "ck-"
	ckTmp        = "ck.tmp" // being made
	ckOld        = "ck.old" // being removed
	liveDir      = "live"   // the store at work, rebuilt at every start
	storeDir     = "db"     // the store's files in a checkpoint
	contentDir   = "content"
	recvDir      = "recv"       // a checkpoint being received
	recordFile   = "CHECKPOINT" // index, term and the log's bytes
	fenceFile    = "FENCE"      // how new received contents may be
	sumsFile     = "SUMS"       // checksums of pages newer than the checkpoint
	progressFile = "PROGRESS"   // what of a checkpoint has been received
)

// generation is one whole replica: checkpoints, contents and the live store.
// Installing a received checkpoint makes a new one.
type generation struct {
	fs  disk.FS
	dir string
	n   uint64
}

func (g *generation) path(elem ...string) string {
	return g.fs.PathJoin(append([]string{g.dir}, elem...)...)
}

func ckName(index uint64) string { return fmt.Sprintf("%s%020d", ckPrefix, index) }

// numbered returns the names in dir that are prefix and a number, ascending.
func numbered(fsys disk.FS, dir, prefix string) ([]uint64, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			if n, err := strconv.ParseUint(rest, 10, 64); err == nil {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

func generationAt(fsys disk.FS, dir string, n uint64) generation {
	return generation{fs: fsys, dir: fsys.PathJoin(dir, genPrefix+strconv.FormatUint(n, 10)), n: n}
}

// currentGeneration finds the newest generation and removes older ones; it
// makes the first.
func currentGeneration(fsys disk.FS, dir string) (generation, error) {
	all, err := numbered(fsys, dir, genPrefix)
	if err != nil {
		return generation{}, fmt.Errorf("list the replica's folder: %w", err)
	}
	if len(all) == 0 {
		g := generationAt(fsys, dir, 1)
		if err := fsys.MkdirAll(g.path(contentDir), 0o700); err != nil {
			return g, fmt.Errorf("make a generation: %w", err)
		}
		if err := createSums(fsys, g.path(sumsFile), 0, nil); err != nil {
			return g, fmt.Errorf("make a generation: %w", err)
		}
		if err := fsys.SyncDir(g.dir); err != nil {
			return g, fmt.Errorf("make a generation: %w", err)
		}
		return g, fsys.SyncDir(dir)
	}
	last := len(all) - 1
	for _, n := range all[:last] {
		old := generationAt(fsys, dir, n)
		if err := fsys.RemoveAll(old.dir); err != nil {
			return old, fmt.Errorf("remove an old generation: %w", err)
		}
	}
	return generationAt(fsys, dir, all[last]), nil
}

// The record of a checkpoint: magic, version, index, term, the log's bytes,
// CRC-32C of all before it. The fence file is alike, with one number.
const (
	recordMagic = "TAKC\x01"
	fenceMagic  = "TAKF\x01"
)

// extraMax bounds the log's bytes in a checkpoint.
const extraMax = 1 << 20

func appendRecord(b []byte, m *Meta) []byte {
	start := len(b)
	b = append(b, recordMagic...)
	b = binary.AppendUvarint(b, m.Index)
	b = binary.AppendUvarint(b, m.Term)
	b = appendBytes(b, m.Extra)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func decodeRecord(b []byte) (m Meta, err error) {
	body, ok := sealed(b, recordMagic)
	if !ok {
		return m, errCorrupt
	}
	d := decoder{b: body}
	m.Index, m.Term, m.Extra = d.u64(), d.u64(), slices.Clone(d.bytes())
	if !d.done() || len(m.Extra) > extraMax {
		return Meta{}, errCorrupt
	}
	return m, nil
}

func appendFence(b []byte, index uint64) []byte {
	start := len(b)
	b = binary.AppendUvarint(append(b, fenceMagic...), index)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func decodeFence(b []byte) (uint64, error) {
	body, ok := sealed(b, fenceMagic)
	d := decoder{b: body}
	index := d.u64()
	if !ok || !d.done() {
		return 0, errCorrupt
	}
	return index, nil
}

// sealed checks magic and checksum and returns what is between them.
func sealed(b []byte, magic string) ([]byte, bool) {
	n := len(b) - 4
	if n < len(magic) || string(b[:len(magic)]) != magic ||
		binary.BigEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], castagnoli) {
		return nil, false
	}
	return b[len(magic):n], true
}

// writeFile makes a durable file; its name is durable after a SyncDir.
func writeFile(fsys disk.FS, path string, data []byte) error {
	f, err := fsys.Create(path, "takrepl-tree")
	if err != nil {
		return err
	}
	if _, err := f.Write(slices.Clone(data)); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return fmt.Errorf("%w: %w", disk.ErrNotDurable, err)
	}
	return f.Close()
}

func readFile(fsys disk.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// checkpointMeta reads the record of the checkpoint in dir.
func checkpointMeta(fsys disk.FS, dir string) (Meta, error) {
	b, err := readFile(fsys, fsys.PathJoin(dir, recordFile))
	if err != nil {
		return Meta{}, fmt.Errorf("checkpoint record: %w", err)
	}
	m, err := decodeRecord(b)
	if err != nil {
		return Meta{}, fmt.Errorf("checkpoint record: %w", err)
	}
	return m, nil
}

// recordedFence returns the fence of received contents. The first generation
// has none, every later one was received.
func (g *generation) recordedFence() (uint64, error) {
	b, err := readFile(g.fs, g.path(fenceFile))
	if errors.Is(err, fs.ErrNotExist) {
		if g.n > 1 {
			return 0, fmt.Errorf("fence is missing: %w", errCorrupt)
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("fence: %w", err)
	}
	index, err := decodeFence(b)
	if err != nil {
		return 0, fmt.Errorf("fence: %w", err)
	}
	return index, nil
}

// freshGlobals is the state before the first entry: the root directory has
// number 1.
func freshGlobals() (globals, *inode) {
	root := &inode{ino: fsop.Root, mode: fsop.TypeDir | 0o755, nlink: 2, parent: fsop.Root}
	return globals{nextIno: fsop.Root + 1, nextSession: 1, inodes: 1}, root
}
