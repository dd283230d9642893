package kubetest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// BackingClass is the name of a StorageClass that can hold replicas.
const BackingClass = "tak-local"

// Cluster stands for the parts of a cluster that are not there: its nodes, the
// local driver's provisioner, and users.
type Cluster struct {
	*Server
	t    testing.TB
	core kubernetes.Interface
	ctx  context.Context
}

// Cluster returns what a test speaks to the server with. The resource
// definition, the namespaces and BackingClass are installed.
func (s *Server) Cluster(t testing.TB) *Cluster {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 5000, 5000
	c := &Cluster{Server: s, t: t, ctx: context.Background()}
	if c.core, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{api.CANamespace, api.TrustNamespace} {
		_, err := c.core.CoreV1().Namespaces().Create(c.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		c.made(err)
	}
	c.InstallCRD(CRD(t))
	c.AddClass(BackingClass, api.DriverLocal, "WaitForFirstConsumer", "Delete")
	return c
}

// For is the same cluster in the hands of another test.
func (c *Cluster) For(t testing.TB) *Cluster {
	d := *c
	d.t = t
	return &d
}

// Kube is a client of the driver's kind; wrap may be nil.
func (c *Cluster) Kube(wrap func(http.RoundTripper) http.RoundTripper) *kube.Client {
	c.t.Helper()
	k, err := kube.Connect(kube.Options{Kubeconfig: c.Kubeconfig, UserAgent: "kubetest", Rate: 5000, Wrap: wrap, Timeout: 10 * time.Second})
	c.check(err)
	return k
}

// check ends the test on an error; made and gone let what is right already be.
func (c *Cluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cluster) made(err error) {
	c.t.Helper()
	if err != nil && !kube.AlreadyExists(err) {
		c.t.Fatal(err)
	}
}

func (c *Cluster) gone(err error) {
	c.t.Helper()
	if err != nil && !kube.NotFound(err) {
		c.t.Fatal(err)
	}
}

// CRD is the resource definition of this source tree.
func CRD(t testing.TB) []byte {
	t.Helper()
	b, err := Manifest("crd/" + api.Group + "_" + api.Resource + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Manifest reads a file of this source tree's manifests.
func Manifest(name string) ([]byte, error) {
	_, self, _, _ := runtime.Caller(0)
	return os.ReadFile(filepath.Join(filepath.Dir(self), "../../manifests", name))
}

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + api.Resource + "." + api.Group

// InstallCRD applies a resource definition, and waits until it is served.
func (c *Cluster) InstallCRD(yaml []byte) {
	c.t.Helper()
	rest := c.core.CoreV1().RESTClient()
	err := rest.Patch(types.ApplyPatchType).AbsPath(crdPath).Param("fieldManager", "kubetest").Param("force", "true").Body(yaml).Do(c.ctx).Error()
	c.check(err)
	Eventually(c.t, 20*time.Second, "the resource is served", func() bool {
		return rest.Get().AbsPath("/apis/"+api.Group+"/"+api.Version+"/"+api.Resource).Do(c.ctx).Error() == nil
	})
}

// RemoveCRD removes the resource definition, and waits until it is not served.
func (c *Cluster) RemoveCRD() {
	c.t.Helper()
	rest := c.core.CoreV1().RESTClient()
	c.gone(rest.Delete().AbsPath(crdPath).Do(c.ctx).Error())
	Eventually(c.t, 20*time.Second, "the resource is not served", func() bool {
		return apierrors.IsNotFound(rest.Get().AbsPath("/apis/" + api.Group + "/" + api.Version + "/" + api.Resource).Do(c.ctx).Error())
	})
}

// Eventually waits until something is so.
func Eventually(t testing.TB, within time.Duration, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so within %s: %s", within, what)
		}
	}
}

// AddClass makes a StorageClass.
func (c *Cluster) AddClass(name, provisioner, binding, reclaim string) {
	c.t.Helper()
	_, err := c.core.StorageV1().StorageClasses().Create(c.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingMode(binding)), ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimPolicy(reclaim)),
	}, metav1.CreateOptions{})
	c.made(err)
}

// Node is what a test's node is like.
type Node struct {
	Name       string
	NotReady   bool
	Cordoned   bool
	NoDriver   bool // the local driver is not registered
	NoHost     bool // there is no replica host
	HostAiling bool // it is not ready
}

// SetNode makes a node, or makes it so.
func (c *Cluster) SetNode(n Node) {
	c.t.Helper()
	nodes := c.core.CoreV1().Nodes()
	_, err := nodes.Create(c.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, metav1.CreateOptions{})
	c.made(err)
	_, err = nodes.Patch(c.ctx, n.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%v,"taints":null}}`, n.Cordoned), metav1.PatchOptions{})
	c.check(err)
	status := map[bool]string{true: "False", false: "True"}[n.NotReady]
	_, err = nodes.Patch(c.ctx, n.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","lastTransitionTime":"2026-01-01T00:00:00Z","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]}}`, status), metav1.PatchOptions{}, "status")
	c.check(err)
	c.setDrivers(n)
	c.setHost(n)
}

