package local

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/csi/mounts/mountstest"
	"tak-os.org/tak-replicated/csi/server"
)

func TestMain(m *testing.M) { os.Exit(mountstest.Run(m)) }

// TestRole drives the role by its sockets: a volume made by CSI, acquired by a
// consumer, refused to the kubelet, and seen in the metrics; and again after a
// restart.
func TestRole(t *testing.T) {
	dir := mountstest.Dir(t)
	c := Config{
		Node: "node-1", Root: filepath.Join(dir, "root"), Socket: filepath.Join(dir, "csi.sock"), KubeletDir: mountstest.Folder(t, dir, "kubelet"),
		ConsumerRoot: filepath.Join(dir, "consumer"), ConsumerSocket: filepath.Join(dir, "consumer.sock"), Proc: "/proc", FolderMode: "0750",
	}
	c.Boot.MetricsAddr = freeAddress(t)
	stop := start(t, c)
	conn, err := server.Dial(c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	v := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	made, err := csi.NewControllerClient(conn).CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "pvc-1", VolumeCapabilities: []*csi.VolumeCapability{v}, CapacityRange: &csi.CapacityRange{RequiredBytes: 4096},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made.Volume.VolumeId
	if info, err := os.Stat(filepath.Join(c.Root, "volumes", id)); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("folder %v, error %v", info, err)
	}
	host, err := consumer.Dial(c.ConsumerSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	q := consumer.Request{Volume: id, Consumer: "host"}
	a, err := host.Acquire(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.Path); err != nil {
		t.Error(err)
	}
	stop()
	defer start(t, c)()
	publish := &csi.NodePublishVolumeRequest{VolumeId: id, TargetPath: filepath.Join(c.KubeletDir, "mount"), VolumeCapability: v}
	if _, err := csi.NewNodeClient(conn).NodePublishVolume(t.Context(), publish); err == nil || !strings.Contains(err.Error(), "acquired by a consumer: host") {
		t.Errorf("publication of an acquired volume: %v", err)
	}
	for path, want := range map[string]string{
		"/metrics": `tak_replicated_local_volumes{state="acquired"} 1`,
		"/healthz": "ok", "/readyz": "ok",
	} {
		if got := get(t, "http://"+c.Boot.MetricsAddr+path); !strings.Contains(got, want) {
			t.Errorf("%s lacks %q: %.2000s", path, want, got)
		}
	}
	if got := get(t, "http://"+c.Boot.MetricsAddr+"/metrics"); !strings.Contains(got, `tak_replicated_call_duration_seconds_count{code="FailedPrecondition",method="NodePublishVolume",service="csi"} 1`) {
		t.Error("calls are not counted")
	}
	if err := host.Release(t.Context(), q); err != nil {
		t.Error(err)
	}
}

// start runs the role; the returned function ends it.
func start(t *testing.T, c Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- Run(ctx, c, zap.NewNop(), func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); r, err = http.Get(url) {
		time.Sleep(time.Millisecond) // it listens a moment after the sockets
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRefusedConfigurations: one line, with the flag.
func TestRefusedConfigurations(t *testing.T) {
	ok := Config{Node: "n", Root: "/r", KubeletDir: "/k", Proc: "/proc", FolderMode: "0755"}
	for flag, change := range map[string]func(*Config){
		"--node-name":           func(c *Config) { c.Node = "A" },
		"--root":                func(c *Config) { c.Root = "r" },
		"--kubelet-dir":         func(c *Config) { c.KubeletDir = "" },
		"--proc":                func(c *Config) { c.Proc = "proc" },
		"--folder-mode":         func(c *Config) { c.FolderMode = "1777" },
		"--consumer-mount-root": func(c *Config) { c.ConsumerRoot = "c" },
	} {
		c := ok
		change(&c)
		if err := Run(t.Context(), c, zap.NewNop(), nil); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
