package replicated

import (
	"context"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/names"
	"tak-os.org/tak-replicated/csi/server"
)

// Mounts makes and ends a node's mounts. Every call can be repeated at any time,
// also by another process, and is bounded by its context. Errors are of type
// *Error; others mean that nobody knows.
type Mounts interface {
	// Stage mounts a volume at a path of its own and returns when it serves.
	Stage(ctx context.Context, handle, staging string, access Access) error
	// Unstage undoes that; a volume that is not mounted there is fine.
	Unstage(ctx context.Context, handle, staging string) error
	// Publish makes a staged volume appear at a Pod's path, and stages it again
	// if its mount is dead.
	Publish(ctx context.Context, handle, staging, target string, access Access, readOnly bool) error
	// Unpublish undoes that, and removes the empty folder.
	Unpublish(ctx context.Context, handle, target string) error
	// Usage tells how full the volume mounted at a path is; a Missing if none is.
	Usage(ctx context.Context, handle, path string) (Usage, error)
}

// Usage is how full a volume is.
type Usage struct {
	BytesTotal, BytesFree, InodesTotal, InodesFree int64
}

// Node answers the CSI node service.
type Node struct {
	csi.UnimplementedNodeServer
	name   string
	mounts Mounts
}

var _ csi.NodeServer = (*Node)(nil)

// NewNode returns the node service of the node of that name.
func NewNode(name string, mounts Mounts) *Node { return &Node{name: name, mounts: mounts} }

// NodeServer returns a server of a node's plugin, for [server.Serve]. ready says
// why nothing can be mounted now, nil when it can. observe may be nil.
func NodeServer(name string, m Mounts, log *zap.Logger, observe server.Observer, ready func() error) *grpc.Server {
	s := server.New(log, observe)
	csi.RegisterIdentityServer(s, &server.Identity{Driver: Driver, Ready: ready})
	csi.RegisterNodeServer(s, NewNode(name, m))
	return s
}

// NodeGetInfo names the node. There is no topology: a volume can be mounted
// everywhere.
func (n *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name}, nil
}

// NodeGetCapabilities lists what the service can do.
func (n *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	var caps []*csi.NodeServiceCapability
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		caps = append(caps, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: caps}, nil
}

// NodeStageVolume mounts the volume.
func (n *Node) NodeStageVolume(ctx context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	access, err := checkNode(q.VolumeId, q.VolumeCapability, map[string]string{"staging": q.StagingTargetPath})
	if err != nil {
		return nil, err
	}
	if err := n.mounts.Stage(ctx, q.VolumeId, q.StagingTargetPath, access); err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume unmounts the volume.
func (n *Node) NodeUnstageVolume(ctx context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := checkPaths(q.VolumeId, map[string]string{"staging": q.StagingTargetPath}); err != nil {
		return nil, err
	}
	if err := n.mounts.Unstage(ctx, q.VolumeId, q.StagingTargetPath); err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume makes the volume appear in a Pod.
func (n *Node) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	access, err := checkNode(q.VolumeId, q.VolumeCapability, map[string]string{"staging": q.StagingTargetPath, "target": q.TargetPath})
	if err != nil {
		return nil, err
	}
	if err := n.mounts.Publish(ctx, q.VolumeId, q.StagingTargetPath, q.TargetPath, access, q.Readonly); err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume takes it away from there.
func (n *Node) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := checkPaths(q.VolumeId, map[string]string{"target": q.TargetPath}); err != nil {
		return nil, err
	}
	if err := n.mounts.Unpublish(ctx, q.VolumeId, q.TargetPath); err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetVolumeStats tells how full the volume is.
func (n *Node) NodeGetVolumeStats(ctx context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := checkHandle(q.VolumeId); err != nil {
		return nil, err
	}
	switch {
	case q.VolumePath == "":
		return nil, status.Error(codes.InvalidArgument, "no path is given")
	case !filepath.IsAbs(q.VolumePath):
		return nil, status.Errorf(codes.NotFound, "nothing is mounted at %.200q", q.VolumePath)
	}
	u, err := n.mounts.Usage(ctx, q.VolumeId, q.VolumePath)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: u.BytesTotal, Available: u.BytesFree, Used: u.BytesTotal - u.BytesFree},
		{Unit: csi.VolumeUsage_INODES, Total: u.InodesTotal, Available: u.InodesFree, Used: u.InodesTotal - u.InodesFree},
	}}, nil
}

// checkNode checks what staging and publishing have in common.
func checkNode(handle string, c *csi.VolumeCapability, paths map[string]string) (Access, error) {
	if err := checkPaths(handle, paths); err != nil {
		return 0, err
	}
	if c == nil {
		return 0, status.Error(codes.InvalidArgument, "no volume capability is given")
	}
	access, err := readCapability(c)
	if err != nil {
		return 0, status.Error(codes.InvalidArgument, err.Error())
	}
	return access, nil
}

func checkPaths(handle string, paths map[string]string) error {
	if err := checkHandle(handle); err != nil {
		return err
	}
	for what, path := range paths {
		switch {
		case path == "":
			return status.Errorf(codes.InvalidArgument, "no %s path is given", what)
		case !filepath.IsAbs(path):
			return status.Errorf(codes.InvalidArgument, "%s path %.200q is not absolute", what, path)
		}
	}
	return nil
}

// checkHandle refuses what can't be the name of a volume's object: it is part of
// requests to the API server and of paths.
func checkHandle(handle string) error {
	switch {
	case handle == "":
		return status.Error(codes.InvalidArgument, "no volume id is given")
	case !names.Subdomain(handle):
		return status.Errorf(codes.InvalidArgument, "volume id %.200q is no volume's: it has to be a DNS-1123 subdomain", handle)
	}
	return nil
}
