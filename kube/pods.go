package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"tak-os.org/tak-replicated/kube/api"
)

// Pod is a Pod of a volume.
type Pod struct {
	Namespace, Name, UID string
	Node                 string
	Phase                string
	Ready                bool
	Deleting             bool
	Component            string
	Index                string // the replica's index
	OwnerKind, OwnerName string // the controller that owns it
	Labels               map[string]string
}

// podType is what the watch of worker Pods needs.
var podType = &corev1.Pod{}

func podOf(p *corev1.Pod) Pod {
	r := Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, Phase: string(p.Status.Phase),
		Deleting: p.DeletionTimestamp != nil, Component: p.Labels[api.LabelComponent], Index: p.Labels[api.LabelReplica], Labels: p.Labels,
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			r.Ready = c.Status == corev1.ConditionTrue
		}
	}
	if o := metav1.GetControllerOf(p); o != nil {
		r.OwnerKind, r.OwnerName = o.Kind, o.Name
	}
	return r
}

// WorkerPods lists the worker Pods of a volume.
func (c *Client) WorkerPods(ctx context.Context, volume string) ([]Pod, error) {
	return c.pods(ctx, api.LabelVolume+"="+volume+","+api.LabelComponent+"="+api.ComponentWorker)
}

// Pods lists all Pods of the driver's namespace.
func (c *Client) Pods(ctx context.Context) ([]Pod, error) { return c.pods(ctx, "") }

func (c *Client) pods(ctx context.Context, selector string) ([]Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.CoreV1().Pods(c.ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, wrap(err, "list pods")
	}
	var all []Pod
	for i := range list.Items {
		all = append(all, podOf(&list.Items[i]))
	}
	return all, nil
}

// DeletePod deletes a Pod that was looked at. It is no error if it is gone.
func (c *Client) DeletePod(ctx context.Context, p Pod) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.core.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, *deleteExactly(p.UID, ""))
	return wrap(ignore(err, NotFound), "delete pod %s", p.Name)
}

// WorkerPod is a worker Pod to be made.
type WorkerPod struct {
	Volume      *api.ReplicatedVolume
	Index       int32
	Node        string
	Image       string
	Args        []string // of the container
	Secret      string   // leaf credentials, in the driver's namespace
	MetricsPort int32
	Priority    string // priority class, empty for none
	Bootstrap   bool   // its arguments let it initialise an empty folder
}

// Paths in a worker Pod.
const (
	WorkerDataPath  = "/data"
	WorkerTrustPath = "/trust"
)

// CreateWorkerPod makes the worker Pod of a replica.
func (c *Client) CreateWorkerPod(ctx context.Context, w WorkerPod) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	v := w.Volume
	name := api.ReplicaName(v.Name, w.Index)
	r := v.Replica(w.Index)
	if r == nil {
		return fmt.Errorf("volume %s has no replica %d", v.Name, w.Index)
	}
	labels := workerSelector(v.Name, w.Index)
	if w.Bootstrap {
		labels[api.LabelBootstrap] = "true"
	}
	_, err := c.core.CoreV1().Pods(c.ns).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: api.GroupVersion.String(), Kind: api.Kind, Name: v.Name, UID: v.UID, Controller: ptr.To(true),
			}},
		},
		Spec: workerPodSpec(w, api.BackingClaimName(v.Name, w.Index, r.Incarnation)),
	}, metav1.CreateOptions{})
	return wrap(err, "create worker pod %s", name)
}

// workerOpens is how often a worker is asked, ten seconds apart, before it is thought to hang at its start.
const workerOpens = 360

func workerProbe(path string, seconds, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(workerMetrics)}},
		PeriodSeconds: seconds, TimeoutSeconds: 5, FailureThreshold: failures,
	}
}

// workerMetrics names the port of metrics and health.
const workerMetrics = "metrics"

func workerPodSpec(w WorkerPod, claim string) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: w.Node, RestartPolicy: corev1.RestartPolicyAlways, PriorityClassName: w.Priority,
		AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		},
		Containers: []corev1.Container{{
			Name: api.ContainerWorker, Image: w.Image, Args: w.Args,
			Ports: []corev1.ContainerPort{{Name: api.WorkerPortName, ContainerPort: api.WorkerPort}, {Name: workerMetrics, ContainerPort: w.MetricsPort}},
			// It answers when its replica is open, which may have a long journal, and is ready when it has caught up: only then is the next replaced.
			StartupProbe:   workerProbe("/healthz", 10, workerOpens),
			LivenessProbe:  workerProbe("/healthz", 10, 6),
			ReadinessProbe: workerProbe("/readyz", 5, 3),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("48Mi"),
			}},
			// As the replica host: the backing volume's folder may be another user's.
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"DAC_OVERRIDE"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: WorkerDataPath}, {Name: "trust", MountPath: WorkerTrustPath, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
			{Name: "trust", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: w.Secret, DefaultMode: ptr.To[int32](0o400)}}},
		},
	}
}
