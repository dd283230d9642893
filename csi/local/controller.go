package local

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tak-os.org/tak-replicated/csi/names"
)

// Controller answers the CSI controller service for this node's volumes.
type Controller struct {
	csi.UnimplementedControllerServer
	driver *Driver
}

var _ csi.ControllerServer = (*Controller)(nil)

// NewController returns the controller service of d.
func NewController(d *Driver) *Controller { return &Controller{driver: d} }

// metadataKeys are what external-provisioner adds with --extra-create-metadata.
var metadataKeys = []string{
	"csi.storage.k8s.io/pvc/name",
	"csi.storage.k8s.io/pvc/namespace",
	"csi.storage.k8s.io/pv/name",
}

// CreateVolume makes a volume on this node. The same name gives the same volume.
func (c *Controller) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := c.checkCreate(q); err != nil {
		return nil, err
	}
	size := q.GetCapacityRange()
	r, err := c.driver.create(ctx, q.Name, size.GetRequiredBytes(), size.GetLimitBytes())
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: r.ID, CapacityBytes: r.CapacityBytes,
		AccessibleTopology: []*csi.Topology{c.driver.topology()},
	}}, nil
}

func (c *Controller) checkCreate(q *csi.CreateVolumeRequest) error {
	size := q.GetCapacityRange()
	switch {
	case q.Name == "":
		return status.Error(codes.InvalidArgument, "no name is given")
	case len(q.VolumeCapabilities) == 0:
		return status.Error(codes.InvalidArgument, "no volume capabilities are given")
	case q.VolumeContentSource != nil:
		return status.Error(codes.InvalidArgument, "a volume can't be made from a snapshot or another volume")
	case len(q.MutableParameters) > 0:
		return status.Errorf(codes.InvalidArgument, "mutable parameter %q: there is none", slices.Min(slices.Collect(maps.Keys(q.MutableParameters))))
	case size.GetRequiredBytes() < 0 || size.GetLimitBytes() < 0 || size.GetLimitBytes() > 0 && size.GetLimitBytes() < size.GetRequiredBytes():
		return status.Errorf(codes.InvalidArgument, "capacity of at least %d and at most %d bytes", size.GetRequiredBytes(), size.GetLimitBytes())
	}
	for _, key := range slices.Sorted(maps.Keys(q.Parameters)) {
		if !slices.Contains(metadataKeys, key) {
			return status.Errorf(codes.InvalidArgument, "parameter %q is not known", key)
		}
	}
	for _, v := range q.VolumeCapabilities {
		if why := unsupported(v); why != "" {
			return status.Error(codes.InvalidArgument, why)
		}
		if fs := v.GetMount().GetFsType(); fs != "" {
			return status.Errorf(codes.InvalidArgument, "fsType %q: a volume is a folder of the node's filesystem", fs)
		}
		if flags := v.GetMount().GetMountFlags(); len(flags) > 0 {
			return status.Errorf(codes.InvalidArgument, "mount option %q: there are none", flags[0])
		}
	}
	if t := q.AccessibilityRequirements; t != nil && !c.driver.accessible(t) {
		return status.Errorf(codes.ResourceExhausted, "node %s is not among those that were asked for", c.driver.cfg.Node)
	}
	return nil
}

// unsupported says why a capability can't be had; "" if it can.
func unsupported(v *csi.VolumeCapability) string {
	if v.GetMount() == nil {
		return "a volume is a filesystem, not a block device"
	}
	switch mode := v.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return ""
	default:
		return fmt.Sprintf("access mode %v: a volume is used on one node", mode)
	}
}

// topology is where this node's volumes are.
func (d *Driver) topology() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: names.Label(d.cfg.Node)}}
}

// accessible reports whether a volume on this node meets the requirements.
func (d *Driver) accessible(t *csi.TopologyRequirement) bool {
	if len(t.Requisite) == 0 {
		return true // only preferences
	}
	return slices.ContainsFunc(t.Requisite, func(t *csi.Topology) bool {
		return t.GetSegments()[TopologyKey] == d.topology().Segments[TopologyKey]
	})
}

// DeleteVolume removes a volume that is mounted nowhere and not acquired. Its
// files go a little later.
func (c *Controller) DeleteVolume(ctx context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if q.VolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume is given")
	}
	if err := c.driver.delete(ctx, q.VolumeId); err != nil {
		return nil, toStatus(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities confirms what CreateVolume would accept.
func (c *Controller) ValidateVolumeCapabilities(_ context.Context, q *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	switch {
	case q.VolumeId == "":
		return nil, status.Error(codes.InvalidArgument, "no volume is given")
	case len(q.VolumeCapabilities) == 0:
		return nil, status.Error(codes.InvalidArgument, "no volume capabilities are given")
	}
	if _, err := c.driver.lookup(q.VolumeId); err != nil {
		return nil, toStatus(err)
	}
	for _, v := range q.VolumeCapabilities {
		if why := unsupported(v); why != "" {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: why}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: q.VolumeContext, VolumeCapabilities: q.VolumeCapabilities, Parameters: q.Parameters,
	}}, nil
}

// GetCapacity returns what is free on this node; nothing for another one.
func (c *Controller) GetCapacity(_ context.Context, q *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if want := q.GetAccessibleTopology().GetSegments()[TopologyKey]; want != "" && want != c.driver.topology().Segments[TopologyKey] {
		return &csi.GetCapacityResponse{}, nil
	}
	for _, v := range q.VolumeCapabilities {
		if unsupported(v) != "" {
			return &csi.GetCapacityResponse{}, nil
		}
	}
	free, err := c.driver.free()
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.GetCapacityResponse{AvailableCapacity: free, MaximumVolumeSize: wrapperspb.Int64(free)}, nil
}

// ControllerGetCapabilities lists what this service does.
func (c *Controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	var caps []*csi.ControllerServiceCapability
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		caps = append(caps, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: caps}, nil
}
