package replicahost

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/local"
	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/worker"
)

// The test binary is a replica host when this names its configuration.
const hostVar = "TAK_REPLICAHOST_CONFIG"

// hostConfig is what a host of a test is given.
type hostConfig struct {
	Node, Kubeconfig, Dir, State, Locks string
	Workers, Starts                     int
	RebuildRate                         int64 // 0: the default
	PortFirst, PortLast                 int
	// CrashAt ends the process at that call to the API, before it or, when After,
	// after it; 0: never.
	CrashAt int64
	After   bool
	// CrashFrom is a file: calls count once it is there; empty: all do.
	CrashFrom string
	// Ports of each node, by which replicas find each other without Services.
	Ports map[string]int
	// Nodes has the node of each replica.
	Nodes map[string]string
	// Metrics is where health and metrics are served; empty: nowhere.
	Metrics string
}

func TestMain(m *testing.M) {
	path := os.Getenv(hostVar)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := hostMain(path); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hostMain is a replica host in a mount namespace of its own, into which the
// publications propagate and out of which nothing does.
func hostMain(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c hostConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("leave the peer group of /: %w", err)
	}
	log, err := zap.NewDevelopment(zap.IncreaseLevel(zap.InfoLevel))
	if err != nil {
		return err
	}
	cfg := c.config()
	cfg.Addresses = func(volume string, index int32) (string, string) {
		name := api.ReplicaName(volume, index)
		return fmt.Sprintf("127.0.0.1:%d", c.Ports[c.Nodes[name]]), api.ServiceDNS(volume, index, api.DefaultNamespace, api.DefaultClusterName)
	}
	ctx, cancel := cfg.Boot.Context(context.Background())
	defer cancel()
	return Run(ctx, cfg, log, func() { fmt.Println("ready") })
}

func (c *hostConfig) config() Config {
	cfg := Config{
		Node: c.Node, Namespace: api.DefaultNamespace, ClusterDomain: api.DefaultClusterName, Kubeconfig: c.Kubeconfig,
		Advertise: "192.0.2.1", Listen: "127.0.0.1", // the API takes no loopback address
		State: c.State, Locks: c.Locks,
		ConsumerSocket: filepath.Join(c.Dir, "c.sock"), ConsumerRoot: filepath.Join(c.Dir, "consumer"),
		Workers: c.Workers, Starts: c.Starts, Operations: DefaultOperations, Checkpoints: DefaultCheckpoints,
		Rebuilds: DefaultRebuilds, RebuildRate: cmp.Or(c.RebuildRate, DefaultRebuildRate), PortFirst: c.PortFirst, PortLast: c.PortLast,
		Worker: worker.Config{ReserveBytes: 1 << 20, CheckpointBytes: 4 << 20, JournalBytes: 16 << 20, TTL: worker.DefaultTTL},
		Retry:  200 * time.Millisecond,
		Reach:  reached,
	}
	cfg.Boot.UntilStdin, cfg.Boot.MetricsAddr = true, c.Metrics
	if c.CrashAt != 0 {
		cfg.Wrap = func(next http.RoundTripper) http.RoundTripper {
			return &crasher{next: next, at: c.CrashAt, after: c.After, from: c.CrashFrom}
		}
	}
	return cfg
}

// reached is how an advertised address is reached here.
func reached(addr string) string { return strings.Replace(addr, "192.0.2.1", "127.0.0.1", 1) }

// lab is an API server, and nodes with a local driver and a replica host each.
type lab struct {
	t    *testing.T
	api  *kubetest.Server
	kube *kube.Client
	// account is the kubeconfig of the node's account, which may do what the manifests say, and no more.
	account string
	http    *http.Client
	dir     string
	nodes   map[string]*node
	where   map[string]string // node of each replica
	cas     map[string]*pki.CA
}

