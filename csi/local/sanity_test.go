package local

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/sanitytest"
	"tak-os.org/tak-replicated/csi/server"
)

// TestSanity runs csi-sanity against the driver behind its socket, with real
// mounts.
func TestSanity(t *testing.T) {
	n := newNode(t)
	socket := filepath.Join(n.dir, "csi.sock")
	l, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- server.Serve(ctx, l, n.Server(zap.NewNop(), nil, n.Ready)) }()
	go func() { done <- n.Run(ctx) }()
	defer func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}()

	c := sanity.NewTestConfig()
	c.Address = "unix:" + socket
	c.TargetPath, c.StagingPath = filepath.Join(n.dir, "kubelet/target"), filepath.Join(n.dir, "kubelet/staging")
	c.TestVolumeSize = 1 << 20
	sanitytest.Run(t, sanitytest.Suite{Config: c, AtLeast: 34, Unclaimed: []string{
		"ControllerPublishVolume not supported", "ControllerUnpublishVolume not supported", "Controller Publish, UnpublishVolume not supported",
		"ControllerExpandVolume not supported", "NodeExpandVolume not supported",
		"ControllerModifyVolume not supported", "Modify Volume not supported", "Modify volume not supported",
		"ControllerGetVolumeHealth not supported", "ControllerListVolumeHealth not supported", "NodeGetVolumeHealth not supported", "NodeGetStorageHealth not supported",
		"CreateSnapshot not supported", "DeleteSnapshot not supported", "GetSnapshot not supported", "ListSnapshots not supported", "Snapshot not supported",
		"Volume Cloning not supported", "GroupControllerService not supported",
		"ListVolumes not supported", "NodeStageVolume not supported", "NodeUnstageVolume not supported",
	}})
	if s, err := n.Summary(); err != nil || s.Free+s.Acquired+s.Deleting != 0 {
		t.Errorf("left behind: %+v, error %v", s, err)
	}
}
