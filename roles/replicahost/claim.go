package replicahost

import (
	"context"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// recordedPatience bounds what is asked of the API for a replica that can start without an answer.
const recordedPatience = 3 * time.Second

// patience bounds what is asked of the API before the replica starts.
func (r *replica) patience() time.Duration {
	if r.record.held() && r.haveCredentials() == nil {
		return recordedPatience
	}
	return callPatience
}

// hold puts the finalizer on the backing claim and records which storage it is.
func (r *replica) hold(ctx context.Context, a *Assignment) *obstacle {
	ctx, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	if r.record.held() {
		return r.holdOn(ctx, a)
	}
	claim, pv, o, err := r.claimed(ctx, a)
	if o != nil {
		return o
	}
	if err == nil {
		err = r.host.cluster.AddClaimFinalizer(ctx, claim, api.FinalizerBackingUse)
	}
	if err != nil {
		return pending(api.HostReasonWaitingForClaim, "%v", err)
	}
	r.record.PVCUID, r.record.PV, r.record.Handle = claim.UID, pv.Name, pv.Handle
	if err := r.host.store.save(r.record); err != nil {
		r.record.PVCUID, r.record.PV, r.record.Handle = "", "", ""
		return unavailable(api.HostReasonWaitingForClaim, "%v", err)
	}
	r.mu.Lock()
	r.mu.status.PVCUID, r.mu.status.PV = claim.UID, pv.Name
	r.mu.Unlock()
	return nil
}

// holdOn has a recorded replica go on with what is recorded, whatever has become of the objects that name it (C6): a claim that
// is lost, or being deleted, or gone, a PersistentVolume that is gone, an API that does not answer. Only that the claim is
// there and is another one keeps it from it.
func (r *replica) holdOn(ctx context.Context, a *Assignment) *obstacle {
	claim, err := r.host.cluster.Claim(ctx, r.host.cluster.Namespace(), a.Claim)
	if err != nil {
		r.log.Info("going on with what is recorded", zap.Error(err))
		return nil
	}
	conflict := func(uid, pv, handle string) *obstacle {
		return unavailable(api.HostReasonIdentityConflict, "claim %s is another one than recorded: it has UID %s, volume %s and handle %s, recorded are %s, %s and %s",
			a.Claim, uid, pv, handle, r.record.PVCUID, r.record.PV, r.record.Handle)
	}
	if claim.UID != r.record.PVCUID || claim.PV != r.record.PV {
		return conflict(claim.UID, claim.PV, "")
	}
	switch pv, err := r.host.cluster.PV(ctx, claim.PV); {
	case err != nil:
		r.log.Info("going on with the volume that is recorded", zap.Error(err))
	case pv.Driver != api.DriverLocal || pv.Handle != r.record.Handle:
		return conflict(claim.UID, pv.Name, pv.Handle)
	}
	if claim.Deleting {
		return nil // the server takes no more finalizers
	}
	if err := r.host.cluster.AddClaimFinalizer(ctx, claim, api.FinalizerBackingUse); err != nil && !kube.Uncertain(err) {
		return pending(api.HostReasonWaitingForClaim, "%v", err)
	}
	return nil
}

// claimed looks the claim and its volume up. An obstacle says that the API has
// answered and the storage can't be used; an error, that it has not answered.
func (r *replica) claimed(ctx context.Context, a *Assignment) (c kube.Claim, pv kube.PV, o *obstacle, err error) {
	c, err = r.host.cluster.Claim(ctx, r.host.cluster.Namespace(), a.Claim)
	switch {
	case kube.NotFound(err):
		return c, pv, pending(api.HostReasonWaitingForClaim, "there is no claim %s yet", a.Claim), nil
	case err != nil:
		return c, pv, nil, err
	case !c.Bound || c.PV == "":
		return c, pv, pending(api.HostReasonWaitingForClaim, "claim %s is not bound yet", a.Claim), nil
	case c.Deleting && !c.HasFinalizer(api.FinalizerBackingUse):
		return c, pv, pending(api.HostReasonWaitingForClaim, "claim %s is being deleted", a.Claim), nil
	}
	pv, err = r.host.cluster.PV(ctx, c.PV)
	switch {
	case err != nil:
		return c, pv, nil, err
	case pv.Driver != api.DriverLocal || pv.Handle == "":
		return c, pv, unavailable(api.HostReasonWaitingForClaim, "volume %s is not of driver %s", pv.Name, api.DriverLocal), nil
	}
	return c, pv, nil, nil
}

// findHeld finds out what a replica without a record may hold: nothing if its
// claim never had the finalizer.
func (r *replica) findHeld(ctx context.Context, a *Assignment) (held bool, o *obstacle) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	c, err := r.host.cluster.Claim(ctx, r.host.cluster.Namespace(), a.Claim)
	if kube.NotFound(err) {
		return false, nil
	}
	var pv kube.PV
	if err == nil && c.PV != "" {
		if pv, err = r.host.cluster.PV(ctx, c.PV); kube.NotFound(err) {
			err = nil
		}
	}
	if err != nil {
		return false, &obstacle{phase: api.ReplicaReleasing, reason: api.HostReasonUnpublishing, message: err.Error()}
	}
	r.record.PVCUID, r.record.PV, r.record.Handle = c.UID, c.PV, pv.Handle
	return c.HasFinalizer(api.FinalizerBackingUse) && pv.Handle != "" && pv.Driver == api.DriverLocal, nil
}

// credentialFiles are the parts of a replica's Secret that a worker reads.
var credentialFiles = []string{"ca.crt", "server.crt", "server.key", "peer.crt", "peer.key"}

// credentials brings the replica's credentials to the host's disk. Without an answer of the
// API within that time those that are there have to do.
func (r *replica) credentials(ctx context.Context, a *Assignment, within time.Duration) *obstacle {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	files := pki.OSFiles(r.host.store.trust(r.key))
	secret, err := r.host.cluster.Secret(ctx, api.TrustNamespace, a.Replica())
	if err == nil {
		for _, name := range credentialFiles {
			if len(secret.Data[name]) == 0 {
				return pending(api.HostReasonNoCredentials, "secret %s/%s has no %s", api.TrustNamespace, a.Replica(), name)
			}
			if have, err := files.Read(name); err == nil && slices.Equal(have, secret.Data[name]) {
				continue
			}
			if err := files.Write(name, secret.Data[name]); err != nil {
				return unavailable(api.HostReasonNoCredentials, "%v", err)
			}
		}
		return nil
	}
	if missing := r.haveCredentials(); missing != nil {
		if os.IsNotExist(missing) {
			missing = err
		}
		return pending(api.HostReasonNoCredentials, "%v", missing)
	}
	return nil
}

// haveCredentials returns why the host's disk does not have all of the replica's credentials.
func (r *replica) haveCredentials() error {
	files := pki.OSFiles(r.host.store.trust(r.key))
	for _, name := range credentialFiles {
		if _, err := files.Read(name); err != nil {
			return err
		}
	}
	return nil
}
