package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/roles/boot"
)

// Nothing in a replica's folder can tell that all of it is an older copy, which
// has forgotten votes and entries that the replica confirmed. So the host keeps
// a record elsewhere (Config.Record), and both count the starts of the worker:
// the folder first, so that a crash between the two leaves the folder ahead. A
// folder that is behind is an older copy. Within one start the record notes once
// a second where the journal ends: a folder whose journal ends before that is an
// older copy, too.
//
// A replica that the host has a record of is never initialised.

// record is the host's record of a replica: JSON, replaced atomically.
type record struct {
	Version     int    `json:"version"`
	Volume      string `json:"volume"`
	Replica     string `json:"replica"`
	Incarnation uint64 `json:"incarnation"`
	Member      uint64 `json:"member"`
	Starts      uint64 `json:"starts"`
	// Index and Term are those of an entry that was durable in the journal.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

// starts is the file of that name in the replica's folder.
type starts struct {
	Version int    `json:"version"`
	Starts  uint64 `json:"starts"`
}

const (
	recordVersion = 1
	startsFile    = "starts"
	noteEvery     = time.Second
)

func parseRecord(text []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("version %d is unknown", r.Version)
	}
	return &r, nil
}

func parseStarts(text []byte) (uint64, error) {
	var s starts
	if err := json.Unmarshal(text, &s); err != nil {
		return 0, err
	}
	if s.Version != recordVersion {
		return 0, fmt.Errorf("version %d is unknown", s.Version)
	}
	return s.Starts, nil
}

// witness compares a replica's folder with the host's record of it.
type witness struct {
	cfg  *Config
	log  *zap.Logger
	have *record // nil: none yet
}

// openWitness reads the record and refuses a folder that is an older copy. It
// may take back cfg.Bootstrap.
func openWitness(cfg *Config, log *zap.Logger) (*witness, error) {
	w := &witness{cfg: cfg, log: log}
	if cfg.Record == "" {
		return w, nil
	}
	text, err := os.ReadFile(cfg.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the host's record: %w", err)
	}
	have, err := parseRecord(text)
	if err != nil {
		return nil, fmt.Errorf("the host's record %s: %w; move it away if the replica's folder is known to be the right one", cfg.Record, err)
	}
	switch {
	case have.Volume != cfg.Volume || have.Replica != cfg.Replica:
		return nil, fmt.Errorf("the host's record %s is of replica %s of volume %s", cfg.Record, have.Replica, have.Volume)
	case have.Incarnation > cfg.Incarnation:
		return nil, boot.Usagef("--incarnation %d: the host has a record of incarnation %d", cfg.Incarnation, have.Incarnation)
	case have.Incarnation < cfg.Incarnation:
		return w, nil // of an earlier life
	}
	w.have = have
	cfg.Bootstrap = false
	n, err := w.started()
	if err != nil {
		return nil, err
	}
	if n < have.Starts {
		return nil, &raftlog.StateLostError{Reason: fmt.Sprintf(
			"the folder is that of start %d of the worker, the host has recorded start %d: an older copy, or not this replica's", n, have.Starts)}
	}
	return w, nil
}

// started reads how often the folder has been served.
func (w *witness) started() (uint64, error) {
	text, err := os.ReadFile(filepath.Join(w.cfg.Dir, startsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count starts: %w", err)
	}
	n, err := parseStarts(text)
	if err != nil {
		w.log.Warn("the count of starts is damaged", zap.Error(err))
		return 0, nil
	}
	return n, nil
}

// opened checks where the journal ended, and counts this start.
func (w *witness) opened(index, term uint64) error {
	if w.cfg.Record == "" {
		return nil
	}
	if h := w.have; h != nil && (term < h.Term || term == h.Term && index < h.Index) {
		return &raftlog.StateLostError{Reason: fmt.Sprintf(
			"the journal ends at entry %d of term %d, the host has seen entry %d of term %d: an older copy, or cut", index, term, h.Index, h.Term)}
	}
	n, err := w.started()
	if err != nil {
		return err
	}
	next := &record{
		Version: recordVersion, Volume: w.cfg.Volume, Replica: w.cfg.Replica, Incarnation: w.cfg.Incarnation, Member: w.cfg.Member,
		Starts: n + 1, Index: index, Term: term,
	}
	if err := boot.WriteJSON(filepath.Join(w.cfg.Dir, startsFile), &starts{recordVersion, n + 1}, true); err != nil {
		return fmt.Errorf("count starts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(w.cfg.Record), 0o700); err != nil {
		return fmt.Errorf("make the host's record: %w", err)
	}
	if err := boot.WriteJSON(w.cfg.Record, next, true); err != nil {
		return fmt.Errorf("write the host's record: %w", err)
	}
	w.have = next
	return nil
}

// run notes where the journal ends, until ctx ends.
func (w *witness) run(ctx context.Context, status func() raftlog.Status) error {
	if w.cfg.Record == "" {
		return nil
	}
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.note(status())
		}
	}
}

// note is not synced: it may be lost with the machine, and then says less.
func (w *witness) note(st raftlog.Status) {
	if st.JournalLast <= w.have.Index && st.JournalLastTerm <= w.have.Term || st.Stateless {
		return
	}
	next := *w.have
	next.Index, next.Term = st.JournalLast, st.JournalLastTerm
	if err := boot.WriteJSON(w.cfg.Record, &next, false); err != nil {
		w.log.Warn("note in the host's record", zap.Error(err))
		return
	}
	w.have = &next
}