func (c *Cluster) setDrivers(n Node) {
	c.t.Helper()
	csiNodes := c.core.StorageV1().CSINodes()
	c.gone(csiNodes.Delete(c.ctx, n.Name, metav1.DeleteOptions{}))
	k := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if !n.NoDriver {
		k.Spec.Drivers = []storagev1.CSINodeDriver{{Name: api.DriverLocal, NodeID: n.Name}}
	}
	_, err := csiNodes.Create(c.ctx, k, metav1.CreateOptions{})
	c.made(err)
}

func (c *Cluster) setHost(n Node) {
	c.t.Helper()
	pods := c.core.CoreV1().Pods(api.DefaultNamespace)
	name := "node-" + n.Name
	if n.NoHost {
		c.gone(pods.Delete(c.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
		return
	}
	_, err := pods.Create(c.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.LabelComponent: api.ComponentNode}},
		Spec:       corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: api.ContainerHost, Image: "none"}}},
	}, metav1.CreateOptions{})
	c.made(err)
	_, err = pods.Patch(c.ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"containerStatuses":[{"name":%q,"ready":%v,"restartCount":0,"image":"none","imageID":"none"}]}}`, api.ContainerHost, !n.HostAiling), metav1.PatchOptions{}, "status")
	c.check(err)
}

// RemoveNode removes a node and what is on it.
func (c *Cluster) RemoveNode(name string) {
	c.t.Helper()
	c.setHost(Node{Name: name, NoHost: true})
	c.gone(c.core.StorageV1().CSINodes().Delete(c.ctx, name, metav1.DeleteOptions{}))
	c.gone(c.core.CoreV1().Nodes().Delete(c.ctx, name, metav1.DeleteOptions{}))
}

// NewClaim makes an application's claim in the namespace default and returns its UID.
func (c *Cluster) NewClaim(name string, annotations map[string]string) string {
	c.t.Helper()
	p, err := c.core.CoreV1().PersistentVolumeClaims("default").Create(c.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: ptr.To("replicated"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: api.Bytes(1 << 30)}},
		},
	}, metav1.CreateOptions{})
	c.check(err)
	return string(p.UID)
}

// AnnotateClaim changes an annotation of an application's claim; null removes it.
func (c *Cluster) AnnotateClaim(name, key, value string) {
	c.t.Helper()
	_, err := c.core.CoreV1().PersistentVolumeClaims("default").Patch(c.ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value), metav1.PatchOptions{})
	c.check(err)
}

// DeleteClaim deletes an application's claim.
func (c *Cluster) DeleteClaim(name string) {
	c.t.Helper()
	c.gone(c.core.CoreV1().PersistentVolumeClaims("default").Delete(c.ctx, name, metav1.DeleteOptions{}))
}

// AddPV makes a PersistentVolume of the replicated driver that names a volume.
func (c *Cluster) AddPV(name, handle, phase string) {
	c.t.Helper()
	_, err := c.core.CoreV1().PersistentVolumes().Create(c.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Capacity: corev1.ResourceList{corev1.ResourceStorage: api.Bytes(1 << 30)},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "default", Name: "claim-of-" + name},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: api.DriverReplicated, VolumeHandle: handle}},
		},
	}, metav1.CreateOptions{})
	c.made(err)
	c.SetPVPhase(name, phase)
}

// SetPVPhase is what the cluster's own controller does.
func (c *Cluster) SetPVPhase(name, phase string) {
	c.t.Helper()
	_, err := c.core.CoreV1().PersistentVolumes().Patch(c.ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
	c.check(err)
}

// DeletePV deletes a PersistentVolume.
func (c *Cluster) DeletePV(name string) {
	c.t.Helper()
	c.gone(c.core.CoreV1().PersistentVolumes().Delete(c.ctx, name, metav1.DeleteOptions{}))
}

// Provision does once what the local driver's provisioners do: they bind the
// backing claims that are meant for a node that is there, of the volumes named or, without any, of all. drop: they give a
// claim back instead, since the named node has no room.
func (c *Cluster) Provision(drop func(claim, node string) bool, volumes ...string) {
	c.t.Helper()
	selector := api.LabelVolume
	if len(volumes) > 0 {
		selector += " in (" + strings.Join(volumes, ",") + ")"
	}
	list, err := c.core.CoreV1().PersistentVolumeClaims(api.DefaultNamespace).List(c.ctx, metav1.ListOptions{LabelSelector: selector})
	c.check(err)
	for i := range list.Items {
		p := &list.Items[i]
		node := p.Annotations[api.AnnotationSelectedNode]
		if p.Status.Phase == corev1.ClaimBound || node == "" || p.DeletionTimestamp != nil {
			continue
		}
		if drop != nil && drop(p.Name, node) {
			_, err := c.core.CoreV1().PersistentVolumeClaims(p.Namespace).Patch(c.ctx, p.Name, types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, api.AnnotationSelectedNode), metav1.PatchOptions{})
			c.gone(err)
			continue
		}
		c.bind(p)
	}
}

func (c *Cluster) bind(p *corev1.PersistentVolumeClaim) {
	c.t.Helper()
	name := "pv-" + string(p.UID)
	_, err := c.core.CoreV1().PersistentVolumes().Create(c.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: p.Spec.AccessModes, Capacity: p.Spec.Resources.Requests, StorageClassName: *p.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: api.DriverLocal, VolumeHandle: "local-" + string(p.UID)}},
		},
	}, metav1.CreateOptions{})
	c.made(err)
	claims := c.core.CoreV1().PersistentVolumeClaims(p.Namespace)
	_, err = claims.Patch(c.ctx, p.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"volumeName":%q}}`, name), metav1.PatchOptions{})
	if kube.NotFound(err) {
		return
	}
	c.check(err)
	_, err = claims.Patch(c.ctx, p.Name, types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status")
	c.gone(err)
}

