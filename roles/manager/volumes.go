package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

var _ replicated.Volumes = (*manager)(nil)

// How long a CSI call waits when its caller sets no deadline, how much of the caller's time is
// kept for the answer, and how often it is looked. A look at the API server is twice as long after the one before, up to
// waitSeldom: many calls may be waiting, and what they take the reconciler lacks.
const (
	waitMost   = time.Minute
	waitSpare  = 500 * time.Millisecond
	waitEvery  = 250 * time.Millisecond
	waitSeldom = 4 * time.Second
)

func say(kind replicated.Kind, format string, args ...any) error {
	return &replicated.Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Provision implements replicated.Volumes.
func (m *manager) Provision(ctx context.Context, r replicated.Request) (int64, error) {
	v, err := m.kube.Volume(ctx, r.Name)
	if kube.NotFound(err) {
		v, err = m.begin(ctx, r)
	}
	if err != nil {
		return 0, unknown(err)
	}
	if err := sameVolume(v, r); err != nil {
		return 0, err
	}
	m.due(r.Name)
	return m.awaitProvisioned(ctx, v)
}

// unknown makes an error that is none of ours one after which nobody knows.
func unknown(err error) error {
	var own *replicated.Error
	if errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return say(replicated.Unknown, "%v", err)
}

// sameVolume compares a request with a volume that is there. The number of
// replicas was read once, and is not compared (A6).
func sameVolume(v *api.ReplicatedVolume, r replicated.Request) error {
	if v.Spec.Reclaim != nil {
		return say(replicated.Pending, "volume %s is being destroyed: %s", v.Name, conditionMessage(v, api.ConditionReclaim))
	}
	switch {
	case v.Spec.AccessMode != accessMode(r.Access):
		return say(replicated.Different, "volume %s exists with access mode %s", v.Name, v.Spec.AccessMode)
	case v.Spec.Capacity.Value() != r.Bytes:
		return say(replicated.Different, "volume %s exists with a capacity of %d bytes", v.Name, v.Spec.Capacity.Value())
	case v.Spec.BackingStorageClass != r.BackingClass:
		return say(replicated.Different, "volume %s exists with backing class %s", v.Name, v.Spec.BackingStorageClass)
	case v.Spec.Quota != quotaOf(r):
		return say(replicated.Different, "volume %s exists with quota %s", v.Name, v.Spec.Quota)
	}
	return nil
}

func accessMode(a replicated.Access) api.AccessMode {
	if a == replicated.OneNode {
		return api.ReadWriteOnce
	}
	return api.ReadWriteMany
}

func quotaOf(r replicated.Request) api.Quota {
	if r.QuotaEnforced {
		return api.QuotaEnforced
	}
	return api.QuotaNone
}

// begin checks what a new volume needs, places it, and writes it down. Before
// that nothing is made.
func (m *manager) begin(ctx context.Context, r replicated.Request) (*api.ReplicatedVolume, error) {
	if err := m.kube.CheckSchema(ctx); err != nil {
		return nil, err
	}
	claim, err := m.claimOf(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := m.checkBackingClass(ctx, r.BackingClass); err != nil {
		return nil, err
	}
	count := r.Replicas
	if text, ok := claim.Annotations[api.AnnotationReplicas]; ok {
		if count, ok = replicated.ParseReplicas(text); !ok {
			return nil, say(replicated.Refused, `annotation %s of claim %s/%s: %q is not "1", "2", "3" or "4"`, api.AnnotationReplicas, claim.Namespace, claim.Name, text)
		}
	}
	nodes, err := m.kube.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	volumes, err := m.kube.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	chosen, err := place(r.Name, count, nodes, loadOf(pointers(volumes)))
	if err != nil {
		n := notice{kube.ObjectOfClaim(claim.Namespace, claim.Name, claim.UID), true, api.ReasonTooFewNodes, err.Error()}
		if m.told.due(r.Name, n, m.now()) {
			if err := m.kube.Event(ctx, component, n.about, n.warning, n.reason, n.message); err != nil {
				m.log.Debug("event", zap.Error(err))
			}
		}
		return nil, say(replicated.NoCapacity, "%v", err)
	}
	v, err := m.kube.CreateVolume(ctx, newVolume(r, claim, chosen, m.cfg.runtime()))
	if kube.AlreadyExists(err) {
		return m.kube.Volume(ctx, r.Name)
	}
	return v, err
}

// claimOf is the claim that the volume is made for: the one whose UID is in its name.
func (m *manager) claimOf(ctx context.Context, r replicated.Request) (kube.Claim, error) {
	uid, ok := api.ClaimUID(r.Name)
	if !ok {
		return kube.Claim{}, say(replicated.Refused, "volume name %q is not pvc-UID: leave external-provisioner's --volume-name-prefix as it is", r.Name)
	}
	claim, err := m.kube.Claim(ctx, r.ClaimNamespace, r.ClaimName)
	switch {
	case kube.NotFound(err):
		return kube.Claim{}, say(replicated.Refused, "claim %s/%s, which the volume is for, does not exist", r.ClaimNamespace, r.ClaimName)
	case err != nil:
		return kube.Claim{}, err
	case claim.UID != uid:
		return kube.Claim{}, say(replicated.Refused, "claim %s/%s has UID %s, and the volume's name says %s", r.ClaimNamespace, r.ClaimName, claim.UID, uid)
	}
	return claim, nil
}

// checkBackingClass refuses a class that can't hold replicas, naming the field (D2).
func (m *manager) checkBackingClass(ctx context.Context, name string) error {
	k, err := m.kube.Class(ctx, name)
	switch {
	case kube.NotFound(err):
		return say(replicated.Refused, "backingStorageClass: StorageClass %q does not exist", name)
	case err != nil:
		return err
	case k.Provisioner != api.DriverLocal:
		return say(replicated.Refused, "backingStorageClass: provisioner of %q is %s, it has to be %s", name, k.Provisioner, api.DriverLocal)
	case k.BindingMode != "WaitForFirstConsumer":
		return say(replicated.Refused, "backingStorageClass: volumeBindingMode of %q is %s, it has to be WaitForFirstConsumer", name, k.BindingMode)
	case k.Reclaim != "Delete":
		return say(replicated.Refused, "backingStorageClass: reclaimPolicy of %q is %s, it has to be Delete", name, k.Reclaim)
	}
	return nil
}

func newVolume(r replicated.Request, claim kube.Claim, nodes []string, runtime api.Runtime) *api.ReplicatedVolume {
	v := &api.ReplicatedVolume{
		ObjectMeta: api.ObjectMeta{Name: r.Name, Finalizers: []string{api.FinalizerVolume}},
		Spec: api.ReplicatedVolumeSpec{
			AccessMode: accessMode(r.Access), ReplicaCount: int32(len(nodes)), Capacity: api.Bytes(r.Bytes), Quota: quotaOf(r),
			BackingStorageClass: r.BackingClass, Runtime: runtime,
			Claim: api.ClaimReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		},
	}
	for i, node := range nodes {
		v.Spec.Replicas = append(v.Spec.Replicas, api.ReplicaSpec{
			Index: int32(i + 1), Node: node, Incarnation: 1, Member: int64(i + 1), Placement: 1, State: api.StateServing,
		})
	}
	return v
}

// awaitProvisioned waits until the volume has had a quorum.
func (m *manager) awaitProvisioned(ctx context.Context, v *api.ReplicatedVolume) (int64, error) {
	err := m.await(ctx, v.Name, func(now *api.ReplicatedVolume) error {
		switch {
		case now == nil:
			return say(replicated.Unknown, "volume %s is gone", v.Name)
		case now.Spec.Reclaim != nil:
			return say(replicated.Pending, "volume %s is being destroyed", v.Name)
		case now.Is(api.ConditionProvisioned):
			return nil
		}
		return errWait{say(replicated.Pending, "volume %s is being provisioned: %s", v.Name, conditionMessage(now, api.ConditionProvisioned))}
	})
	return v.Spec.Capacity.Value(), err
}

// errWait is an answer that may change.
type errWait struct{ error }

// await looks at a volume until look has an answer, or the caller's time is
// over; then the last answer counts.
func (m *manager) await(ctx context.Context, name string, look func(*api.ReplicatedVolume) error) error {
	limit := waitMost
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline) - waitSpare
	}
	over := time.After(limit)
	pause := waitEvery
	for {
		v, seen, err := m.glance(ctx, name)
		switch {
		case kube.NotFound(err):
			err = look(nil)
		case err != nil:
			err = errWait{unknown(err)}
		default:
			err = look(v)
		}
		var wait errWait
		if !errors.As(err, &wait) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return wait.error
		case <-time.After(pause):
		}
		if !seen {
			pause = min(2*pause, waitSeldom)
		}
	}
}

