package server

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// dialEnv makes the test binary a caller of the socket that it names.
const dialEnv = "SERVER_TEST_DIAL"

func TestMain(m *testing.M) {
	if socket := os.Getenv(dialEnv); socket != "" {
		os.Exit(callAsStranger(socket))
	}
	os.Exit(m.Run())
}

func callAsStranger(socket string) int {
	conn, err := Dial(socket)
	if err != nil {
		return 3
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}); err != nil {
		return 4
	}
	return 0
}

// start serves an identity until the test ends.
func start(t *testing.T, log *zap.Logger, observe Observer, id csi.IdentityServer) (socket string, stop func() error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "server")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "csi.sock")
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := New(log, observe)
	csi.RegisterIdentityServer(s, id)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, s) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return socket, stop
}

func client(t *testing.T, socket string) csi.IdentityClient {
	t.Helper()
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return csi.NewIdentityClient(conn)
}

func TestIdentity(t *testing.T) {
	reason := errors.New("not yet")
	id := &Identity{
		Driver:       "x.example.org",
		Capabilities: []*csi.PluginCapability{Capability(csi.PluginCapability_Service_CONTROLLER_SERVICE)},
		Ready:        func() error { return reason },
	}
	socket, stop := start(t, zap.NewNop(), nil, id)
	c := client(t, socket)
	info, err := c.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.Name != "x.example.org" || info.VendorVersion == "" {
		t.Errorf("info %v, error %v", info, err)
	}
	caps, err := c.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	if err != nil || len(caps.Capabilities) != 1 || caps.Capabilities[0].GetService().Type != csi.PluginCapability_Service_CONTROLLER_SERVICE {
		t.Errorf("capabilities %v, error %v", caps, err)
	}
	if p, err := c.Probe(t.Context(), &csi.ProbeRequest{}); err != nil || p.Ready.Value {
		t.Errorf("probe %v, error %v", p, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// shaky fails in every way a handler can.
type shaky struct {
	csi.UnimplementedIdentityServer
}

func (shaky) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) { panic("planted") }

func (shaky) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return nil, errors.New("plain" + strings.Repeat("é", 5000))
}

func (shaky) GetPluginCapabilities(ctx context.Context, _ *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return nil, context.DeadlineExceeded
}

func TestCallsThatFail(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	var mu sync.Mutex
	var seen []string
	socket, _ := start(t, zap.New(core), func(method, code string, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, method+" "+code)
	}, shaky{})
	c := client(t, socket)
	_, err := c.Probe(t.Context(), &csi.ProbeRequest{})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "planted") {
		t.Errorf("a panic is answered with %v", err)
	}
	if _, err := c.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{}); status.Code(err) != codes.Unknown || len(err.Error()) > 1000 {
		t.Errorf("a plain error is answered with %v", err)
	}
	if _, err := c.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a deadline is answered with %v", err)
	}
	if n := logs.FilterMessage("handler panicked").Len(); n != 1 {
		t.Errorf("%d panics are logged", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(seen, ", "); got != "Probe Internal, GetPluginInfo Unknown, GetPluginCapabilities DeadlineExceeded" {
		t.Errorf("observed %s", got)
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	served := filepath.Join(dir, "served")
	l, err := Listen(served)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]string{
		"relative":                         "not an absolute path",
		"/" + strings.Repeat("x", 120):     "14 bytes too long",
		plain:                              "not a socket",
		served:                             "served by another process",
		filepath.Join(plain, "below/sock"): "not a directory",
	} {
		if l, err := Listen(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: listener %v, error %v; want %q", path, l, err, want)
		}
	}
	dead := filepath.Join(dir, "made", "dead")
	for range 2 {
		l, err := Listen(dead)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
	if info, err := os.Stat(dead); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info, err)
	}
}

// TestStrangersAreTurnedAway calls as another user, past the file's mode.
func TestStrangersAreTurnedAway(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root")
		}
		t.Skip("needs root to call as another user")
	}
	socket, _ := start(t, zap.NewNop(), nil, &Identity{Driver: "x"})
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	// The test's program lies where only root may look: run a copy.
	exe := filepath.Join(filepath.Dir(socket), "caller")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]int{0: 0, 65534: 4} {
		cmd := exec.Command(exe)
		cmd.Dir = "/"
		cmd.Env = []string{dialEnv + "=" + socket}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("user %d: exit code %d, want %d", uid, got, want)
		}
	}
}

// TestPeer shows that a handler can ask who called.
func TestPeer(t *testing.T) {
	asked := make(chan Peer, 1)
	socket, _ := start(t, zap.NewNop(), nil, asker{asked: asked})
	if _, err := client(t, socket).Probe(t.Context(), &csi.ProbeRequest{}); err != nil {
		t.Fatal(err)
	}
	if who := <-asked; who.Pid != int32(os.Getpid()) || who.Uid != uint32(os.Geteuid()) {
		t.Errorf("caller %+v", who.Ucred)
	}
	if _, ok := PeerFrom(t.Context()); ok {
		t.Error("a context without a call has a caller")
	}
}

type asker struct {
	csi.UnimplementedIdentityServer
	asked chan Peer
}

func (a asker) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	who, ok := PeerFrom(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "no caller")
	}
	a.asked <- who
	return &csi.ProbeResponse{}, nil
}

// TestOnlyUnixSockets refuses a caller over TCP.
func TestOnlyUnixSockets(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, _, err := PeerCredentials().ServerHandshake(a); err == nil {
		t.Error("a pipe was taken for a Unix socket")
	}
}
