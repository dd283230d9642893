package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// TestMain lets the test binary play a mount owner and a worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "mount-owner" || os.Args[1] == "worker") {
		os.Exit(boot.Main(context.Background(), list(mountowner.Command(), worker.Command()), os.Args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func list[T any](all ...T) []T { return all }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is an API server, and volumes of one replica each.
type world struct {
	t    *testing.T
	api  *kubetest.Server
	kube *kube.Client
	// account has the rights that the manifests give to nodes, and no more.
	account *kube.Client
	dir     string
	addrs   map[string]string // of each volume's worker
	cas     map[string]*pki.CA
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root and /dev/fuse")
		}
		t.Skip("needs root and /dev/fuse")
	}
	w := &world{t: t, api: kubetest.Start(t), addrs: map[string]string{}, cas: map[string]*pki.CA{}}
	var err error
	w.kube, err = kube.Connect(kube.Options{Kubeconfig: w.api.Kubeconfig})
	must(t, err)
	w.dir, err = os.MkdirTemp("", "node")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(w.dir) })
	crd, err := os.ReadFile("../../manifests/crd/replicated.tak-os.org_replicatedvolumes.yaml")
	must(t, err)
	w.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", crd)
	ns, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": api.TrustNamespace}})
	must(t, err)
	w.post("/api/v1/namespaces", "application/json", ns)
	w.eventually("the resource is served", func() error { _, err := w.kube.Volumes(t.Context()); return err })
	rights, err := kubetest.Manifest("base/rbac-node.yaml")
	must(t, err)
	w.api.Cluster(t).Apply(rights)
	account, err := w.api.KubeconfigFor("system:serviceaccount:kube-system:tak-replicated-node", "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
	must(t, err)
	w.account, err = kube.Connect(kube.Options{Kubeconfig: account})
	must(t, err)
	return w
}

func (w *world) post(path, kind string, body []byte) {
	w.t.Helper()
	resp, err := w.api.Client().Post(w.api.URL+path, kind, bytes.NewReader(body))
	must(w.t, err)
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		w.t.Fatalf("POST %s: %s: %s", path, resp.Status, text)
	}
}

func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %v", what, err)
		}
	}
}

// start runs the test binary in a role until the test ends.
func (w *world) start(args ...string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	must(w.t, err)
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	ended := make(chan struct{})
	ready := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(out)
		for said := false; lines.Scan(); {
			if !said && strings.HasPrefix(lines.Text(), "ready") {
				said = true
				close(ready)
			}
		}
		_ = cmd.Wait()
		close(ended)
	}()
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	select {
	case <-ready:
	case <-ended:
		w.t.Fatalf("%v ended", args)
	}
	return cmd
}