// glance is a volume as last seen, where this manager acts and so watches all of them; else, or when it is not
// among them, as the API server has it now.
func (m *manager) glance(ctx context.Context, name string) (v *api.ReplicatedVolume, seen bool, err error) {
	if w := m.watched.Load(); w != nil {
		if v, seen = w.Get(name); seen {
			return v, true, nil
		}
	}
	v, err = m.kube.Volume(ctx, name)
	return v, false, err
}

func conditionMessage(v *api.ReplicatedVolume, typ string) string {
	if c := v.Condition(typ); c != nil && c.Message != "" {
		return c.Message
	}
	return "nothing is known yet"
}

// Destroy implements replicated.Volumes.
func (m *manager) Destroy(ctx context.Context, handle string) error {
	v, err := m.kube.Volume(ctx, handle)
	switch {
	case kube.NotFound(err):
		return nil
	case err != nil:
		return unknown(err)
	}
	if v.Spec.Reclaim == nil {
		if err := m.refuseInUse(ctx, handle); err != nil {
			return unknown(err)
		}
		if err := m.requestReclaim(ctx, v, api.ReclaimDeleteVolume); err != nil {
			if kube.Conflict(err) {
				return say(replicated.Pending, "volume %s has just changed", handle)
			}
			return unknown(err)
		}
	}
	m.due(handle)
	return m.await(ctx, handle, func(now *api.ReplicatedVolume) error {
		if now == nil {
			return nil
		}
		kind := replicated.Pending
		if c := now.Condition(api.ConditionReclaim); c != nil && (c.Reason == api.ReasonConsumersPresent || c.Reason == api.ReasonVolumeInUse) {
			kind = replicated.InUse
		}
		return errWait{say(kind, "volume %s is being destroyed: %s", handle, conditionMessage(now, api.ConditionReclaim))}
	})
}

// refuseInUse refuses to destroy a volume that a bound PersistentVolume names.
func (m *manager) refuseInUse(ctx context.Context, handle string) error {
	pvs, err := m.kube.PVsOf(ctx, api.DriverReplicated)
	if err != nil {
		return err
	}
	for _, pv := range pvs {
		if pv.Handle == handle && pv.Phase == "Bound" {
			return say(replicated.InUse, "PersistentVolume %s, which claim %s/%s uses, names volume %s", pv.Name, pv.ClaimNamespace, pv.ClaimName, handle)
		}
	}
	return nil
}

// Access implements replicated.Volumes.
func (m *manager) Access(ctx context.Context, handle string) (replicated.Access, error) {
	v, err := m.kube.Volume(ctx, handle)
	switch {
	case kube.NotFound(err):
		return 0, say(replicated.Missing, "there is no volume %s", handle)
	case err != nil:
		return 0, unknown(err)
	case v.Spec.AccessMode == api.ReadWriteOnce:
		return replicated.OneNode, nil
	}
	return replicated.ManyNodes, nil
}
