package lab

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// needs are what the kernel must have, and the module that brings it where it is not built in.
var needs = []struct {
	module string
	there  func() bool
}{
	{"overlay", hasFilesystem("overlay")},
	{"fuse", func() bool { return exists("/dev/fuse") }},
	{"br_netfilter", func() bool { return exists("/proc/sys/net/bridge/bridge-nf-call-iptables") }},
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func hasFilesystem(name string) func() bool {
	return func() bool {
		b, err := os.ReadFile("/proc/filesystems")
		return err == nil && strings.Contains(string(b), "\t"+name+"\n")
	}
}

// prepareKernel loads modules that are missing. Others are loaded by the kernel itself when they are asked for.
func prepareKernel() error {
	for _, n := range needs {
		if n.there() {
			continue
		}
		out, err := exec.Command("modprobe", n.module).CombinedOutput()
		if !n.there() {
			return fmt.Errorf("this kernel has no %s, and modprobe does not bring it: %v: %s", n.module, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
