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
	driver "tak-os.org/tak-replicated/csi/pernode"
	"tak-os.org/tak-replicated/csi/sanitytest"
	"tak-os.org/tak-replicated/csi/server"
)

// author writes real PersistentVolumes as a user does, where csi-sanity wants a
// controller: the driver has none.
type author struct {
	csi.UnimplementedControllerServer
	api *api
	pod driver.Pod
}

func (a author) CreateVolume(_ context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	handle := strings.ToLower(q.Name)
	if err := a.api.createPV(handle, handle); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: handle, VolumeContext: map[string]string{
		"csi.storage.k8s.io/pod.namespace": a.pod.Namespace, "csi.storage.k8s.io/pod.name": a.pod.Name, "csi.storage.k8s.io/pod.uid": a.pod.UID,
	}}}, nil
}

func (a author) DeleteVolume(_ context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := a.api.deletePV(q.VolumeId); err != nil && !strings.Contains(err.Error(), "404") {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (a author) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{}, nil
}

// front is the role's own identity, which beside it claims the controller service
// that author has, since csi-sanity asks at the node's socket.
type front struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	identity csi.IdentityClient
	node     csi.NodeClient
}

func (f front) GetPluginInfo(ctx context.Context, q *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return f.identity.GetPluginInfo(ctx, q)
}

func (f front) Probe(ctx context.Context, q *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return f.identity.Probe(ctx, q)
}

func (f front) GetPluginCapabilities(ctx context.Context, q *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	r, err := f.identity.GetPluginCapabilities(ctx, q)
	if err == nil {
		r.Capabilities = append(r.Capabilities, server.Capability(csi.PluginCapability_Service_CONTROLLER_SERVICE))
	}
	return r, err
}

func (f front) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return f.node.NodePublishVolume(ctx, q)
}

func (f front) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return f.node.NodeUnpublishVolume(ctx, q)
}

func (f front) NodeGetVolumeStats(ctx context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return f.node.NodeGetVolumeStats(ctx, q)
}

func (f front) NodeGetInfo(ctx context.Context, q *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return f.node.NodeGetInfo(ctx, q)
}

func (f front) NodeGetCapabilities(ctx context.Context, q *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return f.node.NodeGetCapabilities(ctx, q)
}

// TestSanity runs csi-sanity against the role, with its service account's rights,
// PersistentVolumes on a real API server, and real mounts. Specifications of
// controller services themselves are left out, since the driver has none.
func TestSanity(t *testing.T) {
	n := &node{dir: mountstest.Dir(t)}
	a := startAPI(t)
	n.kubeconfig = a.account(t)
	n.start(t)
	defer n.end(t)
	mountstest.Folder(t, n.dir, "kubelet")

	nodes, controllers := server.New(zap.NewNop(), nil), server.New(zap.NewNop(), nil)
	f := front{identity: csi.NewIdentityClient(n.conn), node: n.NodeClient}
	csi.RegisterIdentityServer(nodes, f)
	csi.RegisterNodeServer(nodes, f)
	csi.RegisterIdentityServer(controllers, f)
	csi.RegisterControllerServer(controllers, author{api: a, pod: a.createPod(t, "sanity")})
	c := sanity.NewTestConfig()
	c.Address, c.ControllerAddress = serve(t, n.dir, "front.sock", nodes), serve(t, n.dir, "author.sock", controllers)
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
}

// serve serves s at a socket until the test ends, and returns its address.
func serve(t *testing.T, dir, name string, s *grpc.Server) string {
	t.Helper()
	path := filepath.Join(dir, name)
	l, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, s) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "unix:" + path
}
