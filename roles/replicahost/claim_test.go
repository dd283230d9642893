package replicahost

import (
	"context"
	"errors"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// claims is a cluster with one claim, whose server may refuse.
type claims struct {
	Cluster
	claim    kube.Claim
	claimErr error
	pv       kube.PV
	pvErr    error
	putErr   error // for another finalizer
	put      *int
}

func (claims) Namespace() string { return api.DefaultNamespace }

func (c claims) Claim(context.Context, string, string) (kube.Claim, error) {
	return c.claim, c.claimErr
}

func (c claims) PV(context.Context, string) (kube.PV, error) { return c.pv, c.pvErr }

func (c claims) AddClaimFinalizer(context.Context, kube.Claim, string) error {
	*c.put++
	return c.putErr
}

// TestHold is a table of what becomes of a replica's claim: a recorded one goes on with its record unless the claim is there and another
// one (C6), and one that is not recorded waits for storage that it can have.
func TestHold(t *testing.T) {
	good := claims{
		claim: kube.Claim{Name: "v-r1", UID: "uid", PV: "pv", Bound: true}, pv: kube.PV{Name: "pv", Driver: api.DriverLocal, Handle: "handle"},
	}
	for name, c := range map[string]struct {
		change        func(*claims)
		fresh, record string // the obstacle's reason, or none
		put           int    // finalizers of the recorded one
	}{
		"as it was":     {func(*claims) {}, "", "", 1},
		"lost":          {func(c *claims) { c.claim.Bound, c.claim.Lost, c.pvErr = false, true, kubetest.NotFound("pv") }, api.HostReasonWaitingForClaim, "", 1},
		"pending again": {func(c *claims) { c.claim.Bound = false }, api.HostReasonWaitingForClaim, "", 1},
		"no volume":     {func(c *claims) { c.pvErr = kubetest.NotFound("pv") }, api.HostReasonWaitingForClaim, "", 1},
		"no claim":      {func(c *claims) { c.claim, c.claimErr = kube.Claim{}, kubetest.NotFound("v-r1") }, api.HostReasonWaitingForClaim, "", 0},
		"no answer":     {func(c *claims) { c.claim, c.claimErr = kube.Claim{}, errors.New("no route to host") }, api.HostReasonWaitingForClaim, "", 0},
		"being deleted": {func(c *claims) { c.claim.Deleting = true }, api.HostReasonWaitingForClaim, "", 0},
		"held and being deleted": {func(c *claims) {
			c.claim.Deleting, c.claim.Finalizers = true, []string{api.FinalizerBackingUse}
		}, "", "", 0},
		"no more answers": {func(c *claims) { c.putErr = errors.New("no route to host") }, api.HostReasonWaitingForClaim, "", 1},
		"another claim":   {func(c *claims) { c.claim.UID = "later" }, "", api.HostReasonIdentityConflict, 0},
		"another volume":  {func(c *claims) { c.claim.PV, c.pv.Name = "later", "later" }, "", api.HostReasonIdentityConflict, 0},
		"another handle":  {func(c *claims) { c.pv.Handle = "later" }, "", api.HostReasonIdentityConflict, 0},
	} {
		t.Run(name, func(t *testing.T) {
			hold := func(rec *Record) (reason string, put int) {
				cluster := good
				cluster.put = &put
				c.change(&cluster)
				a := Assignment{Volume: "v", Index: 1, Incarnation: 1, Claim: "v-r1"}
				if rec != nil {
					rec.Assignment = a
				}
				if o := newReplica(seatedHost(t, cluster, 1), a, rec).hold(t.Context(), &a); o != nil {
					reason = o.reason
				}
				return reason, put
			}
			if reason, _ := hold(nil); reason != c.fresh {
				t.Errorf("without a record: %q", reason)
			}
			if reason, put := hold(&Record{Version: recordVersion, PVCUID: "uid", PV: "pv", Handle: "handle"}); reason != c.record || put != c.put {
				t.Errorf("recorded: %q, %d finalizers put", reason, put)
			}
		})
	}
}

// mute is an API that does not answer. It notes for how long it is waited for.
type mute struct {
	Cluster
	waits map[string]time.Duration
}

func (mute) Namespace() string { return api.DefaultNamespace }

func (m mute) wait(ctx context.Context, what string) error {
	end, _ := ctx.Deadline()
	m.waits[what] = time.Until(end)
	return context.DeadlineExceeded
}

func (m mute) Claim(ctx context.Context, _, _ string) (kube.Claim, error) {
	return kube.Claim{}, m.wait(ctx, "claim")
}

func (m mute) Secret(ctx context.Context, _, _ string) (kube.Secret, error) {
	return kube.Secret{}, m.wait(ctx, "secret")
}

// TestSilentAPI has the API's answers be lost: a replica that can start without them waits for a moment only, and one that needs them as long
// as any call may take.
func TestSilentAPI(t *testing.T) {
	for name, c := range map[string]struct {
		held, trusted bool
		most          time.Duration
	}{
		"recorded":       {true, true, 3 * time.Second},
		"no credentials": {true, false, callPatience},
		"new":            {false, true, callPatience},
	} {
		t.Run(name, func(t *testing.T) {
			m := mute{waits: map[string]time.Duration{}}
			h := seatedHost(t, m, 1)
			a := Assignment{Volume: "v", Index: 1, Incarnation: 1, Claim: "v-r1"}
			rec := &Record{Version: recordVersion, Assignment: a}
			if c.held {
				rec.PVCUID, rec.PV, rec.Handle = "uid", "pv", "handle"
			}
			r := newReplica(h, a, rec)
			if c.trusted {
				files := pki.OSFiles(h.store.trust(r.key))
				for _, name := range credentialFiles {
					must(t, files.Write(name, []byte("x")))
				}
			}
			if o := r.hold(t.Context(), &a); (o == nil) != c.held {
				t.Errorf("hold: %+v", o)
			}
			if o := r.credentials(t.Context(), &a, r.patience()); (o == nil) != c.trusted {
				t.Errorf("credentials: %+v", o)
			}
			for _, what := range []string{"claim", "secret"} {
				if got := m.waits[what]; got > c.most || got < c.most/2 {
					t.Errorf("it waits %s for the %s, wanted is %s", got, what, c.most)
				}
			}
		})
	}
}
