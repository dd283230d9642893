package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"tak-os.org/tak-replicated/e2e/cluster/install"
	"tak-os.org/tak-replicated/roles"
	"tak-os.org/tak-replicated/roles/boot"
)

const manifests = "../../manifests"

// roots are the folders that a user may apply.
func roots(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(manifests + "/overlays/*")
	if err != nil || len(found) < 4 {
		t.Fatalf("overlays: %v, %v", found, err)
	}
	return append(found, manifests)
}

// object is one object as it is applied. typed is nil for the CRD's kind.
type object struct {
	kind, name, namespace string
	yaml                  []byte
	typed                 runtime.Object
}

func build(t *testing.T, dir string) []object {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var objects []object
	for _, r := range m.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, parse(t, dir, text))
	}
	return objects
}

// parse refuses fields that the object's type does not have.
func parse(t *testing.T, where string, text []byte) object {
	t.Helper()
	var head struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
	}
	if err := yaml.Unmarshal(text, &head); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	o := object{kind: head.Kind, name: head.Metadata.Name, namespace: head.Metadata.Namespace, yaml: text}
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if head.Kind == "CustomResourceDefinition" {
		return o
	}
	if o.typed, err = scheme.Scheme.New(gv.WithKind(head.Kind)); err != nil {
		t.Fatalf("%s, %s: %v", where, o, err)
	}
	if err := yaml.UnmarshalStrict(text, o.typed); err != nil {
		t.Errorf("%s, %s: %v", where, o, err)
	}
	return o
}

func (o object) String() string { return fmt.Sprintf("%s %s/%s", o.kind, o.namespace, o.name) }

// pod is the template of a workload.
func (o object) pod() *corev1.PodSpec {
	switch w := o.typed.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &w.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &w.Spec.Template.Spec
	case *corev1.Pod:
		return &w.Spec
	}
	return nil
}

// TestOverlays builds all that can be applied and checks what the API server would, or would find out too late.
func TestOverlays(t *testing.T) {
	for _, dir := range roots(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			objects := build(t, dir)
			checkSet(t, objects)
			for _, o := range objects {
				if p := o.pod(); p != nil {
					checkPod(t, o, p)
				}
			}
		})
	}
}