// volume makes a volume's record, its client's Secret, and its worker.
func (w *world) volume(name string, mode api.AccessMode) {
	w.t.Helper()
	ca, err := pki.NewCA(name, time.Now)
	must(w.t, err)
	w.cas[name] = ca
	trust := pki.OpenDir(pki.OSFiles(filepath.Join(w.dir, name+"-trust")), time.Now)
	replica := api.ReplicaName(name, 1)
	host := api.ServiceDNS(name, 1, api.DefaultNamespace, api.DefaultClusterName)
	for _, h := range []pki.Holder{{Role: pki.RoleServer, Name: replica, Hosts: []string{host}}, {Role: pki.RolePeer, Name: replica}} {
		_, err := trust.Renew(ca, h)
		must(w.t, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.addrs[name] = l.Addr().String()
	l.Close()
	c := worker.Config{
		Dir: filepath.Join(w.dir, name), Volume: name, Replica: replica, Incarnation: 1, Listen: w.addrs[name],
		Members: []worker.Member{{ID: 1, Replica: replica, Addr: w.addrs[name], ServerName: host}}, Trust: filepath.Join(w.dir, name+"-trust"),
		Bootstrap: true, ReserveBytes: 1 << 20, CheckpointBytes: 8 << 20, JournalBytes: 32 << 20, RebuildRate: 1 << 20, TTL: worker.DefaultTTL,
		Boot: boot.Config{LogLevel: "error", LogFormat: "json"},
	}
	w.start(c.Args()...)
	must(w.t, w.kube.CreateSecret(w.t.Context(), w.secret(name)))
	v := &api.ReplicatedVolume{Spec: api.ReplicatedVolumeSpec{
		AccessMode: mode, ReplicaCount: 1, Quota: api.QuotaNone, BackingStorageClass: "local", Runtime: api.RuntimeShared,
		Claim:    api.ClaimReference{Namespace: "default", Name: "app", UID: name},
		Replicas: []api.ReplicaSpec{{Index: 1, Node: "elsewhere", Incarnation: 1, Member: 1, Placement: 1, State: api.StateServing}},
	}}
	v.Name = name
	must(w.t, v.Spec.Capacity.UnmarshalJSON([]byte(`"1Gi"`)))
	_, err = w.kube.CreateVolume(w.t.Context(), v)
	must(w.t, err)
}

// limit enforces a size on a volume.
func (w *world) limit(volume string, bytes uint64) {
	w.t.Helper()
	trust := pki.OpenDir(pki.OSFiles(filepath.Join(w.dir, volume+"-operator")), time.Now)
	_, err := trust.Renew(w.cas[volume], pki.Holder{Role: pki.RoleOperator, Name: "test", Token: true})
	must(w.t, err)
	creds, err := pki.NewCredentials(trust.Load(pki.RoleOperator), time.Now, zap.NewNop())
	must(w.t, err)
	host := api.ServiceDNS(volume, 1, api.DefaultNamespace, api.DefaultClusterName)
	for _, op := range []fsop.Op{&fsop.SetFeature{Level: tree.FeatureLimits}, &fsop.SetLimits{Bytes: bytes}} {
		w.eventually("limit "+volume, func() error {
			r, err := worker.Operate(w.t.Context(), w.addrs[volume], creds.ClientTLS(host), op)
			if err == nil && r.Errno != fsop.OK {
				err = r.Errno
			}
			return err
		})
	}
}

// secret is what the manager gives mount owners of a volume, fresh.
func (w *world) secret(volume string) kube.Secret {
	w.t.Helper()
	pair, err := w.cas[volume].Issue(pki.RoleClient, "mount-owner")
	must(w.t, err)
	token, err := w.cas[volume].IssueToken()
	must(w.t, err)
	return kube.Secret{
		Namespace: api.TrustNamespace, Name: api.ClientSecret(volume), Labels: api.Labels(volume, 0),
		Data: map[string][]byte{"ca.crt": w.cas[volume].KeyPair().Cert, "client.crt": pair.Cert, "client.key": pair.Key, "token": []byte(token)},
	}
}

// node is a frontend with its owner.
type node struct {
	w     *world
	name  string
	dir   string
	front *frontend
	csi   csi.NodeClient
	owner []string
}

func (w *world) node(name string) *node {
	w.t.Helper()
	n := &node{w: w, name: name, dir: filepath.Join(w.dir, name)}
	must(w.t, os.MkdirAll(n.path("pods"), 0o755))
	socket := filepath.Join(n.dir, "owner.sock")
	n.owner = []string{
		"mount-owner", "--socket", socket, "--kubelet-dir", filepath.Join(n.dir, "kubelet"), "--trust-dir", filepath.Join(n.dir, "trust"),
		"--log-level", "error", "--until-stdin-ends",
	}
	w.start(n.owner...)
	w.t.Cleanup(n.cleanUp)
	n.front = &frontend{
		node: name, cluster: w.account, owner: mountowner.NewClient(socket), quorumWait: 10 * time.Second, log: zap.NewNop(),
		addresses: func(volume string, index int32) (string, string) {
			return w.addrs[volume], api.ServiceDNS(volume, index, api.DefaultNamespace, api.DefaultClusterName)
		},
	}
	l, err := server.Listen(filepath.Join(n.dir, "csi.sock"))
	must(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, serviceOf(n.front, zap.NewNop(), nil)) }()
	conn, err := server.Dial(filepath.Join(n.dir, "csi.sock"))
	must(w.t, err)
	w.t.Cleanup(func() { conn.Close(); cancel(); <-done })
	n.csi = csi.NewNodeClient(conn)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, "kubelet", name) }

