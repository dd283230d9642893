package registrar

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"tak-os.org/tak-replicated/csi/server"
)

// serve serves an identity at a socket until the test ends or stop is called.
func serve(t *testing.T, socket, name string) (stop func()) {
	t.Helper()
	l, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(zap.NewNop(), nil)
	csi.RegisterIdentityServer(s, &server.Identity{Driver: name})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, s) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// run runs a registrar until the test ends.
func run(t *testing.T, r *Registrar) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// kubelet speaks to a registration socket as the kubelet's plugin watcher does.
func kubelet(t *testing.T, socket string, verdict *registration.RegistrationStatus) *registration.PluginInfo {
	t.Helper()
	conn, err := server.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := registration.NewRegistrationClient(conn)
	info, err := c.GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.NotifyRegistrationStatus(t.Context(), verdict); err != nil {
		t.Fatal(err)
	}
	return info
}

// TestRegistration takes two drivers in; one is refused at first, and does not
// disturb the other.
func TestRegistration(t *testing.T) {
	dir := folder(t)
	registry := filepath.Join(dir, "plugins_registry")
	regs := map[string]*Registrar{}
	for _, name := range []string{"one.example.org", "two.example.org"} {
		socket := filepath.Join(dir, name+".sock")
		serve(t, socket, name)
		regs[name] = New(Driver{socket, "/kubelet/plugins/" + name + "/csi.sock"}, registry, time.Millisecond, zap.NewNop())
		run(t, regs[name])
	}
	one, two := filepath.Join(registry, "one.example.org-reg.sock"), filepath.Join(registry, "two.example.org-reg.sock")
	await(t, "no sockets", func() bool { return exists(one) && exists(two) })
	if err := regs["one.example.org"].Registered(); !errors.Is(err, errWaiting) {
		t.Errorf("before the kubelet came: %v", err)
	}
	info := kubelet(t, one, &registration.RegistrationStatus{PluginRegistered: true})
	if info.Type != "CSIPlugin" || info.Name != "one.example.org" || info.Endpoint != "/kubelet/plugins/one.example.org/csi.sock" ||
		strings.Join(info.SupportedVersions, " ") != "1.0.0" {
		t.Errorf("info %v", info)
	}
	if err := regs["one.example.org"].Registered(); err != nil {
		t.Errorf("registered: %v", err)
	}

	kubelet(t, two, &registration.RegistrationStatus{Error: "driver is too old"})
	await(t, "the refused driver is not offered again", func() bool {
		return errors.Is(regs["two.example.org"].Registered(), errWaiting) && exists(two)
	})
	kubelet(t, two, &registration.RegistrationStatus{PluginRegistered: true})
	for name, r := range regs {
		if err := r.Registered(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusalIsSaid: until the next attempt the kubelet's words are the state.
func TestRefusalIsSaid(t *testing.T) {
	dir := folder(t)
	socket := filepath.Join(dir, "csi.sock")
	serve(t, socket, "one.example.org")
	r := New(Driver{socket, socket}, dir, time.Hour, zap.NewNop())
	run(t, r)
	reg := filepath.Join(dir, "one.example.org-reg.sock")
	await(t, "no socket", func() bool { return exists(reg) })
	kubelet(t, reg, &registration.RegistrationStatus{Error: "driver is too old"})
	await(t, "the socket of a refused driver stays", func() bool { return !exists(reg) })
	if err := r.Registered(); err == nil || !strings.Contains(err.Error(), "refuses driver one.example.org: driver is too old") {
		t.Errorf("state %v", err)
	}
}

// TestDriverThatIsNotThere is not offered, until it is.
func TestDriverThatIsNotThere(t *testing.T) {
	dir := folder(t)
	socket, registry := filepath.Join(dir, "csi.sock"), filepath.Join(dir, "registry")
	r := New(Driver{socket, socket}, registry, time.Millisecond, zap.NewNop())
	run(t, r)
	await(t, "no reason is given", func() bool {
		err := r.Registered()
		return err != nil && strings.Contains(err.Error(), "ask the driver for its name")
	})
	if exists(registry) {
		t.Error("a driver is offered that is not there")
	}
	serve(t, socket, "late.example.org")
	await(t, "the driver is not offered", func() bool { return exists(filepath.Join(registry, "late.example.org-reg.sock")) })
}

// TestHostileNames: a driver's name is a file's.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"../x", "a/b", "", ".", "UPPER"} {
		dir := folder(t)
		socket := filepath.Join(dir, "csi.sock")
		stop := serve(t, socket, name)
		err := New(Driver{socket, socket}, dir, time.Hour, zap.NewNop()).attempt(t.Context())
		if err == nil || !strings.Contains(err.Error(), "is not a domain name") {
			t.Errorf("%q: %v", name, err)
		}
		stop()
	}
}

// TestEndTakesTheSocketAway, so that the kubelet forgets a driver that is uninstalled.
func TestEndTakesTheSocketAway(t *testing.T) {
	dir := folder(t)
	socket := filepath.Join(dir, "csi.sock")
	serve(t, socket, "one.example.org")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(Driver{socket, socket}, dir, time.Hour, zap.NewNop()).Run(ctx) }()
	reg := filepath.Join(dir, "one.example.org-reg.sock")
	await(t, "no socket", func() bool { return exists(reg) })
	cancel()
	if err := <-done; err != nil || exists(reg) {
		t.Errorf("error %v, socket there: %v", err, exists(reg))
	}
}