type node struct {
	lab    *lab
	name   string
	dir    string
	port   int // the first of its workers
	driver *local.Driver
	// stopDriver ends it.
	stopDriver func()
	make       csi.ControllerServer
	cfg        hostConfig
	host       *exec.Cmd
	log        *os.File
	ended      chan error
	stop       io.Closer
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "needs root, to mount")
	}
	l := &lab{t: t, api: kubetest.Start(t), nodes: map[string]*node{}, where: map[string]string{}, cas: map[string]*pki.CA{}}
	l.http = l.api.Client()
	var err error
	if l.kube, err = kube.Connect(kube.Options{Kubeconfig: l.api.Kubeconfig}); err != nil {
		t.Fatal(err)
	}
	if l.dir, err = os.MkdirTemp("", "host"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(l.dir) })
	// What is mounted below is seen by processes that copy the mount namespace.
	must(t, unix.Mount(l.dir, l.dir, "", unix.MS_BIND, ""))
	must(t, unix.Mount("", l.dir, "", unix.MS_PRIVATE, ""))
	must(t, unix.Mount("", l.dir, "", unix.MS_SHARED, ""))
	t.Cleanup(func() { unix.Unmount(l.dir, unix.MNT_DETACH) })
	crd, err := os.ReadFile("../../manifests/crd/replicated.tak-os.org_replicatedvolumes.yaml")
	must(t, err)
	l.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", crd)
	l.create("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": api.TrustNamespace}})
	l.eventually("the resource is served", func() error {
		_, err := l.kube.Volumes(t.Context())
		return err
	})
	rights, err := kubetest.Manifest("base/rbac-node.yaml")
	must(t, err)
	l.api.Cluster(t).Apply(rights)
	l.account, err = l.api.KubeconfigFor("system:serviceaccount:kube-system:tak-replicated-node", "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
	must(t, err)
	return l
}

// apart is the same lab in the hands of another test at the same time: its nodes and volumes are its own.
func (l *lab) apart(t *testing.T) *lab {
	d := *l
	d.t, d.nodes, d.where, d.cas = t, map[string]*node{}, map[string]string{}, map[string]*pki.CA{}
	return &d
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (l *lab) post(path, kind string, body []byte) {
	l.t.Helper()
	l.do(http.MethodPost, path, kind, body)
}

func (l *lab) do(method, path, kind string, body []byte) {
	l.t.Helper()
	req, err := http.NewRequest(method, l.api.URL+path, bytes.NewReader(body))
	must(l.t, err)
	req.Header.Set("Content-Type", kind)
	resp, err := l.http.Do(req)
	must(l.t, err)
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		l.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, text)
	}
}

func (l *lab) create(path string, o any) {
	l.t.Helper()
	b, err := json.Marshal(o)
	must(l.t, err)
	l.post(path, "application/json", b)
}

func (l *lab) patch(path string, o any) {
	l.t.Helper()
	b, err := json.Marshal(o)
	must(l.t, err)
	l.do(http.MethodPatch, path, "application/merge-patch+json", b)
}

// patience bounds the wait for anything in these tests.
const patience = 60 * time.Second

func (l *lab) eventually(what string, check func() error) {
	l.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: %v\n%s", what, err, l.logs())
		}
	}
}

func (l *lab) logs() string {
	var all strings.Builder
	for _, n := range l.nodes {
		b, _ := os.ReadFile(filepath.Join(n.dir, "log"))
		fmt.Fprintf(&all, "--- %s\n%s\n", n.name, b[max(0, len(b)-4000):])
	}
	return all.String()
}

const (
	firstPort   = 23100 // below those that the system hands out
	lastPort    = 32767
	portsOfNode = 10
)