func (n *node) cleanUp() {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], n.dir+"/") {
			_ = unix.Unmount(f[4], unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
}

func capability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

const (
	many = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	one  = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
)

func (n *node) stage(volume string, mode csi.VolumeCapability_AccessMode_Mode) error {
	ctx, cancel := context.WithTimeout(n.w.t.Context(), 30*time.Second)
	defer cancel()
	_, err := n.csi.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: n.path("staging-" + volume), VolumeCapability: capability(mode),
	})
	return err
}

func (n *node) publish(volume, target string, mode csi.VolumeCapability_AccessMode_Mode) error {
	ctx, cancel := context.WithTimeout(n.w.t.Context(), 30*time.Second)
	defer cancel()
	_, err := n.csi.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: n.path("staging-" + volume), TargetPath: n.path(target), VolumeCapability: capability(mode),
	})
	return err
}

func (n *node) unpublish(volume, target string) error {
	_, err := n.csi.NodeUnpublishVolume(n.w.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: n.path(target)})
	return err
}

func (n *node) unstage(volume string) error {
	_, err := n.csi.NodeUnstageVolume(n.w.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: n.path("staging-" + volume)})
	return err
}

func (n *node) sh(format string, args ...any) string {
	n.w.t.Helper()
	out, err := exec.Command("sh", "-c", fmt.Sprintf(format, args...)).CombinedOutput()
	if err != nil {
		n.w.t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestNode is a volume's use through the CSI socket, with a real API server, owner
// and worker.
func TestNode(t *testing.T) {
	w := newWorld(t)
	w.volume("pvc-many", api.ReadWriteMany)
	w.limit("pvc-many", 10<<20)
	w.volume("pvc-one", api.ReadWriteOnce)
	n := w.node("node-1")
	if err := n.stage("pvc-none", many); status.Code(err) != codes.NotFound {
		t.Errorf("stage what does not exist: %v", err)
	}
	if err := n.stage("pvc-one", many); status.Code(err) != codes.InvalidArgument {
		t.Errorf("stage a ReadWriteOnce volume for many nodes: %v", err)
	}
	must(t, n.stage("pvc-many", many))
	must(t, n.publish("pvc-many", "pods/a", many))
	n.sh("echo hello > %s/f", n.path("pods/a"))
	stats, err := n.csi.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "pvc-many", VolumePath: n.path("pods/a")})
	must(t, err)
	if len(stats.Usage) != 2 || stats.Usage[0].Total == 0 || stats.Usage[1].Total == 0 {
		t.Errorf("usage %v", stats.Usage)
	}
	var df unix.Statfs_t // what df(1) shows: the same to the block (CONTRACT A7)
	must(t, unix.Statfs(n.path("pods/a"), &df))
	if u := stats.Usage[0]; u.Total/df.Bsize != int64(df.Blocks) || u.Used/df.Bsize != int64(df.Blocks-df.Bfree) || u.Total != 10<<20 || u.Used != 4096 {
		t.Errorf("usage %v where statfs shows %+v", u, df)
	}
	if _, err := n.csi.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "pvc-many", VolumePath: n.path("none")}); status.Code(err) != codes.NotFound {
		t.Errorf("usage of nothing: %v", err)
	}

	// Renewed credentials reach the owner.
	old, err := w.kube.Secret(t.Context(), api.TrustNamespace, api.ClientSecret("pvc-many"))
	must(t, err)
	old.Data = w.secret("pvc-many").Data
	must(t, w.kube.UpdateSecret(t.Context(), old))
	n.front.refreshAll(t.Context())
	if kept, err := os.ReadFile(filepath.Join(n.dir, "trust", "pvc-many", "token")); err != nil || !bytes.Equal(kept, old.Data["token"]) {
		t.Errorf("the owner's token was not renewed: %v", err)
	}

	// Without the API nothing can be staged, and everything undone.
	w.api.StopAPI()
	if err := n.stage("pvc-one", one); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("stage without the API: %v", err)
	}
	must(t, n.publish("pvc-many", "pods/b", many))
	must(t, n.unpublish("pvc-many", "pods/a"))
	must(t, n.unpublish("pvc-many", "pods/b"))
	must(t, n.unstage("pvc-many"))
	must(t, w.api.StartAPI())

	deadMount(t, w, n)
	oneNode(t, w, n)
}

