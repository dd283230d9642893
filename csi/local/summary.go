package local

import (
	"fmt"
	"path/filepath"
)

// Summary is what a node's volumes add up to.
type Summary struct {
	Free, Acquired, Deleting  int
	RequestedBytes, FreeBytes int64
}

// Summary reads all records.
func (d *Driver) Summary() (Summary, error) {
	all, err := d.all()
	if err != nil {
		return Summary{}, err
	}
	var s Summary
	for _, r := range all {
		switch {
		case r.Deleting:
			s.Deleting++
		case r.AcquiredBy != "":
			s.Acquired++
		default:
			s.Free++
		}
		s.RequestedBytes += r.CapacityBytes
	}
	s.FreeBytes, err = d.free()
	return s, err
}

// Ready says why the driver can't serve: its records can't be read.
func (d *Driver) Ready() error {
	_, err := d.all()
	return err
}

// checkTarget refuses what is not below the kubelet's folder: nothing that is
// mounted elsewhere would reach a Pod.
func (d *Driver) checkTarget(target string) error {
	rel, err := filepath.Rel(d.cfg.KubeletDir, target)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return fmt.Errorf("target %s: %w %s", target, errOutside, d.cfg.KubeletDir)
	}
	return nil
}
