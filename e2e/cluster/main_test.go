//go:build e2e

package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/install"
	"tak-os.org/tak-replicated/e2e/cluster/lab"
)

// setup is the cluster that all scenarios use, one after the other.
var setup struct {
	kubectl install.Kubectl
	lab     *lab.Cluster // nil on a cluster that is not ours
	nodes   []string
	failed  bool
	ran     map[string]bool // tests that used the cluster
	ended   time.Time       // when the product was uninstalled
}

const nodeCount = 3

func TestMain(m *testing.M) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := runAll(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		code = 1
	}
	os.Exit(code)
}

// runAll starts the cluster, runs the tests and takes the cluster down, whatever happens in between.
func runAll(ctx context.Context, m *testing.M) (code int, err error) {
	if file := os.Getenv("E2E_KUBECONFIG"); file != "" {
		setup.kubectl = func(ctx context.Context, args ...string) *exec.Cmd {
			return exec.CommandContext(ctx, "kubectl", append([]string{"--kubeconfig", file}, args...)...)
		}
		if err := findNodes(ctx); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}
	if os.Getenv("E2E_LAB") == "keep" {
		if setup.lab, err = lab.Open(lab.Dir()); err != nil {
			return 1, err
		}
	} else {
		defer func() {
			if downErr := lab.Down(lab.Dir()); downErr != nil && err == nil {
				code, err = 1, downErr
			}
		}()
		if setup.lab, err = install.Up(ctx, nodeCount, logf); err != nil {
			collect(setup.lab)
			return 1, err
		}
		if err := install.Product(ctx, setup.lab, "first", logf); err != nil {
			collect(setup.lab)
			return 1, err
		}
	}
	setup.kubectl = setup.lab.Kubectl
	if err := findNodes(ctx); err != nil {
		return 1, err
	}
	// A test that is interrupted does not end by itself: the cluster ends under it.
	context.AfterFunc(ctx, func() {
		if os.Getenv("E2E_LAB") != "keep" {
			_ = lab.Down(lab.Dir())
		}
		os.Exit(130)
	})
	go machine.watch(ctx)
	begin := time.Now()
	code = m.Run()
	logf("%5.1f s scenarios", time.Since(begin).Seconds())
	if code != 0 {
		collect(setup.lab)
	}
	return code, nil
}

func logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
