package pernode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/mounts/mountstest"
	driver "tak-os.org/tak-replicated/csi/pernode"
	"tak-os.org/tak-replicated/csi/server"
	"tak-os.org/tak-replicated/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(mountstest.Run(m)) }

// api speaks to the server as somebody who may do everything.
type api struct {
	*kubetest.Server
	http *http.Client
}

func startAPI(t *testing.T) *api {
	t.Helper()
	s := kubetest.Start(t)
	return &api{s, s.Client()}
}

// do makes a call and returns the answer's object.
func (a *api) do(method, path, contentType, body string) (map[string]any, error) {
	q, err := http.NewRequest(method, a.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", contentType)
	r, err := a.http.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if r.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, r.Status, b)
	}
	var object map[string]any
	return object, json.Unmarshal(b, &object)
}

const (
	volumesPath = "/api/v1/persistentvolumes"
	podsPath    = "/api/v1/namespaces/default/pods"
)

func (a *api) createPV(name, handle string) error {
	_, err := a.do(http.MethodPost, volumesPath, "application/json", fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":%q},
		"spec":{"storageClassName":"per-node","accessModes":["ReadWriteMany"],"capacity":{"storage":"1Gi"},"persistentVolumeReclaimPolicy":"Retain",
		"csi":{"driver":%q,"volumeHandle":%q}}}`, name, driver.Name, handle))
	return err
}

func (a *api) deletePV(name string) error {
	_, err := a.do(http.MethodDelete, volumesPath+"/"+name, "application/json", "")
	return err
}

func (a *api) createPod(t *testing.T, name string) driver.Pod {
	t.Helper()
	o, err := a.do(http.MethodPost, podsPath, "application/json", fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"none"}]}}`, name))
	if err != nil {
		t.Fatal(err)
	}
	return driver.Pod{Namespace: "default", Name: name, UID: o["metadata"].(map[string]any)["uid"].(string)}
}

// account applies the role's RBAC as manifests has it, and returns a kubeconfig of
// its service account.
func (a *api) account(t *testing.T) string {
	t.Helper()
	rbac, err := os.ReadFile("../../manifests/base/rbac-per-node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(rbac), "\n---\n") {
		path := ""
		switch {
		case strings.Contains(doc, "kind: ServiceAccount\n"):
			continue // nothing asks whether it exists
		case strings.Contains(doc, "kind: ClusterRoleBinding"):
			path = "clusterrolebindings"
		default:
			path = "clusterroles"
		}
		if _, err := a.do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/"+path, "application/yaml", doc); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, err := a.KubeconfigFor("system:serviceaccount:kube-system:tak-replicated-per-node", "system:serviceaccounts", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// node is a node with the role in it.
type node struct {
	dir        string
	kubeconfig string
	csi.NodeClient
	conn *grpc.ClientConn
	stop context.CancelFunc
	done chan error
}

func (n *node) start(t *testing.T) {
	t.Helper()
	c := Config{
		Node: "node-1", Root: filepath.Join(n.dir, "root"), Socket: filepath.Join(n.dir, "csi.sock"), KubeletDir: filepath.Join(n.dir, "kubelet"),
		Kubeconfig: n.kubeconfig, Proc: "/proc", FolderMode: "0755", LookEvery: time.Hour,
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	n.done = make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		n.done <- Run(ctx, c, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-n.done:
		n.stop()
		t.Fatal(err)
	}
	var err error
	if n.conn, err = server.Dial(c.Socket); err != nil {
		t.Fatal(err)
	}
	n.NodeClient = csi.NewNodeClient(n.conn)
}

func (n *node) end(t *testing.T) {
	t.Helper()
	n.conn.Close()
	n.stop()
	if err := <-n.done; err != nil {
		t.Error(err)
	}
}

func (n *node) target(p driver.Pod) string { return filepath.Join(n.dir, "kubelet", p.UID, "mount") }

func (n *node) publish(t *testing.T, handle string, p driver.Pod) error {
	t.Helper()
	mountstest.Folder(t, filepath.Dir(n.target(p)))
	_, err := n.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: handle, TargetPath: n.target(p),
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		},
		VolumeContext: map[string]string{
			"csi.storage.k8s.io/pod.namespace": p.Namespace, "csi.storage.k8s.io/pod.name": p.Name, "csi.storage.k8s.io/pod.uid": p.UID,
		},
	})
	return err
}

func (n *node) unpublish(t *testing.T, handle string, p driver.Pod) {
	t.Helper()
	if _, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: n.target(p)}); err != nil {
		t.Fatal(err)
	}
}

func (n *node) awaitGone(t *testing.T, handle string) {
	t.Helper()
	place := filepath.Join(n.dir, "root/volumes", handle)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Lstat(place); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("copy %s is still there", handle)
		}
	}
}

