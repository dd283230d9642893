package replicahost

import (
	"context"
	"os"
	"slices"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// hold puts the finalizer on the backing claim and records which storage it is.
// A recorded replica does not need the API's answer.
func (r *replica) hold(ctx context.Context, a *Assignment) *obstacle {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	claim, pv, o, err := r.claimed(ctx, a)
	switch {
	case o != nil:
		return o
	case err != nil && r.record.held():
		r.log.Info("going on with what is recorded", zap.Error(err))
		return nil
	case err != nil:
		return pending(api.HostReasonWaitingForClaim, "%v", err)
	case r.record.held() && (r.record.PVCUID != claim.UID || r.record.PV != pv.Name || r.record.Handle != pv.Handle):
		return unavailable(api.HostReasonIdentityConflict, "claim %s is another one than recorded: it has UID %s and volume %s, recorded are %s and %s",
			a.Claim, claim.UID, pv.Name, r.record.PVCUID, r.record.PV)
	}
	if err := r.host.cluster.AddClaimFinalizer(ctx, claim, api.FinalizerBackingUse); err != nil && !(r.record.held() && kube.Uncertain(err)) {
		return pending(api.HostReasonWaitingForClaim, "%v", err)
	}
	if r.record.held() {
		return nil
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

// claimed looks the claim and its volume up. An obstacle says that the API has
// answered and the storage can't be used; an error, that it has not answered.
func (r *replica) claimed(ctx context.Context, a *Assignment) (c kube.Claim, pv kube.PV, o *obstacle, err error) {
	c, err = r.host.cluster.Claim(ctx, r.host.cluster.Namespace(), a.Claim)
	switch {
	case kube.NotFound(err) && r.record.held():
		return c, pv, nil, err // storage is not lost with the object that names it
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

// credentials brings the replica's credentials to the host's disk. Without the
// API those that are there have to do.
func (r *replica) credentials(ctx context.Context, a *Assignment) *obstacle {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
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
	for _, name := range credentialFiles {
		if _, missing := files.Read(name); missing != nil {
			if os.IsNotExist(missing) {
				missing = err
			}
			return pending(api.HostReasonNoCredentials, "%v", missing)
		}
	}
	return nil
}
