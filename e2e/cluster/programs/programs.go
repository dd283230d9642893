package programs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Program names one program.
type Program string

// The programs. Kube is etcd, the control plane, kubelet, kube-proxy and kubectl in
// one file, chosen by the first argument.
const (
	Kube        Program = "kube"
	Containerd  Program = "containerd"
	Shim        Program = "containerd-shim-runc-v2"
	Ctr         Program = "ctr"
	Bridge      Program = "bridge"
	Loopback    Program = "loopback"
	Portmap     Program = "portmap"
	HostLocal   Program = "host-local"
	CoreDNS     Program = "coredns"
	Provisioner Program = "csi-provisioner"
	// StorageSuite is Kubernetes' own storage tests, and Agnhost what their Pods run.
	StorageSuite Program = "storagesuite"
	Agnhost      Program = "agnhost"
)

// recipe says how a program is built.
type recipe struct {
	module  string // folder below modules
	pkg     string // package to build
	ldflags string
	tags    string
}

const (
	kubeVersion       = "1.36.3"
	containerdVersion = "2.2.9"
	versionPackage    = "k8s.io/component-base/version"
	containerdModule  = "github.com/containerd/containerd/v2"
	cniPlugins        = "github.com/containernetworking/plugins/plugins"
	// Snapshotters that need other libraries or tools are left out.
	containerdTags = "no_btrfs no_devmapper no_zfs"
)

var recipes = map[Program]recipe{
	Kube: {"kube", ".", "-X " + versionPackage + ".gitVersion=v" + kubeVersion +
		" -X " + versionPackage + ".gitMajor=1 -X " + versionPackage + ".gitMinor=36" +
		" -X " + versionPackage + ".gitTreeState=clean -X " + versionPackage + ".gitCommit=0000000000000000000000000000000000000000" +
		" -X " + versionPackage + ".buildDate=1970-01-01T00:00:00Z", ""},
	Containerd:   {"containerd", containerdModule + "/cmd/containerd", "-X " + containerdModule + "/version.Version=" + containerdVersion, containerdTags},
	Shim:         {"containerd", containerdModule + "/cmd/containerd-shim-runc-v2", "", containerdTags},
	Ctr:          {"containerd", containerdModule + "/cmd/ctr", "", containerdTags},
	Bridge:       {"cni", cniPlugins + "/main/bridge", "", ""},
	Loopback:     {"cni", cniPlugins + "/main/loopback", "", ""},
	Portmap:      {"cni", cniPlugins + "/meta/portmap", "", ""},
	HostLocal:    {"cni", cniPlugins + "/ipam/host-local", "", ""},
	CoreDNS:      {"coredns", ".", "", ""},
	Provisioner:  {"provisioner", "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", "-X main.version=v6.4.0", ""},
	StorageSuite: {"storagesuite", ".", "-X " + versionPackage + ".gitVersion=v" + kubeVersion, ""},
	Agnhost:      {"storagesuite", "k8s.io/kubernetes/test/images/agnhost", "", ""},
}

// Logf reports progress.
type Logf func(format string, args ...any)

// Path returns the program's file, and builds it first if the cache does not have
// it. A first build takes up to some minutes.
func Path(ctx context.Context, p Program, logf Logf) (string, error) {
	r, ok := recipes[p]
	if !ok {
		panic("no recipe for program " + string(p))
	}
	if given := os.Getenv("TAK_E2E_PROGRAMS"); given != "" {
		return findGiven(given, p)
	}
	module, err := moduleDir(r.module)
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	digest, err := r.digest(module)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, string(p)+"-"+digest)
	file := filepath.Join(dir, string(p))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	start := time.Now()
	logf("building %s", p)
	if err := r.build(ctx, module, file); err != nil {
		return "", fmt.Errorf("build %s: %w", p, err)
	}
	logf("built %s in %s", p, time.Since(start).Round(time.Second))
	return file, nil
}

// CacheDir is the folder that built programs are kept in.
func CacheDir() (string, error) {
	if dir := os.Getenv("TAK_E2E_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for built programs, set TAK_E2E_CACHE: %w", err)
	}
	return filepath.Join(dir, "tak-replicated", "e2e"), nil
}

func findGiven(dir string, p Program) (string, error) {
	for _, below := range []string{"", "bin", "cnibin", "csibin"} {
		file := filepath.Join(dir, below, string(p))
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return filepath.Abs(file)
		}
	}
	return "", fmt.Errorf("TAK_E2E_PROGRAMS: %s has no program %s", dir, p)
}

// moduleDir finds a nested module beside this source file.
func moduleDir(name string) (string, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(self) {
		return "", errors.New("the program was built without its source's path (-trimpath): third-party modules can't be found")
	}
	dir := filepath.Join(filepath.Dir(self), "..", "modules", name)
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return "", err
	}
	return dir, nil
}

// Unoptimised programs are slower, but build in half of the time.
var buildFlags = []string{"-trimpath", "-gcflags=all=-N -l"}

func (r recipe) digest(module string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, buildFlags, r)
	err := filepath.WalkDir(module, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		fmt.Fprintln(h, d.Name(), len(b))
		h.Write(b)
		return nil
	})
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), err
}

func (r recipe) build(ctx context.Context, module, file string) error {
	args := append([]string{"build"}, buildFlags...)
	args = append(args, "-ldflags", "-s -w "+r.ldflags, "-tags", r.tags, "-o", file+".new", r.pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	// Static programs: they also run in images that hold nothing else. The folder for temporary files may
	// be a small one in memory (csi/mounts/mountstest), where Kubernetes does not fit.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false -mod=readonly", "GOTMPDIR="+filepath.Dir(file))
	// A test that is killed leaves no build behind. The signal comes when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, tail(out, 4000))
	}
	return os.Rename(file+".new", file)
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// lock takes a lock on a file, waiting for it.
func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { _ = f.Close() }, nil
}
