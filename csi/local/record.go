package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// recordVersion is the format that is written, and the only one so far.
const recordVersion = 1

// record is what is kept of a volume.
type record struct {
	Version       int       `json:"version"`
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	CapacityBytes int64     `json:"capacityBytes"`
	Created       time.Time `json:"created"`
	// Deleting says that the volume is gone for everybody, and that its folder may
	// be in its place or in the trash.
	Deleting bool `json:"deleting,omitempty"`
	// AcquiredBy is the consumer that has the volume; empty for none.
	AcquiredBy string    `json:"acquiredBy,omitempty"`
	Acquired   time.Time `json:"acquired,omitzero"`
}

func (r *record) encode() ([]byte, error) {
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

func decodeRecord(b []byte) (*record, error) {
	var r record
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the record")
	}
	switch {
	case r.Version != recordVersion:
		return nil, fmt.Errorf("version %d is not %d", r.Version, recordVersion)
	case !validID(r.ID) || idOf(r.Name) != r.ID:
		return nil, fmt.Errorf("volume %q named %q is not one of this driver's", r.ID, r.Name)
	case r.CapacityBytes < 0:
		return nil, fmt.Errorf("capacity of %d bytes", r.CapacityBytes)
	}
	return &r, nil
}
