package mountowner

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

// TestMarksOfInstancesThatAreGone has Pods come and go: the marks of those that are gone are removed, and of nobody who might take mounts back.
func TestMarksOfInstancesThatAreGone(t *testing.T) {
	dir := t.TempDir()
	c := Config{Socket: filepath.Join(dir, "run", "s"), KubeletDir: filepath.Join(dir, "kubelet"), TrustDir: filepath.Join(dir, "trust"), Instance: "own"}
	must(t, os.MkdirAll(filepath.Dir(c.Socket), 0o755))
	marks := func() (all []string) {
		t.Helper()
		left, err := os.ReadDir(filepath.Dir(c.Socket))
		must(t, err)
		for _, l := range left {
			all = append(all, l.Name())
		}
		return all
	}
	all := []string{"other.handed-over.gone", "s.handed-over.before", "s.handed-over.gone", "s.handed-over.own", "s.keeper"}
	for _, name := range all {
		must(t, os.WriteFile(filepath.Join(filepath.Dir(c.Socket), name), nil, 0o600))
	}
	must(t, os.MkdirAll(filepath.Join(c.KubeletDir, podsFolder, "before"), 0o755))
	must(t, c.prepare(zap.NewNop()))
	if got := marks(); !slices.Equal(got, all) {
		t.Errorf("the own Pod has no folder, so folders don't say who is gone: %q are left", got)
	}
	must(t, os.MkdirAll(filepath.Join(c.KubeletDir, podsFolder, "own"), 0o755))
	must(t, c.prepare(zap.NewNop()))
	if got, want := marks(), slices.Delete(slices.Clone(all), 2, 3); !slices.Equal(got, want) {
		t.Errorf("left are %q, wanted are %q", got, want)
	}
	c.Instance = ""
	must(t, c.prepare(zap.NewNop()))
}

// TestKeeperReady has a keeper wait for the mounts of another one that does not hand them over, and one that begins with none: each says so.
func TestKeeperReady(t *testing.T) {
	for name, c := range map[string]struct {
		before bool // another keeper
		code   int
		says   string
	}{
		"waits":  {true, http.StatusServiceUnavailable, "has not handed its mounts over yet"},
		"begins": {false, http.StatusOK, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			free, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			cfg := Config{Socket: filepath.Join(t.TempDir(), "s"), Instance: "next", TakeOver: true}
			cfg.Boot.MetricsAddr = free.Addr().String()
			must(t, free.Close())
			over := func() error { return nil }
			if c.before { // it never accepts
				l, err := net.Listen("unixpacket", cfg.keeperSocket())
				must(t, err)
				over = l.Close
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- Keep(ctx, cfg, zap.NewNop()) }()
			defer func() {
				cancel()
				must(t, over())
				<-ended
			}()
			get := func(path string) (int, string) {
				resp, err := http.Get("http://" + cfg.Boot.MetricsAddr + path)
				if err != nil {
					return 0, err.Error()
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				return resp.StatusCode, string(body)
			}
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				code, body := get("/readyz")
				if code == c.code && strings.Contains(body, c.says) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("/readyz: %d %s", code, body)
				}
			}
			if code, body := get("/healthz"); code != http.StatusOK {
				t.Errorf("/healthz: %d %s", code, body)
			}
			if code, body := get("/metrics"); code != http.StatusOK || !strings.Contains(body, "go_goroutines") {
				t.Errorf("/metrics: %d %.200s", code, body)
			}
		})
	}
}
