package replicahost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/raftlog/disk"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// Record is what the host's own disk remembers of a life of a replica: written
// before what it speaks of is done.
type Record struct {
	Version    int        `json:"version"`
	Assignment Assignment `json:"assignment"`
	PVCUID     string     `json:"pvcUID"`
	PV         string     `json:"pv"`
	Handle     string     `json:"handle"` // of the backing volume
	Port       int        `json:"port,omitempty"`
	// Initialised says that the identity has been on the replica's volume.
	Initialised bool `json:"initialised"`
	// Released is when the host let go of the replica.
	Released *time.Time `json:"released,omitempty"`

	unread error // why the file, which is kept, can't be read; nil: this is what it says
}

// held reports whether the record says what to acquire.
func (r *Record) held() bool { return r.Handle != "" && r.PVCUID != "" }

const recordVersion = 1

// recordBytesMost bounds a record's file.
const recordBytesMost = 64 << 10

// errNewer is the error of a record that a newer release has written.
var errNewer = errors.New("record is of a newer release")

func decodeRecord(b []byte) (*Record, error) {
	if len(b) > recordBytesMost {
		return nil, fmt.Errorf("record of more than %d bytes", recordBytesMost)
	}
	r := new(Record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	switch {
	case r.Version > recordVersion:
		return nil, fmt.Errorf("%w: it has version %d, this program knows %d", errNewer, r.Version, recordVersion)
	case r.Version != recordVersion:
		return nil, fmt.Errorf("record has version %d, this program knows %d", r.Version, recordVersion)
	case r.Assignment.Volume == "" || strings.Contains(r.Assignment.Volume, "/") || r.Assignment.Index < 1 || r.Assignment.Incarnation < 1:
		return nil, errors.New("record names no replica")
	}
	return r, nil
}

// store is the host's own disk. Its files are replaced by rename.
type store struct{ dir string }

const (
	replicasFolder = "replicas"
	trustFolder    = "trust"
	witnessFolder  = "journals"
	recordSuffix   = ".json"
)

func openStore(dir string) (*store, error) {
	for _, d := range []string{dir, filepath.Join(dir, replicasFolder), filepath.Join(dir, trustFolder), filepath.Join(dir, witnessFolder)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	return &store{dir}, nil
}

func (s *store) path(key string) string {
	return filepath.Join(s.dir, replicasFolder, key+recordSuffix)
}

// load reads every record. What one that can't be read says is not known, and must not be forgotten: it stands for a
// replica that was initialised, and is not served. bad has the reasons. A record of a newer release is an error: then it is
// the program that is wrong here, and must not get to the next node.
func (s *store) load() (all map[string]*Record, bad []error, err error) {
	names, err := os.ReadDir(filepath.Join(s.dir, replicasFolder))
	if err != nil {
		return nil, nil, err
	}
	all = map[string]*Record{}
	for _, n := range names {
		key, ok := strings.CutSuffix(n.Name(), recordSuffix)
		if !ok {
			continue // of a write that was cut off
		}
		r, err := s.read(key)
		if err != nil {
			err = fmt.Errorf("host state %s: %w", s.path(key), err)
			if errors.Is(err, errNewer) {
				return nil, nil, err
			}
			bad = append(bad, err)
			a, ok := keyed(key)
			if !ok {
				continue
			}
			r = &Record{Assignment: a, Initialised: true, unread: err}
		}
		all[key] = r
	}
	return all, bad, nil
}

func (s *store) read(key string) (*Record, error) {
	b, err := os.ReadFile(s.path(key))
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(b)
	if err == nil && r.Assignment.Key() != key {
		err = fmt.Errorf("record is about %s", r.Assignment.Key())
	}
	return r, err
}

// save replaces a record, durably.
func (s *store) save(r *Record) error {
	r.Version = recordVersion
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	files := pki.OSFiles(filepath.Join(s.dir, replicasFolder))
	if err := files.Write(r.Assignment.Key()+recordSuffix, append(b, '\n')); err != nil {
		return fmt.Errorf("record replica: %w", err)
	}
	return nil
}

// forget removes a record and the credentials.
func (s *store) forget(key string) error {
	if err := os.RemoveAll(s.trust(key)); err != nil {
		return err
	}
	for _, path := range []string{s.path(key), s.witness(key)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return disk.OS().SyncDir(filepath.Join(s.dir, replicasFolder))
}

func (s *store) trust(key string) string { return filepath.Join(s.dir, trustFolder, key) }

// witness is the file in which the worker keeps what it knows of its journal.
func (s *store) witness(key string) string {
	return filepath.Join(s.dir, witnessFolder, key+recordSuffix)
}

// lockFile takes a lock that lasts until the file is closed; held reports that
// another process has it.
func lockFile(path string) (f *os.File, held bool, err error) {
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, false, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, true, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}
