package cluster

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// rollouts are the DaemonSets, and how many of their Pods may be away, and how many beside the old ones, in an update: mounts go from the old
// Pod to one beside it, and all else goes node by node (DESIGN §5).
var rollouts = map[string]struct{ unavailable, surge int32 }{
	"tak-replicated-node":        {1, 0},
	"tak-replicated-mount-owner": {0, 1},
	"tak-replicated-local":       {1, 0},
	"tak-replicated-per-node":    {1, 0},
}

// TestWorkloads holds what runs, in all that can be applied, to how it is to be updated, scheduled and bounded.
func TestWorkloads(t *testing.T) {
	for _, dir := range roots(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var found []string
			for _, o := range build(t, dir) {
				switch w := o.typed.(type) {
				case *appsv1.DaemonSet:
					found = append(found, w.Name)
					checkDaemonSet(t, o, w)
				case *appsv1.Deployment:
					if p := w.Spec.Template.Spec; w.Name != "tak-replicated-manager" || *w.Spec.Replicas != 2 || p.PriorityClassName != "system-cluster-critical" {
						t.Errorf("%s has %d Pods of priority %s", o, *w.Spec.Replicas, p.PriorityClassName)
					}
				}
			}
			if len(found) != len(rollouts) {
				t.Errorf("DaemonSets %q", found)
			}
		})
	}
}

func checkDaemonSet(t *testing.T, o object, d *appsv1.DaemonSet) {
	want, known := rollouts[d.Name]
	u := d.Spec.UpdateStrategy
	if !known || u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate == nil {
		t.Errorf("%s is updated by %+v", o, u)
		return
	}
	var none intstr.IntOrString
	away, beside := ptr.Deref(u.RollingUpdate.MaxUnavailable, none), ptr.Deref(u.RollingUpdate.MaxSurge, none)
	if away != intstr.FromInt32(want.unavailable) || beside != intstr.FromInt32(want.surge) {
		t.Errorf("%s: of its Pods %s may be away, and %s beside the old ones", o, &away, &beside)
	}
	p := d.Spec.Template.Spec
	if p.PriorityClassName != "system-node-critical" || !slices.ContainsFunc(p.Tolerations, func(t corev1.Toleration) bool {
		return t == corev1.Toleration{Operator: corev1.TolerationOpExists}
	}) {
		t.Errorf("%s has priority %s and tolerates %v: a mount needs it on every node", o, p.PriorityClassName, p.Tolerations)
	}
	for _, c := range p.Containers {
		if c.Name == "replica-host" {
			checkHostResources(t, o, c.Resources)
		}
	}
}

// checkHostResources is D10.
func checkHostResources(t *testing.T, o object, r corev1.ResourceRequirements) {
	is := []string{r.Requests.Cpu().String(), r.Requests.Memory().String(), r.Limits.Cpu().String(), r.Limits.Memory().String()}
	if !slices.Equal(is, []string{"100m", "128Mi", "2", "768Mi"}) {
		t.Errorf("%s: the replica host requests and may take %v", o, is)
	}
}

// kubelets are where the kubelet has its folder, in the overlays for which that is another than Kubernetes' own.
var kubelets = map[string]string{"k0s": "/var/lib/k0s/kubelet", "microk8s": "/var/snap/microk8s/common/var/lib/kubelet"}

// TestKubeletFolder finds every path below the kubelet's folder where the overlay has that folder, under the same name inside of containers, where
// mounts have to appear under the names that the kubelet gives them.
func TestKubeletFolder(t *testing.T) {
	for _, dir := range roots(t) {
		want := cmp.Or(kubelets[filepath.Base(dir)], "/var/lib/kubelet")
		t.Run(filepath.Base(dir), func(t *testing.T) {
			inside := 0
			for _, o := range build(t, dir) {
				p := o.pod()
				if p == nil {
					continue
				}
				is := func(what, path string) {
					if strings.Contains(path, "kubelet") && path != want && !strings.HasPrefix(path, want+"/") {
						t.Errorf("%s: %s is %s, and the kubelet has %s", o, what, path, want)
					}
				}
				for _, v := range p.Volumes {
					if v.HostPath != nil {
						is("volume "+v.Name, v.HostPath.Path)
					}
				}
				for _, c := range p.Containers {
					for _, m := range c.VolumeMounts {
						is("mount "+m.Name+" of "+c.Name, m.MountPath)
						if m.Name == "kubelet" && m.MountPath == want {
							inside++
						}
					}
					for _, e := range c.Env {
						is(e.Name+" of "+c.Name, e.Value)
					}
				}
			}
			// The mount owner's two containers and the two other drivers.
			if inside != 4 {
				t.Errorf("%d containers have %s", inside, want)
			}
		})
	}
}
