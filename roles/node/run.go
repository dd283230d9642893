package node

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/mountowner"
)

// Config is what the role's flags say.
type Config struct {
	Node          string
	Namespace     string
	ClusterDomain string
	Kubeconfig    string
	KubeletDir    string
	Socket        string
	OwnerSocket   string
	QuorumWait    time.Duration
	Boot          boot.Config

	// Addresses says where replicas are reached; nil: their Services.
	Addresses Addresses
}

func (c *Config) validate() error {
	if err := boot.NodeName(c.Node); err != nil {
		return err
	}
	if c.Socket == "" {
		c.Socket = filepath.Join(c.KubeletDir, "plugins", replicated.Driver, "csi.sock")
	}
	for flag, path := range map[string]string{"kubelet-dir": c.KubeletDir, "socket": c.Socket, "owner-socket": c.OwnerSocket} {
		if !filepath.IsAbs(path) {
			return boot.Usagef("--%s: %q is not an absolute path", flag, path)
		}
	}
	if c.QuorumWait < 0 {
		return boot.Usagef("--quorum-wait: %v is negative", c.QuorumWait)
	}
	if c.Addresses == nil {
		c.Addresses = func(volume string, index int32) (string, string) {
			return fmt.Sprintf("%s:%d", api.ServiceDNS(volume, index, c.Namespace, c.ClusterDomain), api.WorkerPort), ""
		}
	}
	return nil
}

// Run serves until ctx ends. ready is called when the socket answers.
func Run(ctx context.Context, c Config, log *zap.Logger, ready func()) error {
	if err := c.validate(); err != nil {
		return err
	}
	cluster, err := kube.Connect(kube.Options{Kubeconfig: c.Kubeconfig, Namespace: c.Namespace, UserAgent: boot.Name + "/node"})
	if err != nil {
		return err
	}
	f := &frontend{
		node: c.Node, cluster: cluster, owner: mountowner.NewClient(c.OwnerSocket), addresses: c.Addresses,
		quorumWait: c.QuorumWait, log: log,
	}
	ops := c.Boot.NewOps()
	ops.AddReady("mount owner", f.ready)
	l, err := server.Listen(c.Socket)
	if err != nil {
		return err
	}
	s := serviceOf(f, log, ops.ObserveCalls("csi"))
	var g boot.Group
	g.Add("socket", func(ctx context.Context) error { return server.Serve(ctx, l, s) })
	g.Add("credentials", f.refresh)
	g.Add("metrics", ops.Run)
	ready()
	return g.Run(ctx)
}

func serviceOf(f *frontend, log *zap.Logger, observe server.Observer) *grpc.Server {
	return replicated.NodeServer(f.node, f, log, observe, f.ready)
}
