package manager

import (
	"time"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ui"
)

// Config is a manager's configuration.
type Config struct {
	Socket          string // CSI's
	Namespace       string
	ClusterDomain   string
	Kubeconfig      string
	Identity        string // of this process among managers
	Runtime         string // of new volumes: shared or pod
	WorkerImage     string // of the pod runtime
	ControllerImage string // accepted and ignored
	Resync          time.Duration
	UI              ui.Config // of the status page
	Boot            boot.Config
}

func (c *Config) validate() error {
	switch {
	case c.Socket == "":
		return boot.Usagef("--socket is needed")
	case c.Runtime != runtimeShared && c.Runtime != runtimePod:
		return boot.Usagef("--replica-runtime: %q is not shared or pod", c.Runtime)
	case c.Runtime == runtimePod && c.WorkerImage == "":
		return boot.Usagef("--worker-image is needed with --replica-runtime=pod")
	case c.ClusterDomain == "":
		return boot.Usagef("--cluster-domain is empty")
	case c.Resync < time.Second:
		return boot.Usagef("--resync: %s is less than a second", c.Resync)
	}
	return c.UI.Validate()
}

// Values of --replica-runtime.
const (
	runtimeShared = "shared"
	runtimePod    = "pod"
)

func (c *Config) runtime() api.Runtime {
	if c.Runtime == runtimePod {
		return api.RuntimePod
	}
	return api.RuntimeShared
}