var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v\d+\.\d+\.\d+$`)

// checkPod looks at what each Pod must have.
func checkPod(t *testing.T, o object, p *corev1.PodSpec) {
	volumes := map[string]bool{}
	for _, v := range p.Volumes {
		volumes[v.Name] = true
	}
	if p.PriorityClassName == "" || p.ServiceAccountName == "" {
		t.Errorf("%s: priority class %q, ServiceAccount %q", o, p.PriorityClassName, p.ServiceAccountName)
	}
	checkOps(t, o, p)
	for _, c := range p.Containers {
		if c.Name == "keeper" && (!c.Resources.Limits.Memory().IsZero() || p.ShareProcessNamespace == nil || !*p.ShareProcessNamespace) {
			t.Errorf("%s: the keeper may be ended, or does not see who serves", o)
		}
		if !pinned.MatchString(c.Image) {
			t.Errorf("%s: image %s is not pinned to a version", o, c.Image)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			t.Errorf("%s: container %s requests nothing", o, c.Name)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: container %s mounts %s, which is no volume", o, c.Name, m.Name)
			}
			if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional && !privileged(c) {
				t.Errorf("%s: container %s is not privileged and propagates %s", o, c.Name, m.MountPath)
			}
		}
		if !privileged(c) && (c.SecurityContext == nil || c.SecurityContext.Capabilities == nil || !slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL")) {
			t.Errorf("%s: container %s keeps capabilities", o, c.Name)
		}
	}
}

// unasked are the containers that lack a probe, and why. All others are asked whether they live and whether they are ready.
var unasked = map[string]map[string]string{
	"livenessProbe": {
		"tak-replicated-mount-owner/keeper":      "its end is that of all mounts of the node",
		"tak-replicated-mount-owner/mount-owner": "SIGTERM, with which the kubelet begins, ends all mounts of the node; TestPodEnds of roles/mountowner",
	},
	"readinessProbe": {},
}

// sidecars are the containers that are not our own, and end by themselves when their driver's socket is gone.
var sidecars = []string{"csi-provisioner", "csi-node-driver-registrar"}

// checkOps wants each container of our own to serve metrics, at a port of its own by which they are found, and to be asked there whether
// it lives and whether it is ready.
func checkOps(t *testing.T, o object, p *corev1.PodSpec) {
	by := map[int32]string{}
	for _, c := range p.Containers {
		if name, _, _ := strings.Cut(path.Base(c.Image), ":"); slices.Contains(sidecars, name) {
			continue
		}
		var port corev1.ContainerPort
		for _, one := range c.Ports {
			if strings.Contains(one.Name, "metrics") {
				port = one
			}
		}
		if port.Name == "" || !slices.Contains(c.Args, fmt.Sprintf("--metrics-addr=:%d", port.ContainerPort)) {
			t.Errorf("%s: container %s serves no metrics at a port of that name: %v", o, c.Name, c.Args)
		}
		if other := by[port.ContainerPort]; other != "" {
			t.Errorf("%s: containers %s and %s have port %d", o, c.Name, other, port.ContainerPort)
		}
		by[port.ContainerPort] = c.Name
		checkProbe(t, o, c, "livenessProbe", c.LivenessProbe, "/healthz", port.Name)
		checkProbe(t, o, c, "readinessProbe", c.ReadinessProbe, "/readyz", port.Name)
		if s := c.StartupProbe; s != nil {
			t.Errorf("%s: container %s has a startup probe, of which nothing is expected: %+v", o, c.Name, s)
		}
	}
}

// checkProbe wants a probe to ask at a path, or not to be there where that is meant.
func checkProbe(t *testing.T, o object, c corev1.Container, kind string, p *corev1.Probe, at, port string) {
	if why, none := unasked[kind][o.name+"/"+c.Name]; none {
		if p != nil {
			t.Errorf("%s: container %s has a %s: %s", o, c.Name, kind, why)
		}
		return
	}
	if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != at || p.HTTPGet.Port.String() != port {
		t.Errorf("%s: container %s has the %s %+v, which does not ask for %s at port %s", o, c.Name, kind, p, at, port)
	}
}

func privileged(c corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// checkSet checks objects against each other and against what the drivers are said to be (A4, D10).
func checkSet(t *testing.T, objects []object) {
	accounts, bound := map[string]bool{}, map[string]bool{}
	drivers := map[string]storagev1.CSIDriverSpec{}
	for _, o := range objects {
		switch v := o.typed.(type) {
		case *corev1.ServiceAccount:
			accounts[v.Namespace+"/"+v.Name] = true
		case *rbacv1.RoleBinding:
			bound[v.Subjects[0].Namespace+"/"+v.Subjects[0].Name] = true
		case *rbacv1.ClusterRoleBinding:
			bound[v.Subjects[0].Namespace+"/"+v.Subjects[0].Name] = true
		case *rbacv1.ClusterRole:
			checkRules(t, o, v.Rules)
		case *rbacv1.Role:
			checkRules(t, o, v.Rules)
		case *storagev1.CSIDriver:
			drivers[v.Name] = v.Spec
		case *corev1.Namespace:
			if v.Name == "kube-system" {
				t.Errorf("%s: it is not ours", o)
			}
		}
	}
	for a := range bound {
		if !accounts[a] {
			t.Errorf("a binding names ServiceAccount %s, which is not there", a)
		}
	}
	if bound["kube-system/tak-replicated-mount-owner"] {
		t.Error("the mount owner has rights")
	}
	for _, name := range []string{"csi.replicated.tak-os.org", "csi.local.tak-os.org", "per-node.liken.sh"} {
		d, ok := drivers[name]
		if !ok || *d.AttachRequired || *d.FSGroupPolicy != storagev1.NoneFSGroupPolicy || !slices.Equal(d.VolumeLifecycleModes, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}) {
			t.Errorf("CSIDriver %s: %+v", name, d)
		}
	}
	if d := drivers["per-node.liken.sh"]; d.PodInfoOnMount == nil || !*d.PodInfoOnMount {
		t.Error("per-node.liken.sh gets no Pod information")
	}
	if d := drivers["csi.local.tak-os.org"]; d.StorageCapacity == nil || !*d.StorageCapacity {
		t.Error("csi.local.tak-os.org tracks no capacity")
	}
}

func checkRules(t *testing.T, o object, rules []rbacv1.PolicyRule) {
	for _, r := range rules {
		all := slices.Concat(r.Verbs, r.Resources, r.APIGroups)
		if slices.Contains(all, "*") {
			t.Errorf("%s: a rule grants everything: %v", o, r)
		}
		if o.kind == "ClusterRole" && slices.Contains(r.Resources, "secrets") {
			t.Errorf("%s: secrets of all namespaces", o)
		}
	}
}

// TestArguments has every role parse its containers' arguments, and starts none.
func TestArguments(t *testing.T) {
	own := install.ProductImage("")
	for _, dir := range roots(t) {
		for _, o := range build(t, dir) {
			p := o.pod()
			if p == nil {
				continue
			}
			for _, c := range p.Containers {
				if !strings.HasPrefix(c.Image, own) {
					continue
				}
				t.Run(filepath.Base(dir)+"/"+o.name+"/"+c.Name, func(t *testing.T) { parseArguments(t, c) })
			}
		}
	}
}

func parseArguments(t *testing.T, c corev1.Container) {
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = "10.0.0.1" // node, Pod and namespace names are free text; an address has to be one
		}
		t.Setenv(e.Name, value)
	}
	args := []string{boot.Name}
	for _, a := range c.Args {
		args = append(args, os.Expand(strings.NewReplacer("$(", "${", ")", "}").Replace(a), os.Getenv))
	}
	ran := false
	commands := roles.Commands()
	disarm(commands, &ran)
	var errOut strings.Builder
	if code := boot.Main(context.Background(), commands, args, io.Discard, &errOut); code != 0 || !ran {
		t.Errorf("%v: exit code %d, ran %v: %s", args, code, ran, errOut.String())
	}
}

// disarm puts something harmless in the place of what roles do.
func disarm(commands []*cli.Command, ran *bool) {
	for _, c := range commands {
		c.Action = func(context.Context, *cli.Command) error { *ran = true; return nil }
		disarm(c.Commands, ran)
	}
}

// TestExamples checks the examples' objects.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(manifests + "/examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.SplitSeq(string(b), "\n---\n") {
			if o := parse(t, f, []byte(text)); o.name == "" {
				t.Errorf("%s has an object without a name", f)
			}
		}
	}
}
