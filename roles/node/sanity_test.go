package node

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/csi/sanitytest"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/kube/api"
)

// maker stands for the controller: each volume that csi-sanity asks for is one of
// the world, with a worker. The controller's own specifications run elsewhere.
type maker struct {
	csi.UnimplementedControllerServer
	w  *world
	mu struct {
		sync.Mutex
		made map[string]string
	}
}

func (m *maker) CreateVolume(_ context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, ok := m.mu.made[q.Name]
	if !ok {
		id = fmt.Sprintf("pvc-sanity-%d", len(m.mu.made))
		m.mu.made[q.Name] = id
		m.w.volume(id, api.ReadWriteOnce)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: q.GetCapacityRange().GetRequiredBytes()}}, nil
}

func (m *maker) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, nil
}

func (m *maker) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}},
	}}}, nil
}

// TestSanity runs csi-sanity's specifications of the node and identity services
// on real mounts.
func TestSanity(t *testing.T) {
	w := newWorld(t)
	n := w.node("node-1")
	socket := filepath.Join(n.dir, "sanity.sock")
	l, err := server.Listen(socket)
	must(t, err)
	m := &maker{w: w}
	m.mu.made = map[string]string{}
	s := server.New(zap.NewNop(), nil)
	csi.RegisterIdentityServer(s, replicated.NewIdentity(n.front.ready))
	csi.RegisterControllerServer(s, m)
	csi.RegisterNodeServer(s, replicated.NewNode(n.name, n.front))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, s) }()
	defer func() { cancel(); <-done }()
	config := sanity.NewTestConfig()
	config.Address = "unix:" + socket
	config.TargetPath, config.StagingPath = n.path("sanity-target"), n.path("sanity-staging")
	config.TestVolumeSize = 1 << 30
	sanitytest.Run(t, sanitytest.Suite{Config: config, AtLeast: 22, NotOurs: []string{`\[Controller Server\]`, "GroupController", "SnapshotMetadata"}, Unclaimed: []string{
		"NodeExpandVolume not supported", "NodeGetVolumeHealth not supported", "NodeGetStorageHealth not supported", "Service does not have single node multi writer capability",
	}})
}
