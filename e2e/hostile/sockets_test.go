package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/roles/mountowner"
)

// socket is one that a role serves on a node.
type socket struct {
	name, path string
	role       *role
	// ask asks for something that is always answered.
	ask func(context.Context) error
	// stranger is what a caller would send first.
	stranger string
	conn     *grpc.ClientConn // nil: HTTP
}

// role is a process of the program.
type role struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

const (
	connectionsMost = 1000 // opened at once by one caller
	// askMost is the longest that a caller in good faith may wait meanwhile.
	askMost  = 5 * time.Second
	http2    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	answered = 1000 // bytes that an error may have
)

// TestSockets lets strangers and broken callers loose on every socket of a node, served by real processes. None has
// an API server: what is refused here is refused before anybody asks it.
func TestSockets(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root")
		}
		t.Skip("needs root, to mount and to call as another user")
	}
	all := node(t)
	before := map[*role]int{}
	for _, s := range all {
		s.well(t, "at first")
		before[s.role] = s.role.descriptors(t)
	}
	t.Run("attacks", func(t *testing.T) {
		for _, s := range all {
			t.Run(s.name, func(t *testing.T) { // they mostly wait
				t.Parallel()
				attacks(t, s)
			})
		}
	})
	for r, most := range before {
		for deadline := time.Now().Add(30 * time.Second); r.descriptors(t) > most+20; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s has %d descriptors, before it had %d", r.cmd.Args[1], r.descriptors(t), most)
			}
		}
	}
	t.Run("handles", func(t *testing.T) {
		for _, s := range all {
			if s.conn != nil && strings.HasSuffix(s.name, "CSI") {
				handles(t, s)
			}
		}
	})
	t.Run("keeper", func(t *testing.T) { keeperGoesOn(t, all) })
	for _, s := range all {
		select {
		case <-s.role.ended:
			t.Errorf("%s: the process has ended", s.name)
		default:
		}
	}
}

func attacks(t *testing.T, s socket) {
	for name, attack := range map[string]func(*testing.T, socket){
		"strangers": strangers, "nonsense": nonsense, "oversized": tooLarge, "slow": slowCallers, "crowd": manyCallers,
	} {
		began := time.Now()
		attack(t, s)
		t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond))
		s.well(t, "after "+name)
	}
}

