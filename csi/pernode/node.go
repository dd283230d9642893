package pernode

import (
	"context"
	"errors"
	"fmt"

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

// The keys with which the kubelet names the Pod (podInfoOnMount).
const (
	podNamespaceKey = "csi.storage.k8s.io/pod.namespace"
	podNameKey      = "csi.storage.k8s.io/pod.name"
	podUIDKey       = "csi.storage.k8s.io/pod.uid"
	ephemeralKey    = "csi.storage.k8s.io/ephemeral"
)

// NodePublishVolume gives this node's copy to a Pod, unless another has it.
func (n *Node) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	p, err := publicationOf(q)
	if err != nil {
		return nil, err
	}
	err = n.driver.publish(ctx, p)
	if err == nil {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	var held heldError
	if errors.As(err, &held) {
		n.driver.cluster.Refused(ctx, p.pod, "VolumeHeld", fmt.Sprintf(
			"volume %s is held on node %s by Pod %v until that Pod's volume is unmounted: a node has one copy, for one Pod at a time",
			p.handle, n.driver.cfg.Node, held.by.Pod))
	}
	return nil, toStatus(err)
}

func publicationOf(q *csi.NodePublishVolumeRequest) (publication, error) {
	about := q.VolumeContext
	p := publication{
		handle: q.VolumeId, target: q.TargetPath, readOnly: q.Readonly,
		pod: Pod{Namespace: about[podNamespaceKey], Name: about[podNameKey], UID: about[podUIDKey]},
	}
	switch {
	case q.VolumeId == "":
		return p, status.Error(codes.InvalidArgument, "no volume is given")
	case q.TargetPath == "":
		return p, status.Error(codes.InvalidArgument, "no target is given")
	case q.VolumeCapability == nil:
		return p, status.Error(codes.InvalidArgument, "no volume capability is given")
	case q.VolumeCapability.GetMount() == nil:
		return p, status.Error(codes.InvalidArgument, "a volume is a filesystem, not a block device")
	case about[ephemeralKey] == "true":
		return p, status.Error(codes.InvalidArgument, "a volume has a PersistentVolume; it can't be written inline in a Pod")
	case p.pod.UID == "" || p.pod.Name == "" || p.pod.Namespace == "":
		return p, status.Errorf(codes.InvalidArgument, "the kubelet does not say for which Pod: the CSIDriver object %s needs podInfoOnMount: true", Name)
	}
	switch q.VolumeCapability.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		p.readOnly = true
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return p, status.Error(codes.InvalidArgument, "no access mode is given")
	}
	return p, nil
}

// NodeUnpublishVolume takes away what is mounted at a target, and the Pod's hold
// with it.
func (n *Node) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	switch {
	case q.VolumeId == "":
		return nil, status.Error(codes.InvalidArgument, "no volume is given")
	case q.TargetPath == "":
		return nil, status.Error(codes.InvalidArgument, "no target is given")
	}
	if err := n.driver.unpublish(ctx, q.VolumeId, q.TargetPath); err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetVolumeStats says how full the filesystem is in which the copy lies.
func (n *Node) NodeGetVolumeStats(_ context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	switch {
	case q.VolumeId == "":
		return nil, status.Error(codes.InvalidArgument, "no volume is given")
	case q.VolumePath == "":
		return nil, status.Error(codes.InvalidArgument, "no path is given")
	}
	f, err := n.driver.published(q.VolumeId, q.VolumePath)
	if errors.Is(err, mounts.ErrTarget) || errors.Is(err, mounts.ErrOutside) {
		err = errNoCopy
	}
	if err != nil {
		return nil, toStatus(err)
	}
	defer f.Close()
	usage, err := server.VolumeUsage(f)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

// NodeGetInfo names the node. Volumes are on all nodes.
func (n *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.driver.cfg.Node}, nil
}

// NodeGetCapabilities lists what this service does.
func (n *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: server.NodeCapabilities(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)}, nil
}