// freeRange is the first of portsOfNode ports that nobody has, and that stay the test's: another run of it takes others, since
// an abstract socket, which goes with this process, has the range's name.
func freeRange(t *testing.T) int {
	t.Helper()
	for first := firstPort; first+portsOfNode-1 <= lastPort; first += portsOfNode {
		name, err := net.Listen("unix", fmt.Sprintf("@tak-replicahost-test-%d", first))
		if err != nil {
			continue
		}
		if !allFree(first, portsOfNode) {
			name.Close()
			continue
		}
		t.Cleanup(func() { name.Close() })
		return first
	}
	t.Fatal("no free ports")
	return 0
}

func allFree(first, count int) bool {
	for port := first; port < first+count; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

func (l *lab) addNode(name string) *node {
	l.t.Helper()
	n := &node{lab: l, name: name, dir: filepath.Join(l.dir, name), port: freeRange(l.t)}
	l.nodes[name] = n
	for _, d := range []string{"kubelet", "local", "consumer"} {
		must(l.t, os.MkdirAll(filepath.Join(n.dir, d), 0o755))
	}
	n.startDriver()
	n.cfg = hostConfig{
		Node: name, Kubeconfig: l.account, Dir: n.dir, State: filepath.Join(n.dir, "state"), Locks: filepath.Join(n.dir, "locks"),
		Workers: DefaultWorkers, Starts: DefaultStarts, PortFirst: n.port, PortLast: n.port + portsOfNode - 1,
	}
	return n
}

// socket is the local driver's for consumers.
func (n *node) socket() string { return filepath.Join(n.dir, "c.sock") }

// startDriver runs the node's local driver.
func (n *node) startDriver() {
	t := n.lab.t
	d, err := local.Open(local.Config{
		Root: filepath.Join(n.dir, "local"), Node: n.name, KubeletDir: filepath.Join(n.dir, "kubelet"),
		ConsumerRoot: filepath.Join(n.dir, "consumer"), Proc: "/proc", FolderMode: 0o755,
	}, zap.NewNop())
	must(t, err)
	must(t, d.Recover(t.Context()))
	n.driver, n.make = d, local.NewController(d)
	listener, err := server.Listen(n.socket())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener, consumer.NewServer(d, zap.NewNop(), nil)) }()
	n.stopDriver = sync.OnceFunc(func() {
		cancel()
		<-done
		d.Close()
	})
	t.Cleanup(n.stopDriver)
}

// start runs the node's replica host as a process.
func (n *node) start() {
	n.lab.t.Helper()
	n.launch(n.cfg)
	n.lab.t.Cleanup(func() { n.kill() })
}

// launch starts a host with a configuration.
func (n *node) launch(c hostConfig) {
	t := n.lab.t
	t.Helper()
	c.Ports, c.Nodes = map[string]int{}, n.lab.where
	for _, o := range n.lab.nodes {
		c.Ports[o.name] = o.port
	}
	b, err := json.Marshal(c)
	must(t, err)
	path := filepath.Join(n.dir, "config.json")
	must(t, os.WriteFile(path, b, 0o600))
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hostVar+"="+path)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	n.stop, err = cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	n.host, n.log, n.ended = cmd, log, make(chan error, 1)
	go func(ended chan error) { ended <- cmd.Wait(); log.Close() }(n.ended)
}

// kill ends the host with SIGKILL.
func (n *node) kill() {
	if n.host == nil {
		return
	}
	_ = n.host.Process.Kill()
	<-n.ended
	n.host = nil
}

