package pernode

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/mounts/mountstest"
	"tak-os.org/tak-replicated/csi/names"
	"tak-os.org/tak-replicated/csi/sanitytest"
	"tak-os.org/tak-replicated/csi/server"
)

// author writes PersistentVolumes as a user does, where csi-sanity wants a
// controller: the driver has none.
type author struct {
	csi.UnimplementedControllerServer
	world *world
}

func (a author) CreateVolume(_ context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	h := strings.ToLower(q.Name)
	if !names.Subdomain(h) {
		return nil, status.Errorf(codes.InvalidArgument, "%q is no handle", h)
	}
	a.world.setPVs(h, PV{Name: h, UID: "uid-" + names.Hash(h)[:8]})
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: h, VolumeContext: map[string]string{
		podNamespaceKey: pod1.Namespace, podNameKey: pod1.Name, podUIDKey: pod1.UID,
	}}}, nil
}

func (a author) DeleteVolume(_ context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	a.world.setPVs(q.VolumeId)
	return &csi.DeleteVolumeResponse{}, nil
}

func (a author) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{}, nil
}

// TestSanity runs csi-sanity against the driver's node and identity services, with
// real mounts. Where csi-sanity wants a controller service to make volumes, it gets
// one that writes PersistentVolumes, and an identity beside the node service that
// says so; specifications of controller services themselves are left out, since the
// driver has none.
func TestSanity(t *testing.T) {
	n := newNode(t)
	n.world.setPVs(handle)
	controller, node := server.New(zap.NewNop(), nil), server.New(zap.NewNop(), nil)
	csi.RegisterControllerServer(controller, author{world: n.world})
	csi.RegisterIdentityServer(controller, identity(n.Ready))
	csi.RegisterNodeServer(node, NewNode(n.Driver))
	csi.RegisterIdentityServer(node, &server.Identity{Driver: Name, Capabilities: []*csi.PluginCapability{
		server.Capability(csi.PluginCapability_Service_CONTROLLER_SERVICE),
	}})

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 3)
	for name, s := range map[string]*grpc.Server{"csi.sock": node, "author.sock": controller} {
		l, err := server.Listen(filepath.Join(n.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		go func() { done <- server.Serve(ctx, l, s) }()
	}
	mountstest.Folder(t, n.dir, "kubelet")
	go func() { done <- n.Run(ctx) }()
	defer func() {
		cancel()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}()

	c := sanity.NewTestConfig()
	c.Address, c.ControllerAddress = "unix:"+filepath.Join(n.dir, "csi.sock"), "unix:"+filepath.Join(n.dir, "author.sock")
	kubelet := filepath.Join(n.dir, "kubelet")
	c.TargetPath, c.StagingPath = filepath.Join(kubelet, "target"), filepath.Join(kubelet, "staging")
	sanitytest.Run(t, sanitytest.Suite{
		Config: c, AtLeast: 17,
		NotOurs: []string{`\[Controller Server\]`, `\[GroupController`},
		Unclaimed: []string{
			"NodeExpandVolume not supported", "NodeStageVolume not supported", "NodeUnstageVolume not supported",
			"NodeGetVolumeHealth not supported", "NodeGetStorageHealth not supported",
			"Service does not have single node multi writer capability",
		},
	})
	if err := n.Look(ctx); err != nil {
		t.Error(err)
	}
	if s, err := n.Summary(); err != nil || s != (Summary{}) {
		t.Errorf("left behind: %+v, error %v", s, err)
	}
}