// deadMount kills the owner: staging and publishing make the mount anew, and an Event says so. None does where nothing was lost.
func deadMount(t *testing.T, w *world, n *node) {
	must(t, n.publish("pvc-many", "pods/a", many)) // which stages too
	if told := w.replacements(api.DefaultNamespace); told != 0 {
		t.Errorf("%d Events say that a mount was replaced, and none was", told)
	}
	for i, again := range []func() error{
		func() error { return n.publish("pvc-many", "pods/a", many) },
		func() error { return n.stage("pvc-many", many) },
	} {
		n.killOwner()
		for range 2 {
			must(t, again())
		}
		must(t, n.publish("pvc-many", "pods/a", many))
		if got := n.sh("cat %s/f", n.path("pods/a")); got != "hello" {
			t.Errorf("read %q", got)
		}
		for _, namespace := range []string{api.DefaultNamespace, "default"} { // of the volume and of its claim
			if told := w.replacements(namespace); told != i+1 {
				t.Errorf("%d Events in %s say that a mount was replaced, %d were", told, namespace, i+1)
			}
		}
	}
	must(t, n.unpublish("pvc-many", "pods/a"))
	must(t, n.unstage("pvc-many"))
}

// killOwner kills the node's owner, keeper and all, and starts another.
func (n *node) killOwner() {
	t := n.w.t
	t.Helper()
	h, err := n.front.owner.Health(t.Context())
	must(t, err)
	must(t, syscall.Kill(h.Keeper, syscall.SIGKILL))
	_ = syscall.Kill(h.PID, syscall.SIGKILL)
	if err := n.front.ready(); err == nil {
		n.w.eventually("the frontend is not ready", func() error {
			if n.front.ready() == nil {
				return fmt.Errorf("it is")
			}
			return nil
		})
	}
	n.w.start(n.owner...)
}

// replacements counts how often Events of a namespace say that a mount was replaced.
func (w *world) replacements(namespace string) int {
	w.t.Helper()
	resp, err := w.api.Client().Get(w.api.URL + "/api/v1/namespaces/" + namespace + "/events")
	must(w.t, err)
	defer resp.Body.Close()
	var list struct {
		Items []struct {
			Reason string
			Count  int
		}
	}
	must(w.t, json.NewDecoder(resp.Body).Decode(&list))
	told := 0
	for _, e := range list.Items {
		if e.Reason == "MountReplaced" {
			told += max(e.Count, 1)
		}
	}
	return told
}

// oneNode is a ReadWriteOnce volume asked for on two nodes (D15).
func oneNode(t *testing.T, w *world, n *node) {
	other := w.node("node-2")
	must(t, n.stage("pvc-one", one))
	must(t, n.publish("pvc-one", "pods/1", one))
	must(t, n.publish("pvc-one", "pods/2", one))
	err := other.stage("pvc-one", one)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "node-1") {
		t.Errorf("stage on a second node: %v", err)
	}
	must(t, n.unpublish("pvc-one", "pods/1"))
	must(t, n.unpublish("pvc-one", "pods/2"))
	must(t, n.unstage("pvc-one"))
	must(t, other.stage("pvc-one", one))
	must(t, other.unstage("pvc-one"))
}
