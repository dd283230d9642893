//go:build e2e

package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/lab"
)

var collected sync.Once

// collect keeps what is needed to understand a failure: the first one's, since what follows is its wake.
func collect(c *lab.Cluster) {
	collected.Do(func() {
		dir := os.Getenv("E2E_LOGS")
		if dir == "" {
			var err error
			if dir, err = os.MkdirTemp("", "tak-e2e-logs-"); err != nil {
				logf("collect logs: %v", err)
				return
			}
		}
		_ = os.MkdirAll(dir, 0o755)
		for name, args := range map[string][]string{
			"objects.txt":  {"get", "pods,pvc,pv,replicatedvolumes,endpointslices,services", "-A", "-o", "wide"},
			"volumes.yaml": {"-n", "kube-system", "get", "replicatedvolumes,pvc", "-o", "yaml"},
			"events.txt":   {"get", "events", "-A", "--sort-by", ".lastTimestamp"},
			"pods.txt":     {"describe", "pods", "-A"},
		} {
			if setup.kubectl != nil {
				out, _ := tryAll(args...)
				_ = os.WriteFile(filepath.Join(dir, name), out, 0o644)
			}
		}
		if c != nil {
			for i := 1; i <= c.Nodes(); i++ {
				to := filepath.Join(dir, lab.NodeName(i))
				_ = exec.Command("cp", "-rL", filepath.Join(c.Root(i), "var", "log"), to).Run()
			}
			_ = exec.Command("cp", "-r", filepath.Join(lab.Dir(), "logs"), filepath.Join(dir, "control-plane")).Run()
		}
		logf("logs are in %s", dir)
	})
}

func tryAll(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return setup.kubectl(ctx, args...).CombinedOutput()
}
