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
		if replicas == 0 {
			replicas = defaultReplicas
		}
		var id [8]byte
		crand.Read(id[:]) // never fails
		s := &settings{Version: settingsVersion, Volume: "dev-" + hex.EncodeToString(id[:]), Replicas: replicas}
		return s, s.save(dir)
	}
	if err != nil {
		return nil, err
	}
	s, err := parseSettings(text)
	if err != nil {
		return nil, boot.Usagef("%s: %w", path, err)
	}
	if replicas != 0 && replicas != s.Replicas {
		return nil, boot.Usagef("%s has %d replicas, not %d: give another --dir, or leave --replicas out", dir, s.Replicas, replicas)
	}
	return s, nil
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
	}
	return &s, nil
}

func (s *settings) save(dir string) error {
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
