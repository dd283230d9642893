package boot

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// WriteJSON replaces a file atomically. With durable the new one is on the disk
// when it returns; without, a crash of the machine may leave the old one.
func WriteJSON(path string, v any, durable bool) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the rename there is nothing left of it
	_, err = f.Write(append(text, '\n'))
	if durable {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil || !durable {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
