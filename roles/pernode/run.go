package pernode

import (
	"context"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/pernode"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/boot/metric"
)

// Config is what the role's flags say.
type Config struct {
	Node       string
	Root       string
	Socket     string
	KubeletDir string
	Kubeconfig string
	Proc       string
	FolderMode string
	LookEvery  time.Duration
	Boot       boot.Config
}

func (c *Config) driver() (pernode.Config, error) {
	mode, err := boot.FolderMode(c.FolderMode)
	if err != nil {
		return pernode.Config{}, err
	}
	if err := boot.NodeName(c.Node); err != nil {
		return pernode.Config{}, err
	}
	for flag, path := range map[string]string{"root": c.Root, "kubelet-dir": c.KubeletDir, "proc": c.Proc} {
		if !filepath.IsAbs(path) {
			return pernode.Config{}, boot.Usagef("--%s: %q is not an absolute path", flag, path)
		}
	}
	if c.LookEvery < time.Second {
		return pernode.Config{}, boot.Usagef("--look-every: %v is less than 1s", c.LookEvery)
	}
	return pernode.Config{
		Root: c.Root, Node: c.Node, KubeletDir: c.KubeletDir, Proc: c.Proc, FolderMode: mode, LookEvery: c.LookEvery,
	}, nil
}

// Run serves until ctx ends. ready is called when the socket answers.
func Run(ctx context.Context, c Config, log *zap.Logger, ready func()) error {
	cfg, err := c.driver()
	if err != nil {
		return err
	}
	client, err := kube.Connect(kube.Options{Kubeconfig: c.Kubeconfig, UserAgent: boot.Name + "/per-node"})
	if err != nil {
		return boot.Usagef("--kubeconfig: %w", err)
	}
	cl := newCluster(client, log.Named("cluster"))
	d, err := pernode.Open(cfg, cl, log.Named("per-node"))
	if err != nil {
		return err
	}
	defer d.Close()
	ops := c.Boot.NewOps()
	ops.Registry.MustRegister(metrics{d})
	ops.AddReady("records", d.Ready)
	ops.AddReady("api", cl.ready)
	l, err := server.Listen(c.Socket)
	if err != nil {
		return err
	}
	s := d.Server(log.Named("csi"), ops.ObserveCalls("csi"), d.Ready)
	var g boot.Group
	g.Add("metrics", ops.Run)
	g.Add("copies", d.Run)
	g.Add("watch", cl.watch.Run)
	g.Add("CSI socket", func(ctx context.Context) error { return server.Serve(ctx, l, s) })
	ready()
	return g.Run(ctx)
}

// Metrics is what the per-node driver shows.
var Metrics = metric.Table{Role: "per-node", Defs: []metric.Def{
	{Name: "per_node_copies", Kind: metric.Gauge, Help: "Copies on this node."},
	{Name: "per_node_copies_held", Kind: metric.Gauge, Help: "Copies that a Pod holds."},
	{Name: "per_node_records_unreadable", Kind: metric.Gauge, Help: "Records that can't be read; the log tells of them."},
}}

var (
	copiesDesc = Metrics.Get("per_node_copies").Desc(nil)
	heldDesc   = Metrics.Get("per_node_copies_held").Desc(nil)
	badDesc    = Metrics.Get("per_node_records_unreadable").Desc(nil)
)

// metrics counts copies when it is asked.
type metrics struct{ driver *pernode.Driver }

var _ prometheus.Collector = metrics{}

func (m metrics) Describe(to chan<- *prometheus.Desc) {
	to <- copiesDesc
	to <- heldDesc
	to <- badDesc
}

func (m metrics) Collect(to chan<- prometheus.Metric) {
	s, err := m.driver.Summary()
	if err != nil {
		to <- prometheus.NewInvalidMetric(copiesDesc, err)
		return
	}
	to <- prometheus.MustNewConstMetric(copiesDesc, prometheus.GaugeValue, float64(s.Copies))
	to <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(s.Held))
	to <- prometheus.MustNewConstMetric(badDesc, prometheus.GaugeValue, float64(s.Unreadable))
}
