package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// part is the control plane or a node: a pid namespace whose pid 1 is a script.
type part struct {
	name    string // cp, n1, n2...
	netns   string
	unshare []string
	script  []string // its file below scripts, and arguments
}

func (c *Cluster) controlPlane() part {
	return part{"cp", hub, []string{"--mount", "--pid"}, []string{"control-plane.sh", c.dir}}
}

func (c *Cluster) node(i int) part {
	return part{NodeName(i), nodeNetns(i), []string{"--mount", "--uts", "--ipc", "--pid", "--cgroup"},
		[]string{"node-root.sh", c.dir, strconv.Itoa(i), nodeIP(i), podCIDR(i)}}
}

func (c *Cluster) pidFile(name string) string { return filepath.Join(c.dir, "pids", name) }

// start starts a part. The noted process is unshare, whose only child is the pid 1.
func (c *Cluster) start(p part) error {
	dirs, err := c.cgroups.make(p.name)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(c.dir, "logs", p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	args := append([]string{c.script("enter.sh")}, dirs...)
	args = append(args, "--", "nsenter", "--net=/run/netns/"+p.netns, "unshare")
	args = append(args, p.unshare...)
	args = append(args, "--fork", "--kill-child", "bash", c.script(p.script[0]))
	cmd := exec.Command("bash", append(args, p.script[1:]...)...)
	// A folder for temporary files that the machine has is none of a node's: its runc would find no place for them.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	go func() { _ = cmd.Wait() }() // reaped if this process is still there then
	if err := os.WriteFile(c.pidFile(p.name), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return err
	}
	if slices.Contains(p.unshare, "--cgroup") {
		return c.cgroups.leave(pid)
	}
	return nil
}

var errNotRunning = errors.New("it is not running")

// initPid is the part's pid 1 as the machine sees it.
func (c *Cluster) initPid(name string) (int, error) {
	outer, err := c.outerPid(name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outer, outer))
	if children := strings.Fields(string(b)); err == nil && len(children) > 0 {
		return strconv.Atoi(children[0])
	}
	return 0, fmt.Errorf("%s: %w", name, errNotRunning)
}

// outerPid is the part's process that was noted, if it still is that.
func (c *Cluster) outerPid(name string) (int, error) {
	b, err := os.ReadFile(c.pidFile(name))
	if err != nil {
		return 0, errNotRunning
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		return 0, err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(line), c.dir+"/scripts/") {
		return 0, errNotRunning
	}
	return pid, nil
}

// end kills a part at once and waits until its processes are gone.
func (c *Cluster) end(name string) error {
	outer, err := c.outerPid(name)
	if errors.Is(err, errNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	if pid, err := c.initPid(name); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for range 600 {
		if _, err := c.outerPid(name); err != nil {
			return os.Remove(c.pidFile(name))
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("end %s: process %d does not end", name, outer)
}

// Kill is a power cut of a node: all of its processes end at the same time.
func (c *Cluster) Kill(node int) error {
	if err := c.end(NodeName(node)); err != nil {
		return err
	}
	// What a boot would also take away: cgroups, links of Pods, packet filters.
	if err := c.cgroups.remove(NodeName(node)); err != nil {
		return err
	}
	ns := nodeNetns(node)
	out, err := exec.Command("ip", "-n", ns, "-o", "link").Output()
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSuffix(strings.Fields(line)[1], ":"), "@")
		if name != "lo" && name != "eth0" {
			_ = run("ip -n " + ns + " link del " + name) // a peer goes with its link
		}
	}
	return run("ip netns exec " + ns + " nft flush ruleset")
}

// Add boots one more node, and returns its number. It does not wait until the node is Ready.
func (c *Cluster) Add() (node int, err error) {
	node = c.nodes + 1
	if node > mostNodes {
		return 0, fmt.Errorf("a cluster has %d nodes at most", mostNodes)
	}
	if err := connect(node); err != nil {
		return 0, err
	}
	c.nodes = node
	return node, errors.Join(c.noteCount(), c.start(c.node(node)))
}

// Remove cuts the power of the node that was added last, for good, and takes its disk away.
func (c *Cluster) Remove(node int) error {
	if node != c.nodes {
		return fmt.Errorf("node %d is not the last of %d", node, c.nodes)
	}
	if err := c.Kill(node); err != nil {
		return err
	}
	lines := []string{"ip netns del " + nodeNetns(node), "ip -n " + hub + " route del " + podCIDR(node)}
	for j := 1; j < node; j++ {
		lines = append(lines, "ip -n "+nodeNetns(j)+" route del "+podCIDR(node))
	}
	if err := runAll(lines); err != nil {
		return err
	}
	c.nodes--
	return errors.Join(c.noteCount(), os.RemoveAll(filepath.Join(c.dir, "nodes", NodeName(node))))
}

// Start boots a node that was killed.
func (c *Cluster) Start(node int) error {
	if _, err := c.outerPid(NodeName(node)); err == nil {
		return fmt.Errorf("node %s runs already", NodeName(node))
	}
	return c.start(c.node(node))
}

// Exec returns a command that runs in the node's namespaces.
func (c *Cluster) Exec(ctx context.Context, node int, args ...string) (*exec.Cmd, error) {
	pid, err := c.initPid(NodeName(node))
	if err != nil {
		return nil, err
	}
	words := []string{"-t", strconv.Itoa(pid), "-m", "-n", "-u", "-i", "-p", "-C", "/usr/bin/env", "PATH=/opt/cluster/bin:/usr/sbin:/usr/bin"}
	return exec.CommandContext(ctx, "nsenter", append(words, args...)...), nil
}

// Root is the node's disk as the machine sees it, without what is mounted in the node.
func (c *Cluster) Root(node int) string { return filepath.Join(c.dir, "nodes", NodeName(node), "root") }

// Daemon tells a node's daemon (containerd, kubelet, kube-proxy) to stop, start, kill or crash.
func (c *Cluster) Daemon(node int, verb, daemon string) error {
	pid, err := c.initPid(NodeName(node))
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/root/run/control", pid), []byte(verb+" "+daemon+"\n"), 0)
}

// ControlPlane tells a daemon of the control plane (etcd, apiserver, controller-manager, scheduler) the same.
func (c *Cluster) ControlPlane(verb, daemon string) error {
	return os.WriteFile(filepath.Join(c.dir, "control"), []byte(verb+" "+daemon+"\n"), 0)
}
