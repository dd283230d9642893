package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tak-os.org/tak-replicated/kube/api"
)

// Claim is a PersistentVolumeClaim.
type Claim struct {
	Namespace, Name, UID string
	ResourceVersion      string
	Class                string
	Annotations          map[string]string
	Labels               map[string]string
	Finalizers           []string
	SelectedNode         string // empty: none, or the provisioner has dropped it
	Bound                bool
	Lost                 bool   // its volume has gone
	PV                   string // empty until bound
	RequestBytes         int64
	Deleting             bool
}

// HasFinalizer reports whether a finalizer keeps the claim.
func (c *Claim) HasFinalizer(name string) bool { return slices.Contains(c.Finalizers, name) }

func claimOf(p *corev1.PersistentVolumeClaim) Claim {
	c := Claim{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion,
		Annotations: p.Annotations, Labels: p.Labels, Finalizers: p.Finalizers,
		SelectedNode: p.Annotations[api.AnnotationSelectedNode],
		Bound:        p.Status.Phase == corev1.ClaimBound, Lost: p.Status.Phase == corev1.ClaimLost, PV: p.Spec.VolumeName,
		Deleting: p.DeletionTimestamp != nil,
	}
	if p.Spec.StorageClassName != nil {
		c.Class = *p.Spec.StorageClassName
	}
	size := p.Spec.Resources.Requests[corev1.ResourceStorage]
	c.RequestBytes = size.Value()
	return c
}

// Claim returns a claim.
func (c *Client) Claim(ctx context.Context, namespace, name string) (Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	p, err := c.core.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Claim{}, wrap(err, "get claim %s/%s", namespace, name)
	}
	return claimOf(p), nil
}

// BackingClaims lists the backing claims of a volume.
func (c *Client) BackingClaims(ctx context.Context, volume string) ([]Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.CoreV1().PersistentVolumeClaims(c.ns).List(ctx, ofVolume(volume))
	if err != nil {
		return nil, wrap(err, "list backing claims of volume %s", volume)
	}
	var claims []Claim
	for i := range list.Items {
		claims = append(claims, claimOf(&list.Items[i]))
	}
	return claims, nil
}

// NewBackingClaim is a backing claim to be made.
type NewBackingClaim struct {
	Volume      string
	Index       int32
	Incarnation int64
	Node        string
	Class       string
	Capacity    api.Quantity
}

// CreateBackingClaim makes the claim of a life of a replica, which is to be
// provisioned on the node named.
func (c *Client) CreateBackingClaim(ctx context.Context, n NewBackingClaim) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	name := api.BackingClaimName(n.Volume, n.Index, n.Incarnation)
	_, err := c.core.CoreV1().PersistentVolumeClaims(c.ns).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: api.Labels(n.Volume, n.Index),
			Annotations: map[string]string{
				api.AnnotationSelectedNode: n.Node,
				api.AnnotationIncarnation:  fmt.Sprint(n.Incarnation),
			},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &n.Class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: n.Capacity}},
		},
	}, metav1.CreateOptions{})
	return wrap(err, "create backing claim %s", name)
}

// DeleteClaimUnchanged deletes a claim if it is still as it was when it was looked at; else it
// is a Conflict. It is no error if it is gone.
func (c *Client) DeleteClaimUnchanged(ctx context.Context, claim Claim) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.core.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(ctx, claim.Name, *deleteExactly(claim.UID, claim.ResourceVersion))
	return wrap(ignore(err, NotFound), "delete claim %s", claim.Name)
}

// AddClaimFinalizer adds a finalizer to the claim that was looked at. It is a Conflict if
// the claim has changed since; nothing is written if the finalizer is there.
func (c *Client) AddClaimFinalizer(ctx context.Context, claim Claim, finalizer string) error {
	if claim.HasFinalizer(finalizer) {
		return nil
	}
	return c.setFinalizers(ctx, claim, append(slices.Clone(claim.Finalizers), finalizer))
}

// RemoveClaimFinalizer removes a finalizer from the claim that was looked at. It is a
// Conflict if the claim has changed since.
func (c *Client) RemoveClaimFinalizer(ctx context.Context, claim Claim, finalizer string) error {
	if !claim.HasFinalizer(finalizer) {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(claim.Finalizers), func(f string) bool { return f == finalizer })
	return c.setFinalizers(ctx, claim, kept)
}

func (c *Client) setFinalizers(ctx context.Context, claim Claim, finalizers []string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	patch, err := metadataPatch(claim.UID, claim.ResourceVersion, "finalizers", finalizers)
	if err != nil {
		return err
	}
	_, err = c.core.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, mergePatch, patch, metav1.PatchOptions{})
	return wrap(err, "set finalizers of claim %s", claim.Name)
}

// claimType and volumeOf are what the watch of claims needs.
var claimType = &corev1.PersistentVolumeClaim{}

func volumeOf(obj any) (string, bool) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", false
	}
	volume, ok := m.GetLabels()[api.LabelVolume]
	return volume, ok
}
