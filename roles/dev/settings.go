package dev

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/roles/boot"
)

// settings is settings.json: what DIR was made as.
type settings struct {
	Version  int    `json:"version"`
	Volume   string `json:"volume"`
	Replicas int    `json:"replicas"`
	// Initialised says that every replica has been initialised: from then on
	// an empty one is lost.
	Initialised bool `json:"initialised"`
	// Seats are the replicas' places among the members, in the order of their
	// numbers; without any, everybody has the first one.
	Seats []seat `json:"seats,omitempty"`
	// Replacing is a replacement under way, Retired the folders of replicas that
	// were replaced and are to be destroyed.
	Replacing *replacement `json:"replacing,omitempty"`
	Retired   []string     `json:"retired,omitempty"`
	// LastMember is the highest member id given to a replaced replica.
	LastMember uint64 `json:"lastMember,omitempty"`
}

// complete fills in what older settings don't have.
func (s *settings) complete() {
	for n := len(s.Seats) + 1; n <= s.Replicas; n++ {
		s.Seats = append(s.Seats, seat{uint64(n), 1, replicaName(n)})
	}
}

// number is that of a replica, from 1; 0 if there is no such.
func (s *settings) number(replica string) int {
	for n := 1; n <= s.Replicas; n++ {
		if replicaName(n) == replica {
			return n
		}
	}
	return 0
}

// lastMember is the highest member id ever used: none is used twice.
func (s *settings) lastMember() uint64 {
	last := max(s.LastMember, uint64(s.Replicas))
	for _, t := range s.Seats {
		last = max(last, t.Member)
	}
	if r := s.Replacing; r != nil {
		last = max(last, r.New.Member, r.SurvivorNew.Member)
	}
	return last
}

const (
	settingsVersion = 1
	settingsFile    = "settings.json"
	defaultReplicas = 3
)

// openSettings reads what dir was made as, or makes it with that many
// replicas (0: as it is, or the default).
func openSettings(dir string, replicas int) (*settings, error) {
	path := filepath.Join(dir, settingsFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeSettings(dir, replicas)
	}
	if err != nil {
		return nil, err
	}
	s, err := parseSettings(text)
	if err != nil {
		return nil, boot.Usagef("%s is no settings of a dev (%w): put the file back, or give another --dir", path, err)
	}
	if replicas != 0 && replicas != s.Replicas && !s.Initialised {
		// It never served, so there is nothing in it.
		if err := begin(dir, s); err != nil {
			return nil, err
		}
		return makeSettings(dir, replicas)
	}
	if replicas != 0 && replicas != s.Replicas {
		return nil, boot.Usagef("%s has %d replicas, not %d: give another --dir, or leave --replicas out", dir, s.Replicas, replicas)
	}
	return s, nil
}

func makeSettings(dir string, replicas int) (*settings, error) {
	if replicas == 0 {
		replicas = defaultReplicas
	}
	var id [8]byte
	crand.Read(id[:]) // never fails
	s := &settings{Version: settingsVersion, Volume: "dev-" + hex.EncodeToString(id[:]), Replicas: replicas}
	s.complete()
	return s, s.save(dir)
}

func parseSettings(text []byte) (*settings, error) {
	var s settings
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	switch {
	case s.Version != settingsVersion:
		return nil, fmt.Errorf("version %d is unknown", s.Version)
	case s.Replicas < 1 || s.Replicas > 4:
		return nil, fmt.Errorf("%d replicas, a volume has 1 to 4", s.Replicas)
	case s.Volume == "":
		return nil, errors.New("no volume")
	case len(s.Seats) != 0 && len(s.Seats) != s.Replicas:
		return nil, fmt.Errorf("%d seats for %d replicas", len(s.Seats), s.Replicas)
	}
	for _, t := range s.Seats {
		if t.Member == 0 || t.Incarnation == 0 || t.Folder == "" || filepath.Base(t.Folder) != t.Folder {
			return nil, errors.New("a seat without member, incarnation or folder")
		}
	}
	s.complete()
	return &s, nil
}

func (s *settings) save(dir string) error {
	s.LastMember = s.lastMember()
	return boot.WriteJSON(filepath.Join(dir, settingsFile), s, true)
}

// lockDir makes DIR and takes its lock, which goes with the process.
func lockDir(_ context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another dev runs in %s", dir)
	}
	return func() { f.Close() }, nil
}
