// Command labctl starts the end-to-end tests' cluster by hand, and handles it:
//
//	go run ./e2e/cluster/labctl programs            builds what tests outside of e2e/cluster run: API server, provisioner
//	go run ./e2e/cluster/labctl up [NODES]          builds what is missing, starts it, loads the images
//	go run ./e2e/cluster/labctl install             builds the program, loads its image and applies manifests/
//	go run ./e2e/cluster/labctl kubectl ARGS...
//	go run ./e2e/cluster/labctl exec N COMMAND...   on node N
//	go run ./e2e/cluster/labctl kill|start|unplug|plug N
//	go run ./e2e/cluster/labctl down
//
// With E2E_LAB=keep the tests use the cluster that is up.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"tak-os.org/tak-replicated/e2e/cluster/install"
	"tak-os.org/tak-replicated/e2e/cluster/lab"
	"tak-os.org/tak-replicated/e2e/cluster/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "labctl:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: labctl programs | up [NODES] | install | kubectl ARGS... | exec N COMMAND... | kill|start|unplug|plug N | down")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "programs":
		for _, p := range []programs.Program{programs.Kube, programs.Provisioner} {
			path, err := programs.Path(ctx, p, logf)
			if err != nil {
				return err
			}
			fmt.Println(path)
		}
		return nil
	case "up":
		nodes := 3
		if len(args) > 1 {
			var err error
			if nodes, err = strconv.Atoi(args[1]); err != nil {
				return errUsage
			}
		}
		_, err := install.Up(ctx, nodes, logf)
		return err
	case "down":
		return lab.Down(lab.Dir())
	}
	c, err := lab.Open(lab.Dir())
	if err != nil {
		return err
	}
	switch args[0] {
	case "install":
		return install.Product(ctx, c, "first", logf)
	case "kubectl":
		return attached(c.Kubectl(ctx, args[1:]...))
	}
	return onNode(ctx, c, args)
}

func onNode(ctx context.Context, c *lab.Cluster, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return errUsage
	}
	switch args[0] {
	case "exec":
		cmd, err := c.Exec(ctx, n, args[2:]...)
		if err != nil {
			return err
		}
		return attached(cmd)
	case "kill":
		return c.Kill(n)
	case "start":
		return c.Start(n)
	case "unplug":
		return c.Unplug(n)
	case "plug":
		return c.Plug(n)
	}
	return errUsage
}

func attached(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

func logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
