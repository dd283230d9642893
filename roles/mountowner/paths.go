package mountowner

import (
	"errors"
	"os"
	"strings"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/roles/boot"
)

// check refuses a path at which nothing may be staged or published: one that is
// not the kubelet's, that links lead elsewhere, or that lies inside a volume. It
// makes no request to a volume. The folder above it need not be there.
func (o *Owner) check(path string) error {
	t, err := o.open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		t.Close()
	}
	return err
}

// open is check, and returns the place; os.ErrNotExist without a folder above it.
func (o *Owner) open(path string) (*mounts.Target, error) {
	if o.places.Kubelet == "" {
		return nil, boot.Usagef("this owner has no kubelet directory")
	}
	table, err := mounts.Own()
	if err != nil {
		return nil, err
	}
	for _, m := range table {
		if kindOf(m) != foreign && strings.HasPrefix(path, m.Point+"/") {
			return nil, boot.Usagef("%.200q lies inside of what is mounted at %s", path, m.Point)
		}
	}
	t, err := mounts.Root(o.places.Kubelet).Open(path)
	switch {
	case err != nil:
		return nil, placeError(err)
	case t.Path != path:
		t.Close()
		return nil, boot.Usagef("%s has links on its way: it is %s", path, t.Path)
	}
	return t, nil
}

// placeError tells a path that can't be one from a disk that fails.
func placeError(err error) error {
	if errors.Is(err, mounts.ErrTarget) || errors.Is(err, mounts.ErrOutside) || errors.Is(err, os.ErrNotExist) {
		return boot.Usagef("%w", err)
	}
	return err
}

// topMount is what is mounted on top at a path.
type topMount struct {
	mounts.Mount
	kind topKind
}

type topKind int

const (
	nothing  topKind = iota
	ours             // a volume, served or dead
	guarding         // what keeps a bare folder from being written
	foreign
)

func topOf(path string) (topMount, error) {
	table, err := mounts.Own()
	if err != nil {
		return topMount{}, err
	}
	m, ok := mounts.At(table, path)
	if !ok {
		return topMount{}, nil
	}
	return topMount{m, kindOf(m)}, nil
}

func kindOf(m mounts.Mount) topKind {
	switch {
	case m.Type == "fuse."+boot.Name:
		return ours
	case m.Type == "tmpfs" && m.Source == guardName && m.ReadOnly:
		return guarding
	}
	return foreign
}

// sourcePrefix begins what a volume's mount is called.
const sourcePrefix = boot.Name + ":"

// volume is what is mounted, also when nobody serves it any more.
func (t topMount) volume() string { return strings.TrimPrefix(t.Source, sourcePrefix) }

// of reports whether it is a volume's.
func (t topMount) of(volume string) bool { return t.volume() == volume }

// elsewhere lists where else a mount's filesystem is mounted.
func elsewhere(m mounts.Mount) (paths []string, err error) {
	table, err := mounts.Own()
	if err != nil {
		return nil, err
	}
	for _, o := range table {
		if o.Device == m.Device && o.Point != m.Point {
			paths = append(paths, o.Point)
		}
	}
	return paths, nil
}
