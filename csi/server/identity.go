package server

import (
	"context"
	"runtime/debug"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Identity answers a driver's CSI identity service.
type Identity struct {
	csi.UnimplementedIdentityServer
	// Driver is the driver's name, for example csi.local.tak-os.org.
	Driver string
	// Capabilities of the plugin, which Capability makes.
	Capabilities []*csi.PluginCapability
	// Ready says why the driver can't serve yet; nil when it can. A nil function
	// is always ready.
	Ready func() error
}

var _ csi.IdentityServer = (*Identity)(nil)

// Capability makes a plugin capability of a service.
func Capability(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
	return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
}

// Version is the program's version as its build says; "devel" without one.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// GetPluginInfo names the driver.
func (i *Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.Driver, VendorVersion: Version()}, nil
}

// GetPluginCapabilities lists Capabilities.
func (i *Identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: i.Capabilities}, nil
}

// Probe says whether the driver is ready; it never fails for that alone.
func (i *Identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	ready := i.Ready == nil || i.Ready() == nil
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(ready)}, nil
}
