package replicahost

import (
	"net"
	"net/http"
	"path/filepath"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

// Config is what the role's flags say.
type Config struct {
	Node          string
	Namespace     string
	ClusterDomain string
	Kubeconfig    string
	// Advertise is the address under which workers here are reached.
	Advertise string
	// Listen is the address that workers listen on, without a port.
	Listen string

	State          string // folder of the host's own state
	Locks          string // folder of locks that all hosts of the machine share
	ConsumerSocket string // of the local driver
	ConsumerRoot   string // where publications appear in this mount namespace

	Workers, Starts, Operations, Checkpoints, Rebuilds int
	RebuildRate                                        int64 // bytes a second
	PortFirst, PortLast                                int
	// Worker has what every worker is given: bounds of disk and journal, TTL.
	Worker worker.Config
	Boot   boot.Config

	// Addresses says where replicas are reached; nil: their Services.
	Addresses Addresses
	// Reach says how an address that a host advertises is reached; nil: as it is.
	Reach func(addr string) string
	// Wrap goes around the connection to the API server; nil for nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Retry is the pause before something is tried again; 0: the default.
	Retry time.Duration
}

func (c *Config) validate() error {
	for _, f := range []struct{ flag, value string }{
		{"node-name", c.Node}, {"namespace", c.Namespace}, {"cluster-domain", c.ClusterDomain},
	} {
		if f.value == "" {
			return boot.Usagef("--%s is needed", f.flag)
		}
	}
	for _, f := range []struct{ flag, value string }{
		{"state-dir", c.State}, {"lock-dir", c.Locks}, {"consumer-socket", c.ConsumerSocket}, {"consumer-mount-root", c.ConsumerRoot},
	} {
		if !filepath.IsAbs(f.value) || filepath.Clean(f.value) != f.value {
			return boot.Usagef("--%s: %q is not a clean absolute path", f.flag, f.value)
		}
	}
	if err := worker.CheckSizes(c.Worker.CheckpointBytes, c.Worker.JournalBytes); err != nil {
		return err
	}
	if err := worker.CheckLeases(c.Worker.SessionLeases); err != nil {
		return err
	}
	if net.ParseIP(c.Advertise) == nil {
		return boot.Usagef("--pod-ip: %q is not an IP address", c.Advertise)
	}
	for _, f := range []struct {
		flag  string
		value int
	}{
		{"max-workers", c.Workers}, {"max-starts", c.Starts}, {"max-operations", c.Operations},
		{"max-checkpoints", c.Checkpoints}, {"max-rebuilds", c.Rebuilds},
	} {
		if f.value < 1 {
			return boot.Usagef("--%s: %d, needs at least 1", f.flag, f.value)
		}
	}
	if c.PortFirst < 1 || c.PortLast > 65535 || c.PortFirst > c.PortLast {
		return boot.Usagef("--port-first and --port-last: %d to %d is no range of ports", c.PortFirst, c.PortLast)
	}
	return nil
}

// workerConfig is a replica's worker.
func (c *Config) workerConfig(a *Assignment, dir, trust string) (worker.Config, error) {
	members, err := a.workerMembers()
	if err != nil {
		return worker.Config{}, err
	}
	w := c.Worker
	w.Dir, w.Volume, w.Replica, w.Incarnation = filepath.Join(dir, replicaFolder), a.Volume, a.Replica(), uint64(a.Incarnation)
	w.Members, w.Trust, w.RebuildRate = members, trust, c.RebuildRate
	w.Join = a.Incarnation > 1
	w.Listen = net.JoinHostPort(c.Listen, "0")
	return w, nil
}

// replicaFolder is the replica's folder on its volume.
const replicaFolder = "replica"

func (c *Config) addresses() Addresses {
	if c.Addresses != nil {
		return c.Addresses
	}
	return serviceAddresses(c.Namespace, c.ClusterDomain)
}

func (c *Config) retry() time.Duration {
	if c.Retry == 0 {
		return 2 * time.Second
	}
	return c.Retry
}
