package registrar

import (
	"context"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/registrar"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/boot/metric"
)

// Metrics is what the registrar shows.
var Metrics = metric.Table{Role: "registrar", Defs: []metric.Def{
	{Name: "registrar_registered", Kind: metric.Gauge, Labels: []string{"socket"}, Help: "1 when the kubelet has taken the driver in."},
}}

var registered = Metrics.Get("registrar_registered")

// Config is what the role's flags say.
type Config struct {
	Sockets        []string
	KubeletSockets []string
	Folder         string
	Boot           boot.Config
}

func (c *Config) drivers() ([]registrar.Driver, error) {
	if len(c.Sockets) == 0 {
		return nil, boot.Usagef("--csi-socket is required")
	}
	theirs := c.KubeletSockets
	if len(theirs) == 0 {
		theirs = c.Sockets
	}
	if len(theirs) != len(c.Sockets) {
		return nil, boot.Usagef("--kubelet-socket: given %d times, --csi-socket %d times", len(theirs), len(c.Sockets))
	}
	if !filepath.IsAbs(c.Folder) {
		return nil, boot.Usagef("--registration-dir: %q is not an absolute path", c.Folder)
	}
	var drivers []registrar.Driver
	for i, socket := range c.Sockets {
		switch {
		case !filepath.IsAbs(socket):
			return nil, boot.Usagef("--csi-socket: %q is not an absolute path", socket)
		case !filepath.IsAbs(theirs[i]):
			return nil, boot.Usagef("--kubelet-socket: %q is not an absolute path", theirs[i])
		}
		drivers = append(drivers, registrar.Driver{Socket: socket, KubeletSocket: theirs[i]})
	}
	return drivers, nil
}

// Run registers the drivers until ctx ends. ready is called when it begins.
func Run(ctx context.Context, c Config, log *zap.Logger, ready func()) error {
	drivers, err := c.drivers()
	if err != nil {
		return err
	}
	ops := c.Boot.NewOps()
	var g boot.Group
	g.Add("metrics", ops.Run)
	for _, d := range drivers {
		r := registrar.New(d, c.Folder, registrar.DefaultRetry, log.Named("registrar"))
		ops.AddReady(d.Socket, r.Registered)
		ops.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: registered.Full(), Help: registered.Help, ConstLabels: prometheus.Labels{"socket": d.KubeletSocket},
		}, func() float64 {
			if r.Registered() == nil {
				return 1
			}
			return 0
		}))
		g.Add(d.Socket, r.Run)
	}
	ready()
	return g.Run(ctx)
}
