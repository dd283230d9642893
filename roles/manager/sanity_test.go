package manager

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/csi/sanitytest"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

// withClaims stands for external-provisioner: csi-sanity's volumes have names of its own,
// so each gets a real claim, whose UID is then in the volume's name.
type withClaims struct {
	*replicated.Controller
	w  *world
	mu struct {
		sync.Mutex
		claims map[string]string // by csi-sanity's name: the claim's
		uids   map[string]string // by claim
	}
}

func (c *withClaims) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if q.Name != "" {
		claim, uid := c.claimFor(q.Name)
		q.Name = api.VolumeName(uid)
		if q.Parameters == nil {
			q.Parameters = map[string]string{}
		}
		q.Parameters["csi.storage.k8s.io/pvc/name"], q.Parameters["csi.storage.k8s.io/pvc/namespace"] = claim, "default"
	}
	return c.Controller.CreateVolume(ctx, q)
}

func (c *withClaims) claimFor(name string) (claim, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim, ok := c.mu.claims[name]
	if !ok {
		claim = fmt.Sprintf("sanity-%d-%d", time.Now().UnixNano(), len(c.mu.claims))
		c.mu.claims[name], c.mu.uids[claim] = claim, c.w.c.NewClaim(claim, nil)
	}
	return claim, c.mu.uids[claim]
}

// names lists the volumes that were asked for.
func (c *withClaims) names() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]bool{}
	for _, uid := range c.mu.uids {
		names[api.VolumeName(uid)] = true
	}
	return names
}

// nodeService answers what the controller's specifications ask of a node.
type nodeService struct{ csi.UnimplementedNodeServer }

func (nodeService) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (nodeService) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "n1"}, nil
}

// The suite cleans up at nodes too, also what was never mounted.
func (nodeService) NodeUnpublishVolume(context.Context, *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (nodeService) NodeUnstageVolume(context.Context, *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// TestSanity runs csi-sanity's specifications of the controller and identity
// services against a manager with a real API server.
func TestSanity(t *testing.T) {
	w := newWorld(t, 2)
	m := w.manager(nil)
	c := &withClaims{Controller: replicated.NewController(m), w: w}
	c.mu.claims, c.mu.uids = map[string]string{}, map[string]string{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 3)
	go func() { done <- c.work(ctx, m) }()
	// Calls wait for what the watch sees, as in a manager that acts.
	m.watched.Store(m.kube.WatchVolumes(0, func(string) {}))
	go func() { done <- m.watched.Load().Run(ctx) }()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	l, err := server.Listen(socket)
	w.must(err)
	s := server.New(zap.NewNop(), nil)
	csi.RegisterIdentityServer(s, replicated.NewIdentity(nil))
	csi.RegisterControllerServer(s, c)
	csi.RegisterNodeServer(s, nodeService{})
	go func() { done <- server.Serve(ctx, l, s) }()
	defer func() {
		cancel()
		for range cap(done) {
			<-done
		}
	}()
	config := sanity.NewTestConfig()
	config.Address = "unix:" + socket
	config.TargetPath, config.StagingPath = filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "staging")
	config.TestVolumeSize = 1 << 30
	config.TestVolumeParameters = map[string]string{replicated.ParameterBackingClass: kubetest.BackingClass, replicated.ParameterReplicas: "1"}
	sanitytest.Run(t, sanitytest.Suite{Config: config, AtLeast: 18, NotOurs: []string{"Node Service"}, Unclaimed: []string{
		"ControllerPublishVolume not supported", "ControllerUnpublishVolume not supported", "Controller Publish, UnpublishVolume not supported",
		"ControllerExpandVolume not supported",
		"ControllerModifyVolume not supported", "Modify Volume not supported", "Modify volume not supported",
		"ControllerGetVolumeHealth not supported", "ControllerListVolumeHealth not supported",
		"CreateSnapshot not supported", "DeleteSnapshot not supported", "GetSnapshot not supported", "ListSnapshots not supported", "Snapshot not supported",
		"Volume Cloning not supported", "GroupControllerService not supported",
		"ListVolumes not supported", "GetCapacity not supported",
	}})
	for name := range c.names() {
		if left := w.c.Left(name); len(left) > 0 {
			t.Errorf("left of %s are %v", name, left)
		}
	}
}

// work has the manager and everybody else take their steps.
func (c *withClaims) work(ctx context.Context, m *manager) error {
	for ctx.Err() == nil {
		names := c.names()
		for name := range names {
			if _, err := c.w.k.Volume(ctx, name); err != nil {
				delete(names, name)
			} else if _, err := m.reconcile(ctx, name); err != nil && ctx.Err() == nil {
				c.w.t.Logf("pass: %v", err)
			}
		}
		c.w.mine = names
		if ctx.Err() == nil && len(names) > 0 {
			c.w.others()
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