// RunPods does once what kubelets do: worker Pods that are deleted go, and the others are ready and told of.
func (c *Cluster) RunPods(ready func(pod string)) {
	c.t.Helper()
	pods := c.core.CoreV1().Pods(api.DefaultNamespace)
	list, err := pods.List(c.ctx, metav1.ListOptions{LabelSelector: api.LabelComponent + "=" + api.ComponentWorker})
	c.check(err)
	for _, p := range list.Items {
		if p.DeletionTimestamp != nil {
			c.gone(pods.Delete(c.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
			continue
		}
		_, err := pods.Patch(c.ctx, p.Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
		c.gone(err)
		ready(p.Name)
	}
}

// AddPod makes a Pod in the driver's namespace, as one of an older release; owner is the kind of
// its controller, empty for none.
func (c *Cluster) AddPod(name, ownerKind string, v *api.ReplicatedVolume) {
	c.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if ownerKind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: api.GroupVersion.String(), Kind: ownerKind, Name: v.Name, UID: v.UID, Controller: ptr.To(true)}}
	}
	_, err := c.core.CoreV1().Pods(api.DefaultNamespace).Create(c.ctx, p, metav1.CreateOptions{})
	c.check(err)
}

// HasPod reports whether there is a Pod that is not being deleted.
func (c *Cluster) HasPod(name string) bool {
	p, err := c.core.CoreV1().Pods(api.DefaultNamespace).Get(c.ctx, name, metav1.GetOptions{})
	return err == nil && p.DeletionTimestamp == nil
}

// Left lists all that is there of a volume, as KIND/NAME.
func (c *Cluster) Left(volume string) []string {
	c.t.Helper()
	o := metav1.ListOptions{LabelSelector: api.LabelVolume + "=" + volume}
	ns := api.DefaultNamespace
	var left []string
	claims, err := c.core.CoreV1().PersistentVolumeClaims(ns).List(c.ctx, o)
	c.check(err)
	for _, x := range claims.Items {
		left = append(left, "claim/"+x.Name)
	}
	services, err := c.core.CoreV1().Services(ns).List(c.ctx, o)
	c.check(err)
	for _, x := range services.Items {
		left = append(left, "service/"+x.Name)
	}
	slicesOf, err := c.core.DiscoveryV1().EndpointSlices(ns).List(c.ctx, o)
	c.check(err)
	for _, x := range slicesOf.Items {
		left = append(left, "endpoint/"+x.Name)
	}
	pods, err := c.core.CoreV1().Pods(ns).List(c.ctx, o)
	c.check(err)
	for _, x := range pods.Items {
		left = append(left, "pod/"+x.Name)
	}
	for _, ns := range []string{ns, api.CANamespace, api.TrustNamespace} {
		secrets, err := c.core.CoreV1().Secrets(ns).List(c.ctx, o)
		c.check(err)
		for _, x := range secrets.Items {
			left = append(left, "secret/"+ns+"/"+x.Name)
		}
	}
	slices.Sort(left)
	return left
}

// Events lists the Events of an object as REASON: MESSAGE.
func (c *Cluster) Events(namespace, name string) []string {
	c.t.Helper()
	list, err := c.core.CoreV1().Events(namespace).List(c.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	c.check(err)
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Reason+": "+strings.TrimSpace(e.Message))
	}
	return all
}

// SetPodEndpoint makes the EndpointSlice that the cluster's own controller makes for
// a Service with a selector.
func (c *Cluster) SetPodEndpoint(volume string, index int32, ip string, port int32) {
	c.t.Helper()
	name := api.ReplicaName(volume, index)
	labels := api.Labels(volume, index)
	labels[discoveryv1.LabelServiceName] = name
	labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-abcde", Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To(api.WorkerPortName), Port: &port}},
	}
	_, err := c.core.DiscoveryV1().EndpointSlices(api.DefaultNamespace).Create(c.ctx, s, metav1.CreateOptions{})
	if kube.AlreadyExists(err) {
		_, err = c.core.DiscoveryV1().EndpointSlices(api.DefaultNamespace).Update(c.ctx, s, metav1.UpdateOptions{})
	}
	c.check(err)
}

// Token is a bearer token of an account that is there.
func (c *Cluster) Token(namespace, account string) string {
	c.t.Helper()
	r, err := c.core.CoreV1().ServiceAccounts(namespace).CreateToken(c.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	c.check(err)
	return r.Status.Token
}