// volume makes what the manager makes: trust, backing claims and volumes, and the
// volume's record.
func (l *lab) volume(name string, nodes ...string) *api.ReplicatedVolume {
	l.t.Helper()
	ca, err := pki.NewCA(name, time.Now)
	must(l.t, err)
	l.cas[name] = ca
	v := &api.ReplicatedVolume{Spec: api.ReplicatedVolumeSpec{
		AccessMode: api.ReadWriteMany, ReplicaCount: int32(len(nodes)), Capacity: quantity(l.t, "1Gi"), Quota: api.QuotaNone,
		BackingStorageClass: "local", Runtime: api.RuntimeShared,
		Claim: api.ClaimReference{Namespace: "default", Name: "app", UID: strings.TrimPrefix(name, "pvc-")},
	}}
	v.Name = name
	for i, n := range nodes {
		index := int32(i + 1)
		v.Spec.Replicas = append(v.Spec.Replicas, api.ReplicaSpec{
			Index: index, Node: n, Incarnation: 1, Member: int64(index), Placement: 1, State: api.StateServing,
		})
		l.where[api.ReplicaName(name, index)] = n
	}
	made, err := l.kube.CreateVolume(l.t.Context(), v)
	must(l.t, err)
	for i, n := range nodes {
		l.trust(ca, name, int32(i+1))
		l.backing(api.ReplicaName(name, int32(i+1)), name, int32(i+1), l.nodes[n])
	}
	return made
}

func quantity(t *testing.T, text string) api.Quantity {
	t.Helper()
	var q api.Quantity
	must(t, q.UnmarshalJSON([]byte(`"`+text+`"`)))
	return q
}

// trust makes a replica's Secret.
func (l *lab) trust(ca *pki.CA, volume string, index int32) {
	l.t.Helper()
	name := api.ReplicaName(volume, index)
	srv, err := ca.IssueServer(name, api.ServiceDNS(volume, index, api.DefaultNamespace, api.DefaultClusterName))
	must(l.t, err)
	peer, err := ca.Issue(pki.RolePeer, name)
	must(l.t, err)
	must(l.t, l.kube.CreateSecret(l.t.Context(), kube.Secret{
		Namespace: api.TrustNamespace, Name: name, Labels: api.Labels(volume, index),
		Data: map[string][]byte{
			"ca.crt": ca.KeyPair().Cert, "server.crt": srv.Cert, "server.key": srv.Key, "peer.crt": peer.Cert, "peer.key": peer.Key,
		},
	}))
}

