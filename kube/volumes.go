package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"tak-os.org/tak-replicated/kube/api"
)

// Volume returns a ReplicatedVolume.
func (c *Client) Volume(ctx context.Context, name string) (*api.ReplicatedVolume, error) {
	v := &api.ReplicatedVolume{}
	err := c.on(c.volumes.Get()).Name(name).Do(ctx).Into(v)
	return v, wrap(err, "get volume %s", name)
}

// Volumes lists all ReplicatedVolumes.
func (c *Client) Volumes(ctx context.Context) ([]api.ReplicatedVolume, error) {
	var list api.ReplicatedVolumeList
	err := c.on(c.volumes.Get()).Do(ctx).Into(&list)
	return list.Items, wrap(err, "list volumes")
}

// CreateVolume makes a ReplicatedVolume, with the finalizer that keeps it. It
// reports ErrOldSchema, and leaves nothing, when the cluster's resource drops fields
// of spec.
func (c *Client) CreateVolume(ctx context.Context, v *api.ReplicatedVolume) (*api.ReplicatedVolume, error) {
	v = v.DeepCopy()
	v.APIVersion, v.Kind = api.GroupVersion.String(), api.Kind
	v.Namespace = c.ns
	made := &api.ReplicatedVolume{}
	err := c.on(c.volumes.Post()).VersionedParams(&metav1.CreateOptions{FieldValidation: "Strict"}, metav1.ParameterCodec).
		Body(v).Do(ctx).Into(made)
	if apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "unknown field") {
		err = fmt.Errorf("%w: %w", ErrOldSchema, err)
	}
	return made, wrap(err, "create volume %s", v.Name)
}

// UpdateVolume writes spec and metadata of a volume that was read before. It is
// a Conflict if the volume has changed since.
func (c *Client) UpdateVolume(ctx context.Context, v *api.ReplicatedVolume) (*api.ReplicatedVolume, error) {
	v = v.DeepCopy()
	v.APIVersion, v.Kind = api.GroupVersion.String(), api.Kind
	now := &api.ReplicatedVolume{}
	err := c.on(c.volumes.Put()).Name(v.Name).Body(v).Do(ctx).Into(now)
	return now, wrap(err, "update volume %s", v.Name)
}

// DeleteVolume asks for the removal of a volume that was read before; it goes
// when its finalizer does. It is no error if it is gone.
func (c *Client) DeleteVolume(ctx context.Context, v *api.ReplicatedVolume) error {
	err := c.on(c.volumes.Delete()).Name(v.Name).Body(deleteExactly(string(v.UID), "")).Do(ctx).Error()
	return wrap(ignore(err, NotFound), "delete volume %s", v.Name)
}

// ManagerStatus is the part of a volume's status that the manager writes.
type ManagerStatus struct {
	Phase              api.VolumePhase  `json:"phase,omitempty"`
	Runtime            api.Runtime      `json:"runtime,omitempty"`
	Ready              string           `json:"ready,omitempty"`
	ReadyReplicas      int32            `json:"readyReplicas,omitempty"`
	ObservedGeneration int64            `json:"observedGeneration,omitempty"`
	Owner              *api.VolumeOwner `json:"owner,omitempty"`
	Fence              *api.FenceStatus `json:"fence,omitempty"`
	KnownLoss          []api.KnownLoss  `json:"knownLoss,omitempty"`
	Conditions         []api.Condition  `json:"conditions,omitempty"`
}

// ManagerStatusOf is that part of a status.
func ManagerStatusOf(s *api.ReplicatedVolumeStatus) ManagerStatus {
	return ManagerStatus{
		Phase: s.Phase, Runtime: s.Runtime, Ready: s.Ready, ReadyReplicas: s.ReadyReplicas, ObservedGeneration: s.ObservedGeneration,
		Owner: s.Owner, Fence: s.Fence, KnownLoss: s.KnownLoss, Conditions: s.Conditions,
	}
}

// ApplyManagerStatus replaces the manager's part of a volume's status. What it
// leaves out is removed. It is a Conflict if another volume has the name by now.
func (c *Client) ApplyManagerStatus(ctx context.Context, v *api.ReplicatedVolume, s ManagerStatus) error {
	return c.applyStatus(ctx, v, api.FieldOwnerManager, s)
}

// ApplyReplicaStatus replaces what the host of a node says of its replicas of
// a volume: all of them, at most one in use and those it has yet to destroy. Without any, what the host
// has said is removed. It is a Conflict if another volume has the name by now.
func (c *Client) ApplyReplicaStatus(ctx context.Context, v *api.ReplicatedVolume, node string, replicas, retired []api.ReplicaStatus) error {
	owner := api.HostFieldOwner(node)
	if len(replicas)+len(retired) == 0 {
		return c.applyStatus(ctx, v, owner, nothingToSay)
	}
	return c.applyStatus(ctx, v, owner, struct {
		Replicas []api.ReplicaStatus `json:"replicas,omitempty"`
		Retired  []api.ReplicaStatus `json:"retired,omitempty"`
	}{replicas, retired})
}

// nothingToSay removes what was said before. It has a field: a status that has become empty is invalid.
var nothingToSay = map[string]any{"replicas": []any{}}

func (c *Client) applyStatus(ctx context.Context, v *api.ReplicatedVolume, owner string, status any) error {
	type metadata struct {
		Name      string    `json:"name"`
		Namespace string    `json:"namespace"`
		UID       types.UID `json:"uid"`
	}
	body, err := json.Marshal(struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
		Status     any      `json:"status"`
	}{api.GroupVersion.String(), api.Kind, metadata{v.Name, c.ns, v.UID}, status})
	if err != nil {
		return fmt.Errorf("encode status of volume %s: %w", v.Name, err)
	}
	force := true
	now := &api.ReplicatedVolume{}
	err = c.on(c.volumes.Patch(types.ApplyPatchType)).Name(v.Name).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: owner, Force: &force}, metav1.ParameterCodec).
		Body(body).Do(ctx).Into(now)
	if err == nil && now.UID != v.UID {
		// The server does not compare UIDs of a status: what was written is taken back.
		err = apierrors.NewConflict(apischema.GroupResource{Group: api.Group, Resource: api.Resource}, v.Name, errors.New("it is another volume by now"))
		if back := c.applyStatus(ctx, now, owner, nothingToSay); back != nil {
			err = errors.Join(err, back)
		}
	}
	return wrap(err, "apply status of volume %s", v.Name)
}

// on addresses the driver's own resource.
func (c *Client) on(r *rest.Request) *rest.Request {
	return r.Namespace(c.ns).Resource(api.Resource).Timeout(c.timeout)
}

func deleteExactly(uid, resourceVersion string) *metav1.DeleteOptions {
	p := &metav1.Preconditions{}
	if uid != "" {
		u := types.UID(uid)
		p.UID = &u
	}
	if resourceVersion != "" {
		p.ResourceVersion = &resourceVersion
	}
	return &metav1.DeleteOptions{Preconditions: p}
}

// wrap says what was tried, around an error that is none.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
