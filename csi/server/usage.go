package server

import (
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"tak-os.org/tak-replicated/csi/mounts"
)

// VolumeUsage says in CSI's words how full the filesystem of an open folder is.
func VolumeUsage(dir *os.File) ([]*csi.VolumeUsage, error) {
	u, err := mounts.UsageOf(dir)
	if err != nil {
		return nil, err
	}
	return []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: u.BytesTotal, Used: u.BytesUsed, Available: u.BytesFree},
		{Unit: csi.VolumeUsage_INODES, Total: u.InodesTotal, Used: u.InodesUsed, Available: u.InodesFree},
	}, nil
}

// NodeCapabilities makes the answer to NodeGetCapabilities.
func NodeCapabilities(types ...csi.NodeServiceCapability_RPC_Type) []*csi.NodeServiceCapability {
	var caps []*csi.NodeServiceCapability
	for _, t := range types {
		caps = append(caps, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return caps
}