// backing makes the backing volume of a life of a replica on a node, and the bound claim of that name.
func (l *lab) backing(name, volume string, index int32, n *node) {
	l.t.Helper()
	got, err := n.make.CreateVolume(l.t.Context(), &csi.CreateVolumeRequest{
		Name: "pv-" + name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	must(l.t, err)
	size := map[string]any{"storage": "1Mi"}
	modes := []string{"ReadWriteOnce"}
	l.create("/api/v1/persistentvolumes", map[string]any{
		"metadata": map[string]any{"name": "pv-" + name},
		"spec": map[string]any{
			"capacity": size, "accessModes": modes, "storageClassName": "local", "persistentVolumeReclaimPolicy": "Delete",
			"csi":      map[string]any{"driver": api.DriverLocal, "volumeHandle": got.Volume.VolumeId},
			"claimRef": map[string]any{"namespace": api.DefaultNamespace, "name": name},
		},
	})
	claims := "/api/v1/namespaces/" + api.DefaultNamespace + "/persistentvolumeclaims"
	l.create(claims, map[string]any{
		"metadata": map[string]any{"name": name, "labels": api.Labels(volume, index)},
		"spec": map[string]any{
			"accessModes": modes, "storageClassName": "local", "volumeName": "pv-" + name,
			"resources": map[string]any{"requests": size},
		},
	})
	l.patch(claims+"/"+name+"/status", map[string]any{"status": map[string]any{"phase": "Bound"}})
}

// status waits until a replica's status is as wanted.
func (l *lab) status(volume string, index int32, what string, want func(api.ReplicaStatus) bool) api.ReplicaStatus {
	l.t.Helper()
	var last api.ReplicaStatus
	l.eventually(fmt.Sprintf("%s: %s", api.ReplicaName(volume, index), what), func() error {
		v, err := l.kube.Volume(l.t.Context(), volume)
		if err != nil {
			return err
		}
		for _, st := range v.Status.Replicas {
			if st.Index == index {
				if last = st; want(st) {
					return nil
				}
			}
		}
		return fmt.Errorf("status is %+v", last)
	})
	return last
}

// told waits until an Event of the volume and one of its claim tell something.
func (l *lab) told(v *api.ReplicatedVolume, reason, text string) {
	l.t.Helper()
	c := v.Spec.Claim
	for _, about := range []kube.Object{kube.ObjectOfVolume(v), kube.ObjectOfClaim(c.Namespace, c.Name, c.UID)} {
		l.eventually(fmt.Sprintf("%s %s is told %s", about.Kind, about.Name, reason), func() error {
			events, err := l.kube.EventsAbout(l.t.Context(), about)
			if slices.ContainsFunc(events, func(e kube.SeenEvent) bool {
				return e.Warning && e.Reason == reason && strings.Contains(e.Message, text)
			}) {
				return nil
			}
			return errors.Join(fmt.Errorf("Events are %+v", events), err)
		})
	}
}

func inPhase(p api.ReplicaPhase, reason string) func(api.ReplicaStatus) bool {
	return func(st api.ReplicaStatus) bool { return st.Phase == p && st.Reason == reason }
}

// serving waits until the volume's replicas are served and one coordinates.
func (l *lab) serving(v *api.ReplicatedVolume) {
	l.t.Helper()
	for _, r := range v.Spec.Replicas {
		l.status(v.Name, r.Index, "is served", func(st api.ReplicaStatus) bool {
			return st.Phase == api.ReplicaRunning && st.Reason == api.HostReasonServing && st.Role != api.RoleNone && st.Role != api.RoleCandidate
		})
	}
}

// servedBy waits until the host that runs now serves a replica.
func (l *lab) servedBy(v *api.ReplicatedVolume, n *node) {
	l.t.Helper()
	for _, r := range v.Spec.Replicas {
		if r.Node != n.name {
			continue
		}
		l.eventually("the host serves "+api.ReplicaName(v.Name, r.Index), func() error {
			rep, err := l.ask(v.Name, r.Index)
			if err == nil && rep.PID != n.host.Process.Pid {
				err = fmt.Errorf("process %d serves, the host is %d", rep.PID, n.host.Process.Pid)
			}
			return err
		})
	}
	l.serving(v)
}

// ask asks a replica's worker for its report.
func (l *lab) ask(volume string, index int32) (*worker.Report, error) {
	l.t.Helper()
	v, err := l.kube.Volume(l.t.Context(), volume)
	must(l.t, err)
	for _, st := range v.Status.Replicas {
		if st.Index == index && st.Address != "" {
			return l.askAt(volume, index, reached(st.Address))
		}
	}
	return nil, fmt.Errorf("replica %d has no address", index)
}

func (l *lab) askAt(volume string, index int32, addr string) (*worker.Report, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Second)
	defer cancel()
	return worker.Ask(ctx, addr, l.operator(volume, index))
}

// operator is how an operator connects to a replica.
func (l *lab) operator(volume string, index int32) *tls.Config {
	l.t.Helper()
	operator, err := l.cas[volume].Issue(pki.RoleOperator, "test")
	must(l.t, err)
	creds, err := pki.NewCredentials(func() (pki.Bundle, error) {
		return pki.Bundle{CA: l.cas[volume].KeyPair().Cert, Pair: operator}, nil
	}, time.Now, zap.NewNop())
	must(l.t, err)
	return creds.ClientTLS(api.ServiceDNS(volume, index, api.DefaultNamespace, api.DefaultClusterName))
}

// update changes the volume's spec.
func (l *lab) update(volume string, change func(*api.ReplicatedVolume)) {
	l.t.Helper()
	l.eventually("update volume", func() error {
		v, err := l.kube.Volume(l.t.Context(), volume)
		if err != nil {
			return err
		}
		change(v)
		_, err = l.kube.UpdateVolume(l.t.Context(), v)
		return err
	})
}
