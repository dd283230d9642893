package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Unplug takes the node's network link down, which the node sees; Plug brings it back.
func (c *Cluster) Unplug(node int) error {
	return run("ip -n " + hub + " link set " + uplink(node) + " down")
}

// Plug undoes Unplug.
func (c *Cluster) Plug(node int) error {
	return run("ip -n " + hub + " link set " + uplink(node) + " up")
}

const cutTable = `table ip cut {
  chain through { type filter hook forward priority -10; }
  chain into { type filter hook input priority -10; }
  chain outof { type filter hook output priority -10; }
}
`

func nft(rules string) error {
	cmd := exec.Command("ip", "netns", "exec", hub, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// CutPair drops silently everything between two nodes and their Pods.
func (c *Cluster) CutPair(a, b int) error { return nft(cutTable + oneWay(a, b) + oneWay(b, a)) }

// CutOneWay drops silently everything that a node and its Pods send to another one's; what that sends arrives.
func (c *Cluster) CutOneWay(from, to int) error { return nft(cutTable + oneWay(from, to)) }

func oneWay(from, to int) string {
	side := func(i int) string { return "{ " + nodeIP(i) + ", " + podCIDR(i) + " }" }
	return "add rule ip cut through ip saddr " + side(from) + " ip daddr " + side(to) + " drop\n"
}

// Reaches tells whether a node gets an answer from another one's kubelet within two seconds.
func (c *Cluster) Reaches(ctx context.Context, from, to int) (bool, error) {
	cmd, err := c.Exec(ctx, from, "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/"+nodeIP(to)+"/10250")
	if err != nil {
		return false, err
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, nil
	}
	return err == nil, err
}

// CutAPI drops silently everything between a node and the control plane.
func (c *Cluster) CutAPI(node int) error {
	side := "{ " + nodeIP(node) + ", " + podCIDR(node) + " }"
	return nft(cutTable + "add rule ip cut into ip saddr " + side + " drop\n" +
		"add rule ip cut outof ip daddr " + side + " drop\n")
}

// Heal ends all cuts.
func (c *Cluster) Heal() error { return nft(cutTable + "delete table ip cut\n") }
