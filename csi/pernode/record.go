package pernode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"tak-os.org/tak-replicated/csi/names"
)

// recordVersion is the format that is written, and the only one so far.
const recordVersion = 1

// record is what is kept of a handle on this node.
type record struct {
	Version int    `json:"version"`
	Handle  string `json:"handle"`
	// PV is whose copy this is.
	PV PV `json:"pv"`
	// Hold is who has it; nil for nobody.
	Hold *hold `json:"hold,omitempty"`
}

// hold is a Pod's right to a handle on this node.
type hold struct {
	Pod Pod `json:"pod"`
	// Targets are where it is published for the Pod, or about to be.
	Targets []string `json:"targets"`
	// Boot is the machine's boot in which the hold was taken.
	Boot  string    `json:"boot"`
	Since time.Time `json:"since"`
}

// with returns the hold with a target more.
func (h *hold) with(target string) *hold {
	c := *h
	if !slices.Contains(h.Targets, target) {
		c.Targets = append(slices.Clone(h.Targets), target)
	}
	return &c
}

// without returns the hold with a target less; nil when none is left.
func (h *hold) without(target string) *hold {
	if h == nil {
		return nil
	}
	c := *h
	c.Targets = slices.DeleteFunc(slices.Clone(h.Targets), func(t string) bool { return t == target })
	if len(c.Targets) == 0 {
		return nil
	}
	return &c
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
	case !names.Subdomain(r.Handle):
		return nil, fmt.Errorf("handle %q", r.Handle)
	case !validUID(r.PV.UID):
		return nil, fmt.Errorf("PersistentVolume with UID %q", r.PV.UID)
	case r.Hold != nil && (r.Hold.Pod.UID == "" || len(r.Hold.Targets) == 0):
		return nil, errors.New("a hold without Pod or target")
	}
	return &r, nil
}

// validUID reports whether a UID is safe as a folder's name. Those of Kubernetes
// are.
func validUID(uid string) bool { return names.Subdomain(uid) }
