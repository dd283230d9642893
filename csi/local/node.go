package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/server"
)

// Node answers the CSI node service.
type Node struct {
	csi.UnimplementedNodeServer
	driver *Driver
}

var _ csi.NodeServer = (*Node)(nil)

// NewNode returns the node service of d.
func NewNode(d *Driver) *Node { return &Node{driver: d} }

// NodePublishVolume mounts a volume at a target.
func (n *Node) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	switch {
	case q.VolumeId == "":
		return nil, status.Error(codes.InvalidArgument, "no volume is given")
	case q.TargetPath == "":
		return nil, status.Error(codes.InvalidArgument, "no target is given")
	case q.VolumeCapability == nil:
		return nil, status.Error(codes.InvalidArgument, "no volume capability is given")
	}
	if why := unsupported(q.VolumeCapability); why != "" {
		return nil, status.Error(codes.InvalidArgument, why)
	}
	mode := q.VolumeCapability.GetAccessMode().GetMode()
	readOnly := q.Readonly || mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	alone := mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	if err := n.driver.publish(ctx, q.VolumeId, q.TargetPath, readOnly, alone); err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publish mounts a volume at a target; alone refuses a second target.
func (d *Driver) publish(ctx context.Context, id, target string, readOnly, alone bool) error {
	unlock, err := d.busy.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.lookup(id)
	if err != nil {
		return err
	}
	if r.AcquiredBy != "" {
		return fmt.Errorf("volume %s: %w: %s", id, errAcquired, r.AcquiredBy)
	}
	f, err := d.folder(id)
	if err != nil {
		return err
	}
	defer f.Close()
	if alone {
		if err := d.publishedNowhereElse(f, target); err != nil {
			return fmt.Errorf("volume %s: %w", id, err)
		}
	}
	return d.targets().Publish(f, target, readOnly)
}

// publishedNowhereElse returns errMounted if a volume that is not yet at target is
// mounted elsewhere.
func (d *Driver) publishedNowhereElse(f *os.File, target string) error {
	if here, err := d.targets().Published(f, target); err != nil || here {
		return err
	}
	uses, err := mounts.UsesHere(f)
	if err != nil {
		return err
	}
	if len(uses) > 0 {
		return fmt.Errorf("%w at %v, and its access mode allows one Pod", errMounted, uses[0])
	}
	return nil
}

// NodeUnpublishVolume takes away what is mounted at a target.
func (n *Node) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	switch {
	case q.VolumeId == "":
		return nil, status.Error(codes.InvalidArgument, "no volume is given")
	case q.TargetPath == "":
		return nil, status.Error(codes.InvalidArgument, "no target is given")
	}
	if !validID(q.VolumeId) {
		return nil, status.Errorf(codes.InvalidArgument, "%.200q is no volume's", q.VolumeId)
	}
	unlock, err := n.driver.busy.Lock(ctx, q.VolumeId)
	if err != nil {
		return nil, toStatus(err)
	}
	defer unlock()
	if err := n.driver.unpublish(n.driver.targets(), q.VolumeId, q.TargetPath); err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetVolumeStats says how full the filesystem is in which a volume lies.
func (n *Node) NodeGetVolumeStats(_ context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	switch {
	case q.VolumeId == "":
		return nil, status.Error(codes.InvalidArgument, "no volume is given")
	case q.VolumePath == "":
		return nil, status.Error(codes.InvalidArgument, "no path is given")
	}
	if _, err := n.driver.lookup(q.VolumeId); err != nil {
		return nil, toStatus(err)
	}
	f, err := n.driver.folder(q.VolumeId)
	if err != nil {
		return nil, toStatus(err)
	}
	defer f.Close()
	here, err := n.driver.targets().Published(f, q.VolumePath)
	if err != nil && !errors.Is(err, mounts.ErrTarget) && !errors.Is(err, mounts.ErrOutside) {
		return nil, toStatus(err)
	}
	if !here {
		return nil, status.Errorf(codes.NotFound, "volume %s is not mounted at %s", q.VolumeId, q.VolumePath)
	}
	usage, err := server.VolumeUsage(f)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

// NodeGetInfo names the node.
func (n *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.driver.cfg.Node, AccessibleTopology: n.driver.topology()}, nil
}

// NodeGetCapabilities lists what this service does.
func (n *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: server.NodeCapabilities(
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	)}, nil
}
