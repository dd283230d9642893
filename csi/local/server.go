package local

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"tak-os.org/tak-replicated/csi/server"
)

// Server returns a server of d's CSI services, for [server.Serve]. ready says why
// the driver can't serve; observe may be nil.
func (d *Driver) Server(log *zap.Logger, observe server.Observer, ready func() error) *grpc.Server {
	s := server.New(log, observe)
	csi.RegisterIdentityServer(s, &server.Identity{Driver: Name, Ready: ready, Capabilities: []*csi.PluginCapability{
		server.Capability(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		server.Capability(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
	}})
	csi.RegisterControllerServer(s, NewController(d))
	csi.RegisterNodeServer(s, NewNode(d))
	return s
}
