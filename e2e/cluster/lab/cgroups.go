package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies of version 1 that a node gets.
var hierarchies = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"}

// cgroups makes and removes the cluster's cgroups: tak-e2e/NAME, NAME being cp or nN. In version 1 they
// are below those of the process that runs Up, and so within its limits; in version 2 below the root,
// since a cgroup with processes can't give controllers to those below it.
type cgroups struct {
	v2   bool
	base map[string]string // hierarchy → folder of tak-e2e; version 2: one, ""
}

func newCgroups() (*cgroups, error) {
	g := &cgroups{base: map[string]string{}}
	if _, err := os.Stat(cgroupRoot + "/cgroup.controllers"); err == nil {
		g.v2 = true
		g.base[""] = cgroupRoot + "/tak-e2e"
		return g, nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			name = strings.TrimPrefix(name, "name=")
			if slices.Contains(hierarchies, name) {
				g.base[name] = filepath.Join(cgroupRoot, name, parts[2], "tak-e2e")
			}
		}
	}
	return g, nil
}

// make makes the cgroup of a part and returns its folders.
func (g *cgroups) make(name string) ([]string, error) {
	var dirs []string
	for h, base := range g.base {
		for _, dir := range []string{base, filepath.Join(base, name)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			if err := inherit(h, dir); err != nil {
				return nil, err
			}
		}
		dirs = append(dirs, filepath.Join(base, name))
	}
	if g.v2 {
		return dirs, delegate(cgroupRoot, g.base[""], filepath.Join(g.base[""], name))
	}
	return dirs, nil
}

// leave takes the process that waits for a node's pid 1 out of the node's cgroup, once it has made that pid 1: in version 2 a cgroup with
// processes of its own can't give controllers to those below it, as the kubelet wants. The node waits for this.
func (g *cgroups) leave(pid int) error {
	if !g.v2 {
		return nil
	}
	outside := filepath.Join(g.base[""], "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		return err
	}
	for range 200 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return err
		}
		if len(b) > 0 {
			return os.WriteFile(filepath.Join(outside, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("process %d has made no pid 1", pid)
}

// inherit fills a new cpuset of version 1: no process could enter it.
func inherit(hierarchy, dir string) error {
	if hierarchy != "cpuset" {
		return nil
	}
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), f))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f), b, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kubeletNeeds are the controllers of version 2 without which no kubelet starts.
var kubeletNeeds = []string{"cpu", "cpuset", "memory", "pids"}

// delegate gives all controllers from each folder to the next.
func delegate(dirs ...string) error {
	for _, dir := range dirs[:len(dirs)-1] {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for _, c := range kubeletNeeds {
			if !slices.Contains(strings.Fields(string(b)), c) {
				return fmt.Errorf("%s has no cgroup controller %s, which the kubelet needs: %q", dir, c, b)
			}
		}
		for c := range strings.FieldsSeq(string(b)) {
			err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
			if err != nil && slices.Contains(kubeletNeeds, c) {
				return fmt.Errorf("give cgroup controller %s to those below %s (in a container its own processes are in the way): %w", c, dir, err)
			}
		}
	}
	return nil
}

// remove removes the cgroups of a part, or all with "". Processes that were just killed may still be leaving.
func (g *cgroups) remove(name string) error {
	var left error
	for _, base := range g.base {
		left = errors.Join(left, removeTree(filepath.Join(base, name)))
	}
	return left
}

func removeTree(top string) (err error) {
	for range 100 {
		var dirs []string
		_ = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		slices.Reverse(dirs) // those below first
		for _, d := range dirs {
			_ = syscall.Rmdir(d)
		}
		if _, err = os.Stat(top); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("cgroup is left: " + top)
}
