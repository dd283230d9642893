package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"tak-os.org/tak-replicated/csi/mounts/mountstest"
	"tak-os.org/tak-replicated/e2e/cluster/programs"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

// TestProvisionerRights runs the driver's external-provisioner with the arguments and exactly the rights of the manifests. A claim for which
// the node has no room is given back to the scheduler, is told so, and so again; the capacity of a class that is gone goes.
func TestProvisionerRights(t *testing.T) {
	s := kubetest.Start(t)
	a := apiServer{t, s, s.Client()}
	cluster := s.Cluster(t)
	rights, err := kubetest.Manifest("base/rbac-local.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cluster.Apply(rights)
	cluster.AddClass("going", api.DriverLocal, "WaitForFirstConsumer", "Delete")
	dir := mountstest.Dir(t)
	c := Config{
		Node: "node-1", Root: filepath.Join(dir, "root"), Socket: filepath.Join(dir, "csi.sock"), KubeletDir: mountstest.Folder(t, dir, "kubelet"),
		ConsumerRoot: filepath.Join(dir, "consumer"), ConsumerSocket: filepath.Join(dir, "consumer.sock"), Proc: "/proc", FolderMode: "0750",
	}
	defer start(t, c)()
	a.provisioner(c.Socket, filepath.Join(dir, "provisioner.log"))

	const capacities = "/apis/storage.k8s.io/v1/namespaces/kube-system/csistoragecapacities"
	a.eventually("both classes have a capacity", func() bool {
		all := a.get(capacities)
		return strings.Contains(all, `"storageClassName":"going"`) && strings.Contains(all, `"storageClassName":"`+kubetest.BackingClass+`"`)
	})
	a.do(http.MethodDelete, "/apis/storage.k8s.io/v1/storageclasses/going", "", "")
	a.eventually("the capacity of the class goes", func() bool { return !strings.Contains(a.get(capacities), `"storageClassName":"going"`) })

	const claims = "/api/v1/namespaces/default/persistentvolumeclaims"
	const selected = "volume.kubernetes.io/selected-node"
	a.do(http.MethodPost, claims, "application/json", `{"metadata":{"name":"vast","annotations":{"volume.kubernetes.io/storage-provisioner":"`+api.DriverLocal+`"}},
		"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"`+kubetest.BackingClass+`","resources":{"requests":{"storage":"1Ei"}}}}`)
	for range 2 {
		// What the manager does: it says which node the claim is for.
		a.do(http.MethodPatch, claims+"/vast", "application/merge-patch+json", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, selected, c.Node))
		a.eventually("the claim is given back", func() bool { return !strings.Contains(a.get(claims+"/vast"), selected) })
	}
	a.eventually("the claim is told why", func() bool {
		return slices.ContainsFunc(cluster.Events("default", "vast"), func(e string) bool {
			return strings.HasPrefix(e, "ProvisioningFailed") && strings.Contains(e, "ResourceExhausted")
		})
	})
	s.Uses(t, "tak-replicated-local", "get /persistentvolumeclaims", "update /persistentvolumeclaims", "patch /events", "delete storage.k8s.io/csistoragecapacities in kube-system")
}

// apiServer is a test's API server, for somebody who may do everything.
type apiServer struct {
	t *testing.T
	*kubetest.Server
	http *http.Client
}

func (a apiServer) do(method, path, kind, body string) string {
	a.t.Helper()
	q, err := http.NewRequest(method, a.URL+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	q.Header.Set("Content-Type", kind)
	r, err := a.http.Do(q)
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode >= 300 {
		a.t.Fatalf("%s %s: %s: %s, %v", method, path, r.Status, answer, err)
	}
	return string(answer)
}

func (a apiServer) get(path string) string {
	a.t.Helper()
	return a.do(http.MethodGet, path, "", "")
}

func (a apiServer) eventually(what string, so func() bool) {
	a.t.Helper()
	kubetest.Eventually(a.t, time.Minute, what, so)
}

// provisioner runs the external-provisioner as the manifests do, beside the Pod that owns the capacities.
func (a apiServer) provisioner(socket, log string) {
	a.t.Helper()
	program, err := programs.Path(a.t.Context(), programs.Provisioner, a.t.Logf)
	if err != nil {
		a.t.Fatal(err)
	}
	account, err := a.KubeconfigFor("system:serviceaccount:kube-system:tak-replicated-local", "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
	if err != nil {
		a.t.Fatal(err)
	}
	const pod = "tak-replicated-local-0"
	a.do(http.MethodPost, "/api/v1/namespaces/kube-system/pods", "application/json", `{"metadata":{"name":"`+pod+`",
		"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"tak-replicated-local","uid":"b0a1f1a4-0000-4000-8000-000000000001","controller":true}]},
		"spec":{"containers":[{"name":"c","image":"none"}]}}`)
	out, err := os.Create(log)
	if err != nil {
		a.t.Fatal(err)
	}
	cmd := exec.Command(program, append(provisionerArgs(a.t, socket), "--kubeconfig="+account)...)
	cmd.Env = append(os.Environ(), "NODE_NAME=node-1", "NAMESPACE=kube-system", "POD_NAME="+pod)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out.Close()
		if b, err := os.ReadFile(log); err == nil && a.t.Failed() {
			a.t.Logf("the provisioner said:\n%s", b[max(0, len(b)-4000):])
		}
	})
}

// container is what matters here of one of a DaemonSet's.
type container struct {
	Name string
	Args []string
}

// provisionerArgs are the arguments in the manifests, with another socket.
func provisionerArgs(t *testing.T, socket string) []string {
	t.Helper()
	file, err := kubetest.Manifest("base/local.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range bytes.SplitSeq(file, []byte("\n---\n")) {
		var d struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct{ Containers []container }
				}
			}
		}
		b, err := yaml.YAMLToJSON(doc)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &d); err != nil || d.Kind != "DaemonSet" {
			continue
		}
		i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c container) bool { return c.Name == "provisioner" })
		if i < 0 {
			break
		}
		args := d.Spec.Template.Spec.Containers[i].Args
		at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--csi-address=") })
		if at < 0 {
			break
		}
		args[at] = "--csi-address=" + socket
		return args
	}
	t.Fatal("the manifests run no provisioner for the local driver")
	return nil
}
