package local

import "tak-os.org/tak-replicated/csi/mounts"

// Summary is what a node's volumes add up to.
type Summary struct {
	Free, Acquired, Deleting  int
	Unreadable                int // records and folders
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
	s.Unreadable = d.trouble.count()
	s.FreeBytes, err = d.free()
	return s, err
}

// Ready says why the driver can't serve: the folder of its records can't be read. A single
// record that can't be is no reason.
func (d *Driver) Ready() error {
	_, err := d.all()
	return err
}

// targets is where Pods' targets lie: nothing that is mounted elsewhere would
// reach a Pod.
func (d *Driver) targets() mounts.Root { return mounts.Root(d.cfg.KubeletDir) }

// consumers is where acquired volumes appear.
func (d *Driver) consumers() mounts.Root { return mounts.Root(d.cfg.ConsumerRoot) }

// unpublish takes a volume away from a target, and no other.
func (d *Driver) unpublish(from mounts.Root, id, target string) error {
	all, err := d.volumes.Open(".")
	if err != nil {
		return err
	}
	defer all.Close()
	return from.Unpublish(all, id, target)
}
