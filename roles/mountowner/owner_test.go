package mountowner

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/roles/boot"
)

func validSpec() Spec {
	return Spec{
		Mountpoint: "/mnt/v", Volume: "v", Name: "test", Trust: "/trust",
		Members: []string{"1=replica-1@127.0.0.1:1"},
	}
}

func TestSpec(t *testing.T) {
	text, err := json.Marshal(validSpec())
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	want := validSpec()
	if !s.same(&want) {
		t.Errorf("read %+v", s)
	}
	for name, spoil := range map[string]func(*Spec){
		"relative":     func(s *Spec) { s.Mountpoint = "mnt" },
		"unclean":      func(s *Spec) { s.Mountpoint = "/mnt/../x" },
		"root":         func(s *Spec) { s.Mountpoint = "/" },
		"no volume":    func(s *Spec) { s.Volume = "" },
		"no trust":     func(s *Spec) { s.Trust = "" },
		"no name":      func(s *Spec) { s.Name = "" },
		"long name":    func(s *Spec) { s.Name = strings.Repeat("n", 256) },
		"no members":   func(s *Spec) { s.Members = nil },
		"bad member":   func(s *Spec) { s.Members = []string{"x"} },
		"quorum wait":  func(s *Spec) { s.QuorumWaitMs = -1 },
		"many members": func(s *Spec) { s.Members = make([]string, 5) },
	} {
		s := validSpec()
		spoil(&s)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseSpec(text); err == nil {
			t.Errorf("%s: accepted %s", name, text)
		}
		if s.same(&want) {
			t.Errorf("%s: counts as the same mount", name)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	text, err := json.Marshal(validSpec())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSpec(b)
		if err != nil {
			return
		}
		if !filepath.IsAbs(s.Mountpoint) || len(s.Members) == 0 {
			t.Errorf("accepted %+v", s)
		}
	})
}

// serve runs an owner without a keeper behind a socket.
func serve(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	o := NewOwner(client.Limits{QueueOps: 8192}, zap.NewNop())
	ops := (&boot.Config{}).NewOps()
	o.Observe(ops)
	o.metrics = ops.Metrics()
	ctx, cancel := context.WithCancel(context.Background())
	var g boot.Group
	g.Add("mounts", o.Run)
	g.Add("socket", func(ctx context.Context) error { return boot.ServeHTTP(ctx, l, o.Handler()) })
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestAPI(t *testing.T) {
	socket := serve(t)
	c := NewClient(socket)
	ctx := t.Context()
	h, err := c.Health(ctx)
	if err != nil || h.Version != apiVersion || h.PID != os.Getpid() || h.Keeper != 0 || h.Mounts != 0 {
		t.Errorf("health %+v, %v", h, err)
	}
	if list, err := c.Mounts(ctx); err != nil || len(list) != 0 {
		t.Errorf("mounts %v, %v", list, err)
	}
	if err := c.Unmount(ctx, "/mnt/none", false); !errors.Is(err, ErrNotMounted) {
		t.Errorf("unmount what is not mounted: %v", err)
	}
	if _, err := c.Mount(ctx, Spec{}); !boot.IsUsage(err) {
		t.Errorf("empty mount request: %v", err)
	}
	s := validSpec()
	s.Mountpoint, s.Trust = filepath.Join(t.TempDir(), "m"), filepath.Join(t.TempDir(), "none")
	if _, err := c.Mount(ctx, s); err == nil || !strings.Contains(err.Error(), "load credentials") {
		t.Errorf("mount without credentials: %v", err)
	}
	if fi, err := os.Stat(socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", fi.Mode(), err)
	}
}

// TestMetricsAreRelayed asks a keeper for the metrics of its serving process.
func TestMetricsAreRelayed(t *testing.T) {
	keeper := (&boot.Config{}).NewOps()
	keeper.Relay(relayMetrics(serve(t)))
	get := func(o *boot.Ops) (int, string) {
		w := httptest.NewRecorder()
		o.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code, w.Body.String()
	}
	if code, body := get(keeper); code != http.StatusOK || !strings.Contains(body, "go_goroutines") {
		t.Errorf("%d: %s", code, body)
	}
	gone := (&boot.Config{}).NewOps()
	gone.Relay(relayMetrics(filepath.Join(t.TempDir(), "none")))
	if code, body := get(gone); code != http.StatusServiceUnavailable || !strings.Contains(body, "does not answer") {
		t.Errorf("without a serving process %d: %s", code, body)
	}
}

// TestAPIRefuses sends what no client of ours would.
func TestAPIRefuses(t *testing.T) {
	socket := serve(t)
	client := NewClient(socket).http
	for _, r := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", pathMounts, "", http.StatusBadRequest},
		{"POST", pathMounts, "{", http.StatusBadRequest},
		{"POST", pathMounts, strings.Repeat(" ", specBytesMost+1), http.StatusBadRequest},
		{"DELETE", pathMounts, "", http.StatusNotFound},
		{"PUT", pathMounts, "", http.StatusMethodNotAllowed},
		{"GET", "/v2/mounts", "", http.StatusNotFound},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, "http://owner"+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != r.code {
			t.Errorf("%s %s %.20q: %d, want %d: %s", r.method, r.path, r.body, resp.StatusCode, r.code, body)
		}
	}
	// Not HTTP at all.
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("\x00\x01\x02 nonsense\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
		t.Errorf("nonsense is answered with %q", answer)
	}
}

func TestListenUnixReplacesDeadSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(path); err == nil {
		t.Error("took a socket that is served")
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	again, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestPeerUID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if uid, err := peerUID(s); err != nil || uid != uint32(os.Geteuid()) {
		t.Errorf("uid %d, %v", uid, err)
	}
}

func TestHolders(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if found := Holders(dir); len(found) != 0 {
		t.Errorf("holders of an unused folder: %v", found)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := Holders(dir)
	if len(found) != 1 || found[0].PID != os.Getpid() || !strings.HasPrefix(found[0].Has, "fd ") {
		t.Errorf("holders %v", found)
	}
	if found := Holders(dir + "x"); len(found) != 0 {
		t.Errorf("holders of a folder with a longer name: %v", found)
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, socket := range []string{"", "relative", "/" + strings.Repeat("x", SocketPathMost)} {
		c := Config{Socket: socket}
		if err := c.validate(); !boot.IsUsage(err) {
			t.Errorf("socket %.20q: %v", socket, err)
		}
	}
}
