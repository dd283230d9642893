package lab

import (
	"fmt"
	"os/exec"
	"strings"
)

const (
	hub         = "tak-e2e-hub"
	hubIP       = "10.200.0.1"
	serviceCIDR = "10.96.0.0/16"
	serviceAPI  = "10.96.0.1"
	dnsIP       = "10.96.0.10"
)

// NodeName is node i's name in the cluster; i counts from 1.
func NodeName(i int) string { return fmt.Sprintf("n%d", i) }

func nodeNetns(i int) string { return fmt.Sprintf("tak-e2e-n%d", i) }
func nodeIP(i int) string    { return fmt.Sprintf("10.200.0.%d", 10+i) }
func podCIDR(i int) string   { return fmt.Sprintf("10.244.%d.0/24", i) }
func uplink(i int) string    { return fmt.Sprintf("veth-n%d", i) }

// run runs a command given as one line of words.
func run(line string) error {
	words := strings.Fields(line)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func runAll(lines []string) error {
	for _, l := range lines {
		if err := run(l); err != nil {
			return err
		}
	}
	return nil
}

// The nodes' frames pass the bridge's netfilter: kube-proxy and Cut need it.
const forward = " sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1"

// makeNetwork makes the hub, its bridge, and a namespace a node with a link to it.
func (c *Cluster) makeNetwork() error {
	lines := []string{
		"ip netns add " + hub,
		"ip -n " + hub + " link set lo up",
		"ip -n " + hub + " link add br0 type bridge",
		"ip -n " + hub + " addr add " + hubIP + "/24 dev br0",
		"ip -n " + hub + " link set br0 up",
		"ip netns exec " + hub + forward,
	}
	if err := runAll(lines); err != nil {
		return err
	}
	for i := 1; i <= c.nodes; i++ {
		if err := connect(i); err != nil {
			return err
		}
	}
	return run("ip -n " + hub + " route add " + serviceCIDR + " via " + nodeIP(1))
}

// connect makes a node's network, with routes to and from the Pods of all nodes before it.
func connect(i int) error {
	ns := nodeNetns(i)
	lines := []string{
		"ip netns add " + ns,
		"ip link add " + uplink(i) + " netns " + hub + " type veth peer name eth0 netns " + ns,
		"ip -n " + hub + " link set " + uplink(i) + " master br0 up",
		"ip -n " + ns + " link set lo up",
		"ip -n " + ns + " addr add " + nodeIP(i) + "/24 dev eth0",
		"ip -n " + ns + " link set eth0 up",
		"ip -n " + ns + " route add default via " + hubIP,
		"ip netns exec " + ns + forward,
		"ip -n " + hub + " route add " + podCIDR(i) + " via " + nodeIP(i),
	}
	for j := 1; j < i; j++ {
		lines = append(lines,
			"ip -n "+ns+" route add "+podCIDR(j)+" via "+nodeIP(j),
			"ip -n "+nodeNetns(j)+" route add "+podCIDR(i)+" via "+nodeIP(i))
	}
	return runAll(lines)
}

// removeNetwork removes every namespace of a cluster.
func removeNetwork() error {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		if name := strings.Fields(line); len(name) > 0 && strings.HasPrefix(name[0], "tak-e2e-") {
			if err := run("ip netns del " + name[0]); err != nil {
				return err
			}
		}
	}
	return nil
}