// TestRole runs the role with its service account's rights against a real API
// server: F2, F3 and the server's outage.
func TestRole(t *testing.T) {
	n := &node{dir: mountstest.Dir(t)}
	a := startAPI(t)
	n.kubeconfig = a.account(t)
	n.start(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one, two := a.createPod(t, "one"), a.createPod(t, "two")
	if err := n.publish(t, "store", one); status.Code(err) != codes.NotFound {
		t.Errorf("without a PersistentVolume: %v", err)
	}
	// The name need not be the handle.
	must(a.createPV("example", "store"))
	must(n.publish(t, "store", one))
	must(os.WriteFile(filepath.Join(n.target(one), "data"), nil, 0o600))
	if err := n.publish(t, "store", two); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "default/one") {
		t.Errorf("second Pod: %v", err)
	}
	events, err := a.do(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid="+two.UID, "", "")
	must(err)
	if items := events["items"].([]any); len(items) != 1 || !strings.Contains(fmt.Sprint(items[0]), "held on node node-1 by Pod default/one ") {
		t.Errorf("events %v", items)
	}
	// The words are the same each time: one Event whose count grows.
	if err := n.publish(t, "store", two); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}

	a.StopAPI()
	if err := n.publish(t, "store", two); status.Code(err) != codes.Unavailable {
		t.Errorf("while the API server is away: %v", err)
	}
	n.unpublish(t, "store", one)
	must(a.StartAPI())
	must(n.publish(t, "store", two))

	// A recreated PersistentVolume gets nothing of the old one's, at once.
	must(a.deletePV("example"))
	must(a.createPV("example", "store"))
	if err := n.publish(t, "store", two); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the old copy's Pod at the new PersistentVolume: %v", err)
	}
	n.unpublish(t, "store", two)
	must(n.publish(t, "store", two))
	if left, err := os.ReadDir(n.target(two)); err != nil || len(left) != 0 {
		t.Errorf("a recreated PersistentVolume has %v, error %v", left, err)
	}
	must(a.createPV("second", "store"))
	if err := n.publish(t, "store", one); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("two PersistentVolumes of one handle: %v", err)
	}
	must(a.deletePV("second"))

	// Deletion: not while held, then at once; and after the node was away.
	must(a.deletePV("example"))
	if _, err := os.ReadDir(n.target(two)); err != nil {
		t.Error(err)
	}
	n.unpublish(t, "store", two)
	n.awaitGone(t, "store")
	must(a.createPV("away", "away"))
	must(n.publish(t, "away", one))
	n.unpublish(t, "away", one)
	n.end(t)
	must(a.deletePV("away"))
	if _, err := os.Stat(filepath.Join(n.dir, "root/volumes/away")); err != nil {
		t.Error(err)
	}
	n.start(t)
	n.awaitGone(t, "away")
	must(a.createPV("watched", "watched"))
	must(n.publish(t, "watched", one))
	n.unpublish(t, "watched", one)
	must(a.deletePV("watched"))
	n.awaitGone(t, "watched")

	// A hold from before a reboot lasts as long as its Pod.
	must(a.createPV("rebooted", "rebooted"))
	must(n.publish(t, "rebooted", one))
	n.reboot(t, "rebooted", one)
	if err := n.publish(t, "rebooted", two); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the Pod of before the reboot is there: %v", err)
	}
	_, err = a.do(http.MethodDelete, podsPath+"/one?gracePeriodSeconds=0", "application/json", "")
	must(err)
	must(n.publish(t, "rebooted", two))
	n.unpublish(t, "rebooted", two)
	n.end(t)
	a.Uses(t, "tak-replicated-per-node", "get /pods", "patch /events")
}

// reboot starts the role again as after a reboot: a Pod's mount is gone, and the hold is of another boot.
func (n *node) reboot(t *testing.T, handle string, p driver.Pod) {
	t.Helper()
	n.end(t)
	if err := unix.Unmount(n.target(p), 0); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.dir, "root/records", handle)
	record, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Replace(string(record), strings.TrimSpace(string(now)), "00000000-0000-0000-0000-000000000000", 1)
	if before == string(record) {
		t.Fatalf("the record does not name the boot: %s", record)
	}
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(t)
}

// TestRefusedConfigurations: one line, with the flag.
func TestRefusedConfigurations(t *testing.T) {
	ok := Config{Node: "n", Root: "/r", KubeletDir: "/k", Proc: "/proc", FolderMode: "0755", LookEvery: time.Minute, Kubeconfig: "/none"}
	for flag, change := range map[string]func(*Config){
		"--node-name":   func(c *Config) { c.Node = "" },
		"--root":        func(c *Config) { c.Root = "r" },
		"--kubelet-dir": func(c *Config) { c.KubeletDir = "" },
		"--proc":        func(c *Config) { c.Proc = "proc" },
		"--folder-mode": func(c *Config) { c.FolderMode = "rwx" },
		"--look-every":  func(c *Config) { c.LookEvery = 0 },
		"--kubeconfig":  func(*Config) {},
	} {
		c := ok
		change(&c)
		if err := Run(t.Context(), c, zap.NewNop(), nil); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
