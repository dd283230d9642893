package replicated

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Parameters of a StorageClass.
const (
	ParameterReplicas     = "replicas"
	ParameterBackingClass = "backingStorageClass"
	ParameterQuota        = "quota"
	QuotaEnforced         = "enforced"
)

// What external-provisioner adds with --extra-create-metadata.
const (
	keyClaimName      = "csi.storage.k8s.io/pvc/name"
	keyClaimNamespace = "csi.storage.k8s.io/pvc/namespace"
	keyVolumeName     = "csi.storage.k8s.io/pv/name"
)

// DefaultReplicas is the number of copies when the class does not say.
const DefaultReplicas = 3

// DefaultBytes is the size of a volume of which no size was asked.
const DefaultBytes = 1 << 30

var errOneNode = errors.New("the volume is ReadWriteOnce: it can't be mounted on many nodes")

// readCreate checks all that a request says.
func readCreate(q *csi.CreateVolumeRequest) (Request, error) {
	r := Request{Name: q.Name}
	if q.Name == "" {
		return r, errors.New("no name is given")
	}
	if err := refuseUnsupported(q); err != nil {
		return r, err
	}
	var err error
	if r.Access, err = readCapabilities(q.VolumeCapabilities); err != nil {
		return r, err
	}
	if r.Bytes, err = readSize(q.CapacityRange); err != nil {
		return r, err
	}
	if err := checkParameters(q.Parameters, q.MutableParameters); err != nil {
		return r, err
	}
	return r, r.readParameters(q.Parameters)
}

func refuseUnsupported(q *csi.CreateVolumeRequest) error {
	switch {
	case q.VolumeContentSource.GetSnapshot() != nil:
		return errors.New("content source: a volume can't be made from a snapshot")
	case q.VolumeContentSource != nil:
		return errors.New("content source: a volume can't be made from another volume")
	case q.AccessibilityRequirements != nil:
		return errors.New("accessibility requirements: the driver chooses the nodes itself; remove allowedTopologies from the StorageClass")
	case len(q.Secrets) > 0:
		return fmt.Errorf("secret %q: the driver makes its own credentials", least(q.Secrets))
	}
	return nil
}

// readSize returns the size that every copy is asked for.
func readSize(size *csi.CapacityRange) (int64, error) {
	need, limit := size.GetRequiredBytes(), size.GetLimitBytes()
	switch {
	case need < 0 || limit < 0:
		return 0, fmt.Errorf("capacity of at least %d and at most %d bytes", need, limit)
	case limit > 0 && limit < need:
		return 0, fmt.Errorf("capacity of at least %d bytes is more than the limit of %d", need, limit)
	case need > 0:
		return need, nil
	case limit > 0:
		return min(limit, DefaultBytes), nil
	}
	return DefaultBytes, nil
}

// checkParameters refuses keys that nobody knows.
func checkParameters(parameters, mutable map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		switch key {
		case ParameterReplicas, ParameterBackingClass, ParameterQuota, keyClaimName, keyClaimNamespace, keyVolumeName:
		default:
			return fmt.Errorf("parameter %q is not known; there are %s, %s and %s", key, ParameterReplicas, ParameterBackingClass, ParameterQuota)
		}
	}
	if len(mutable) > 0 {
		return fmt.Errorf("mutable parameter %q: there is none", least(mutable))
	}
	return nil
}

func (r *Request) readParameters(p map[string]string) error {
	r.Replicas = DefaultReplicas
	if text, ok := p[ParameterReplicas]; ok {
		if r.Replicas, ok = ParseReplicas(text); !ok {
			return fmt.Errorf(`parameter %s: %q is not "1", "2", "3" or "4"`, ParameterReplicas, text)
		}
	}
	if r.BackingClass = p[ParameterBackingClass]; r.BackingClass == "" {
		return fmt.Errorf("parameter %s is missing: name the StorageClass of the local driver", ParameterBackingClass)
	}
	if text, ok := p[ParameterQuota]; ok {
		if text != QuotaEnforced {
			return fmt.Errorf("parameter %s: %q is not %q", ParameterQuota, text, QuotaEnforced)
		}
		r.QuotaEnforced = true
	}
	r.ClaimName, r.ClaimNamespace = p[keyClaimName], p[keyClaimNamespace]
	if r.ClaimName == "" || r.ClaimNamespace == "" {
		return fmt.Errorf("parameters %s and %s are missing: run external-provisioner with --extra-create-metadata", keyClaimName, keyClaimNamespace)
	}
	return nil
}

// ParseReplicas reads a number of replicas, which is exactly "1", "2", "3" or
// "4"; false for anything else.
func ParseReplicas(text string) (int, bool) {
	if len(text) != 1 || text[0] < '1' || text[0] > '4' {
		return 0, false
	}
	return int(text[0] - '0'), true
}

// readCapabilities finds the kind of access that covers all capabilities.
func readCapabilities(caps []*csi.VolumeCapability) (Access, error) {
	if len(caps) == 0 {
		return 0, errors.New("no volume capabilities are given")
	}
	all := OneNode
	for _, v := range caps {
		one, err := readCapability(v)
		if err != nil {
			return 0, err
		}
		if one == ManyNodes {
			all = ManyNodes
		}
	}
	return all, nil
}

func readCapability(v *csi.VolumeCapability) (Access, error) {
	switch {
	case v.GetBlock() != nil:
		return 0, errors.New("volumeMode Block: the driver has filesystems only")
	case v.GetMount() == nil:
		return 0, errors.New("a volume capability without an access type")
	case v.GetMount().GetFsType() != "":
		return 0, fmt.Errorf("fsType %q: the driver has its own filesystem", v.GetMount().GetFsType())
	case len(v.GetMount().GetMountFlags()) > 0:
		return 0, fmt.Errorf("mount option %q: there are none", v.GetMount().GetMountFlags()[0])
	}
	switch mode := v.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return ManyNodes, nil
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:
		return OneNode, nil
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		return 0, errors.New("access mode ReadWriteOncePod is not supported; use ReadWriteOnce")
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		return 0, errors.New("access mode ReadOnlyMany is not supported; use ReadWriteMany with readOnly: true in the Pod")
	default:
		return 0, fmt.Errorf("access mode %s is not supported; use ReadWriteMany or ReadWriteOnce", mode)
	}
}

func least(m map[string]string) string { return slices.Min(slices.Collect(maps.Keys(m))) }
