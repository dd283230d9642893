package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PV is a PersistentVolume.
type PV struct {
	Name, UID      string
	Driver         string
	Handle         string
	ClaimNamespace string
	ClaimName      string
	ClaimUID       string
	Phase          string // Pending, Available, Bound, Released or Failed
	Reclaim        string // Delete, Retain or Recycle
	Deleting       bool
}

func pvOf(p *corev1.PersistentVolume) PV {
	v := PV{Name: p.Name, UID: string(p.UID), Phase: string(p.Status.Phase), Reclaim: string(p.Spec.PersistentVolumeReclaimPolicy), Deleting: p.DeletionTimestamp != nil}
	if p.Spec.CSI != nil {
		v.Driver, v.Handle = p.Spec.CSI.Driver, p.Spec.CSI.VolumeHandle
	}
	if ref := p.Spec.ClaimRef; ref != nil {
		v.ClaimNamespace, v.ClaimName, v.ClaimUID = ref.Namespace, ref.Name, string(ref.UID)
	}
	return v
}

// PV returns a PersistentVolume.
func (c *Client) PV(ctx context.Context, name string) (PV, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	p, err := c.core.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return PV{}, wrap(err, "get volume %s", name)
	}
	return pvOf(p), nil
}

// PVsOf lists the PersistentVolumes that name one of the drivers.
func (c *Client) PVsOf(ctx context.Context, drivers ...string) ([]PV, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, wrap(err, "list persistent volumes")
	}
	var found []PV
	for i := range list.Items {
		v := pvOf(&list.Items[i])
		for _, d := range drivers {
			if v.Driver == d {
				found = append(found, v)
			}
		}
	}
	return found, nil
}

// Class is a StorageClass.
type Class struct {
	Name        string
	Provisioner string
	BindingMode string // WaitForFirstConsumer or Immediate
	Reclaim     string // Delete or Retain
	Parameters  map[string]string
}

// Class returns a StorageClass.
func (c *Client) Class(ctx context.Context, name string) (Class, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	s, err := c.core.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Class{}, wrap(err, "get storage class %s", name)
	}
	return classOf(s), nil
}

// Classes lists all StorageClasses.
func (c *Client) Classes(ctx context.Context) ([]Class, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.core.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, wrap(err, "list storage classes")
	}
	var all []Class
	for i := range list.Items {
		all = append(all, classOf(&list.Items[i]))
	}
	return all, nil
}

func classOf(s *storagev1.StorageClass) Class {
	// The server fills these in where they are left out.
	k := Class{Name: s.Name, Provisioner: s.Provisioner, BindingMode: string(storagev1.VolumeBindingImmediate), Reclaim: string(corev1.PersistentVolumeReclaimDelete), Parameters: s.Parameters}
	if s.VolumeBindingMode != nil {
		k.BindingMode = string(*s.VolumeBindingMode)
	}
	if s.ReclaimPolicy != nil {
		k.Reclaim = string(*s.ReclaimPolicy)
	}
	return k
}