// node starts the roles of a node that have sockets.
func node(t *testing.T) []socket {
	dir, err := os.MkdirTemp("", "sockets")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755)) // strangers may get as far as the sockets
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	must(t, unix.Mount("", dir, "", unix.MS_PRIVATE, ""))
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"kubelet", "registration", "consumer"} {
		must(t, os.Mkdir(at(d), 0o755))
	}
	must(t, os.WriteFile(at("kubeconfig"), []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"users":[{"name":"u","user":{}}]}`), 0o600))
	kubelet := []string{"--kubelet-dir", at("kubelet")}
	csiOf := func(name, path string, r *role) socket {
		conn := dial(t, path)
		return socket{name: name, path: path, role: r, stranger: http2, conn: conn, ask: func(ctx context.Context) error {
			_, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{})
			return err
		}}
	}
	local := start(t, append(kubelet, "local", "--node-name", "node-1", "--root", at("local"), "--socket", at("l.sock"), "--consumer-socket", at("c.sock"), "--consumer-mount-root", at("consumer"))...)
	consumers, err := consumer.Dial(at("c.sock"))
	must(t, err)
	t.Cleanup(func() { consumers.Close() })
	owner := start(t, append(kubelet, "mount-owner", "--socket", at("m.sock"), "--trust-dir", at("trust"))...)
	await(t, at("l.sock"))
	offered := start(t, "registrar", "--csi-socket", at("l.sock"), "--registration-dir", at("registration"))
	offer := filepath.Join(at("registration"), "csi.local.tak-os.org-reg.sock")
	frontend := start(t, append(kubelet, "node", "--node-name", "node-1", "--socket", at("n.sock"), "--owner-socket", at("m.sock"), "--kubeconfig", at("kubeconfig"))...)
	perNode := start(t, append(kubelet, "per-node", "--node-name", "node-1", "--root", at("per-node"), "--socket", at("p.sock"), "--kubeconfig", at("kubeconfig"))...)
	for _, path := range []string{at("c.sock"), at("m.sock"), offer, at("n.sock"), at("p.sock")} {
		await(t, path)
	}
	kept := dial(t, offer)
	return []socket{
		csiOf("local CSI", at("l.sock"), local), csiOf("node CSI", at("n.sock"), frontend), csiOf("per-node CSI", at("p.sock"), perNode),
		{name: "consumers", path: at("c.sock"), role: local, stranger: http2, conn: dial(t, at("c.sock")), ask: func(ctx context.Context) error {
			_, err := consumers.List(ctx)
			return err
		}},
		{name: "registration", path: offer, role: offered, stranger: http2, conn: kept, ask: func(ctx context.Context) error {
			return kept.Invoke(ctx, "/pluginregistration.Registration/GetInfo", &wrapperspb.BytesValue{}, &wrapperspb.BytesValue{})
		}},
		{name: "mount owner", path: at("m.sock"), role: owner, stranger: "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", ask: func(ctx context.Context) error {
			_, err := mountowner.NewClient(at("m.sock")).Health(ctx)
			return err
		}},
	}
}

// start runs a role until the test ends.
func start(t *testing.T, args ...string) *role {
	t.Helper()
	if args[0] == "--kubelet-dir" { // flags come behind the role's name
		args = append([]string{args[2], args[0], args[1]}, args[3:]...)
	}
	r := &role{cmd: exec.Command(devtest.Binary(t), append(args, "--until-stdin-ends", "--log-level", "error")...), ended: make(chan struct{})}
	said := &strings.Builder{}
	r.cmd.Stdout, r.cmd.Stderr = said, said
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := r.cmd.StdinPipe()
	must(t, err)
	must(t, r.cmd.Start())
	go func() {
		_ = r.cmd.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		in.Close()
		select {
		case <-r.ended:
		case <-time.After(20 * time.Second):
			_ = r.cmd.Process.Signal(syscall.SIGQUIT) // it tells where its goroutines are
			select {
			case <-r.ended:
			case <-time.After(5 * time.Second):
				_ = r.cmd.Process.Kill()
				<-r.ended
			}
			t.Errorf("%s does not end", args[0])
		}
		if t.Failed() {
			t.Logf("%s said: %.60000s", args[0], said)
		}
	})
	return r
}

func await(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c, err := server.Dial(path)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// well asks in good faith.
func (s socket) well(t *testing.T, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), askMost)
	defer cancel()
	if err := s.ask(ctx); err != nil {
		t.Errorf("%s, %s: %v", s.name, when, err)
	}
}

func (r *role) descriptors(t *testing.T) int {
	t.Helper()
	found, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
	must(t, err)
	return len(found)
}

// strangers call as another user, past the mode of the file.
func strangers(t *testing.T, s socket) {
	must(t, os.Chmod(s.path, 0o666))
	defer func() { must(t, os.Chmod(s.path, 0o600)) }()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		const nobody = 65534
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
			done <- e
			return
		}
		for range 20 {
			c, err := net.Dial("unix", s.path)
			if err != nil {
				done <- err
				return
			}
			_ = c.SetDeadline(time.Now().Add(askMost))
			_, _ = c.Write([]byte(s.stranger)) // it may be cut off meanwhile
			b, err := io.ReadAll(c)
			c.Close()
			if len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				done <- fmt.Errorf("a stranger is answered with %q, error %v", b, err)
				return
			}
		}
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Errorf("%s: %v", s.name, err)
	}
}

// nonsense sends bytes that mean nothing, some behind a good beginning.
func nonsense(t *testing.T, s socket) {
	dice := rand.NewChaCha8([32]byte{7})
	for i := range 40 {
		c, err := net.Dial("unix", s.path)
		must(t, err)
		b := make([]byte, 4096)
		dice.Read(b)
		if i%2 == 0 {
			_, _ = c.Write([]byte(s.stranger))
		}
		_, _ = c.Write(b) // it may be cut off meanwhile
		c.Close()
	}
	if s.conn == nil {
		return
	}
	// Messages of another type, and methods that nobody has.
	for _, method := range []string{"/csi.v1.Controller/CreateVolume", "/csi.v1.Node/NodePublishVolume", "/tak_replicated.local.consumer.v1.Consumer/Acquire", "/x.y/Z", "/"} {
		err := s.conn.Invoke(t.Context(), method, wrapperspb.Bytes(make([]byte, 1000)), &wrapperspb.BytesValue{})
		if err == nil || len(status.Convert(err).Message()) > answered {
			t.Errorf("%s %s: %v", s.name, method, err)
		}
	}
}

// tooLarge sends more than any request has.
func tooLarge(t *testing.T, s socket) {
	if s.conn == nil {
		for _, path := range []string{"/v1/stage", "/v1/publish"} {
			resp, err := s.put(path, strings.NewReader(strings.Repeat(" ", 1<<20)))
			if err == nil {
				resp.Body.Close()
			}
			if err == nil && resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %v", path, resp.Status)
			}
		}
		return
	}
	err := s.conn.Invoke(t.Context(), "/csi.v1.Identity/Probe", wrapperspb.Bytes(make([]byte, 8<<20)), &wrapperspb.BytesValue{})
	if code := status.Code(err); code != codes.ResourceExhausted && code != codes.Unimplemented {
		t.Errorf("%s: 8 MiB are answered with %v", s.name, err)
	}
}

func (s socket) put(path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPut, "http://owner"+path, body)
	if err != nil {
		return nil, err
	}
	c := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", s.path)
	}}}
	return c.Do(req)
}

// slowCallers begin and don't go on.
func slowCallers(t *testing.T, s socket) {
	var all []net.Conn
	for i := range 100 {
		c, err := net.Dial("unix", s.path)
		must(t, err)
		defer c.Close()
		begin := s.stranger[:len(s.stranger)/2]
		if s.conn == nil && i%2 == 0 {
			begin = "PUT /v1/stage HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"
		}
		_, err = c.Write([]byte(begin))
		must(t, err)
		all = append(all, c)
	}
	s.well(t, "while others are slow")
	for _, c := range all {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: a caller that does not go on stays", s.name)
		}
	}
}

// manyCallers come all at once.
func manyCallers(t *testing.T, s socket) {
	for range connectionsMost {
		c, err := net.Dial("unix", s.path)
		must(t, err)
		defer c.Close()
	}
	s.well(t, fmt.Sprintf("beside %d connections", connectionsMost))
}

// handles are names that are no volume's, in every call that has one.
func handles(t *testing.T, s socket) {
	mount := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	n := csi.NewNodeClient(s.conn)
	ctx := t.Context()
	long := strings.Repeat("a", 10<<10)
	for _, h := range []string{"", ".", "..", "../x", "a/../../etc", "/etc", "a\x00b", "a\nb", "a b", "é", "%2e%2e", "A", "-", long} {
		for _, target := range []string{"/var/lib/kubelet/pods/x", "relative", "/", "/a/../b", "/a\x00b", "/" + long, "/" + strings.Repeat("x/", 5<<10) + "x"} {
			for call, err := range map[string]error{
				"stage": second(n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: h, StagingTargetPath: target, VolumeCapability: mount})),
				"publish": second(n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
					VolumeId: h, StagingTargetPath: target, TargetPath: target, VolumeCapability: mount,
					VolumeContext: map[string]string{"csi.storage.k8s.io/pod.uid": "u", "csi.storage.k8s.io/pod.name": "n", "csi.storage.k8s.io/pod.namespace": "s"},
				})),
				"unpublish": second(n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: h, TargetPath: target})),
				"unstage":   second(n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: h, StagingTargetPath: target})),
				"stats":     second(n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: h, VolumePath: target})),
			} {
				said := status.Convert(err)
				switch said.Code() {
				case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
				default:
					t.Errorf("%s: %s %.20q at %.20q: %.1200v", s.name, call, h, target, err)
				}
				if len(said.Message()) > answered || strings.ContainsAny(said.Message(), "\n\x00") {
					t.Errorf("%s: %s %.20q at %.20q: an answer of %d bytes: %.200q", s.name, call, h, target, len(said.Message()), said.Message())
				}
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// keeperGoesOn crowds the keeper's socket, which holds all mounts, and kills its serving process.
func keeperGoesOn(t *testing.T, all []socket) {
	s := all[len(all)-1]
	path := s.path + ".keeper"
	dice := rand.NewChaCha8([32]byte{8})
	for i := range 200 {
		c, err := net.Dial("unixpacket", path)
		must(t, err)
		defer c.Close()
		if i%2 == 0 {
			b := make([]byte, 512)
			dice.Read(b)
			_, _ = c.Write(b) // it may be cut off meanwhile
		}
	}
	client := mountowner.NewClient(s.path)
	was, err := client.Health(t.Context())
	must(t, err)
	must(t, syscall.Kill(was.PID, syscall.SIGKILL))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		now, err := client.Health(t.Context())
		if err == nil && now.PID != was.PID && now.Keeper == was.Keeper {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no other serving process: %+v, %v", now, err)
		}
	}
}
