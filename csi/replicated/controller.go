package replicated

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/server"
)

// Driver is the driver's name.
const Driver = "csi.replicated.tak-os.org"

// Access is who may have a volume mounted at one time.
type Access int

// The kinds of access.
const (
	ManyNodes Access = iota + 1
	OneNode
)

// Request is what a new volume is to be.
type Request struct {
	Name           string // pvc-UID
	ClaimNamespace string
	ClaimName      string
	Access         Access
	Bytes          int64
	BackingClass   string
	Replicas       int // what the class says
	QuotaEnforced  bool
}

// Volumes makes and destroys volumes. Both calls may be repeated at any time,
// also by another process. Errors are of type *Error; others mean that nobody
// knows.
type Volumes interface {
	// Provision returns once the volume has a quorum. The number of bytes is the volume's.
	Provision(ctx context.Context, r Request) (bytes int64, err error)
	// Destroy returns once nothing is left of the volume, also if there was nothing.
	Destroy(ctx context.Context, handle string) error
	// Access tells how a volume may be mounted; a NotFound if there is none.
	Access(ctx context.Context, handle string) (Access, error)
}

// Kind says what a caller may conclude from an error.
type Kind int

// Kinds of errors.
const (
	Unknown    Kind = iota // nobody knows; ask again
	Refused                // the request can't be fulfilled as it is; nothing was made
	NoCapacity             // not now: too few nodes; nothing was made
	Different              // the volume exists, and is not what is asked for
	Pending                // under way; ask again
	InUse                  // the volume is still in use
	Missing                // there is no such volume
)

// Error is an answer of Volumes.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return e.Message }

// Controller answers the CSI controller service.
type Controller struct {
	csi.UnimplementedControllerServer
	volumes Volumes
}

var _ csi.ControllerServer = (*Controller)(nil)

// NewController returns the controller service over volumes.
func NewController(volumes Volumes) *Controller { return &Controller{volumes: volumes} }

// RegisterController makes s answer the controller and identity services over volumes.
func RegisterController(s grpc.ServiceRegistrar, volumes Volumes) {
	csi.RegisterIdentityServer(s, NewIdentity(nil))
	csi.RegisterControllerServer(s, NewController(volumes))
}

// NewIdentity returns the identity service. ready says why the driver can't
// serve yet, nil when it can.
func NewIdentity(ready func() error) *server.Identity {
	return &server.Identity{
		Driver:       Driver,
		Capabilities: []*csi.PluginCapability{server.Capability(csi.PluginCapability_Service_CONTROLLER_SERVICE)},
		Ready:        ready,
	}
}

// ControllerGetCapabilities lists what the service can do. SINGLE_NODE_MULTI_WRITER
// is there to be told ReadWriteOncePod from ReadWriteOnce, and to refuse the first.
func (c *Controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	var caps []*csi.ControllerServiceCapability
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		caps = append(caps, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: caps}, nil
}

// CreateVolume makes a volume, or goes on making it.
func (c *Controller) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	r, err := readCreate(q)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	size, err := c.volumes.Provision(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.Name, CapacityBytes: size}}, nil
}

// DeleteVolume destroys a volume and all of its copies.
func (c *Controller) DeleteVolume(ctx context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if q.VolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id is given")
	}
	if err := c.volumes.Destroy(ctx, q.VolumeId); err != nil {
		return nil, toStatus(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities tells whether a volume can be mounted like that.
func (c *Controller) ValidateVolumeCapabilities(ctx context.Context, q *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if q.VolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id is given")
	}
	if len(q.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no volume capabilities are given")
	}
	has, err := c.volumes.Access(ctx, q.VolumeId)
	if err != nil {
		return nil, toStatus(err)
	}
	want, err := readCapabilities(q.VolumeCapabilities)
	if err == nil && want == ManyNodes && has == OneNode {
		err = errOneNode
	}
	if err == nil {
		err = checkParameters(q.Parameters, q.MutableParameters)
	}
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: q.VolumeContext, VolumeCapabilities: q.VolumeCapabilities, Parameters: q.Parameters, MutableParameters: q.MutableParameters,
	}}, nil
}
