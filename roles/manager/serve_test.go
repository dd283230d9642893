package manager

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/roles/boot"
)

// TestServes runs the whole role: it answers CSI on its socket, says how it is and what it counts, acts once it is elected, and is
// not ready while the cluster has an older resource definition.
func TestServes(t *testing.T) {
	w := newWorld(t, 1)
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	at := probe.Addr().String()
	w.must(probe.Close())
	cfg := Config{
		Socket: filepath.Join(t.TempDir(), "csi.sock"), Namespace: api.DefaultNamespace, ClusterDomain: api.DefaultClusterName, Kubeconfig: w.c.Kubeconfig,
		Identity: "only", Runtime: runtimeShared, ControllerImage: "ignored:1", Resync: time.Minute, Boot: boot.Config{MetricsAddr: at},
	}
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done, up := make(chan error, 1), make(chan string, 1)
		go func() { done <- Run(ctx, cfg, w.logger(), func(id string) { up <- id }) }()
		select {
		case <-up:
		case err := <-done:
			t.Fatal(err)
		}
		return func() {
			cancel()
			w.must(<-done)
		}
	}
	says := func(path string, code int, text string) {
		t.Helper()
		var got string
		kubetest.Eventually(t, 30*time.Second, path+" has "+text, func() bool {
			resp, err := http.Get("http://" + at + path)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			got = fmt.Sprint(resp.StatusCode, " ", string(body))
			return resp.StatusCode == code && strings.Contains(got, text)
		})
	}
	stop := start()
	says("/healthz", http.StatusOK, "ok")
	says("/readyz", http.StatusOK, "ok")
	says("/metrics", http.StatusOK, "tak_replicated_manager_leading 1")
	conn, err := server.Dial(cfg.Socket)
	w.must(err)
	defer conn.Close()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.Name != replicated.Driver {
		t.Errorf("plugin %+v, error %v", info, err)
	}
	p, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{})
	if err != nil || !p.Ready.GetValue() {
		t.Errorf("probe %+v, error %v", p, err)
	}
	_, err = csi.NewControllerClient(conn).CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "vol"})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a request without anything: %v", err)
	}
	stop()

	now := string(kubetest.CRD(t))
	defer w.c.InstallCRD([]byte(now))
	w.c.InstallCRD([]byte(strings.ReplaceAll(strings.ReplaceAll(now, " accessMode:\n", " accessModeOld:\n"), "- accessMode\n", "- accessModeOld\n")))
	stop = start()
	says("/readyz", http.StatusServiceUnavailable, "schema: ")
	says("/healthz", http.StatusOK, "ok")
	stop()
}
