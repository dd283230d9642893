package kube

import (
	"cmp"
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Election says how one of several processes is chosen to act.
type Election struct {
	Lease    string // name in the driver's namespace
	Identity string // who this is, different for every process
	// Another takes over when the lease was not renewed for Duration; the holder stops when it could not
	// renew it for Renew. Retry is how often it is tried.
	Duration, Renew, Retry time.Duration
	// Trouble is told what keeps this process from asking for the lease, or renewing it, whenever that has
	// changed, and nil when the server answers again; it may be nil itself. That another has the lease is no trouble.
	Trouble func(err error)
}

// DefaultElection has the times that are usual in a cluster.
func DefaultElection(lease, identity string) Election {
	return Election{Lease: lease, Identity: identity, Duration: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}
}

// Lead calls lead whenever this process holds the lease. The context of lead ends when
// the lease may be lost; only after lead has returned the lease is given up
// or tried for again. Lead returns when ctx ends, or with the error that lead returned.
func (c *Client) Lead(ctx context.Context, e Election, lead func(ctx context.Context) error) error {
	var seen leaseSeen
	for {
		if held, _ := c.askLease(ctx, e, &seen); held {
			err := c.leadWhileHeld(ctx, e, &seen, lead)
			c.releaseLease(ctx, e)
			if err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(e.Retry):
		}
	}
}

// leaseSeen is the lease as last seen, and when it was first seen so. Clocks of
// others are not trusted: a holder is gone when its lease stays as it is.
type leaseSeen struct {
	version string
	at      time.Time
	trouble string // what Trouble was told last
}

func (c *Client) leadWhileHeld(ctx context.Context, e Election, seen *leaseSeen, lead func(context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- lead(inner) }()
	renewed := time.Now()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(e.Retry):
		}
		began := time.Now()
		held, err := c.askLease(ctx, e, seen)
		switch {
		case held:
			renewed = began
		case err == nil || time.Since(renewed) > e.Renew: // somebody else has it, or may soon
			cancel()
			return <-done
		}
	}
}

// askLease is tryLease that tells of trouble.
func (c *Client) askLease(ctx context.Context, e Election, seen *leaseSeen) (held bool, err error) {
	held, err = c.tryLease(ctx, e, seen)
	if ctx.Err() != nil || e.Trouble == nil {
		return held, err
	}
	if now := troubleOf(err); now != seen.trouble {
		seen.trouble = now
		e.Trouble(err)
	}
	return held, err
}

// troubleOf is the same for errors of which one is as good as the other: the server's word, or that it does not answer, which is said
// otherwise each time.
func troubleOf(err error) string {
	if err == nil {
		return ""
	}
	return cmp.Or(string(apierrors.ReasonForError(err)), "no answer")
}

// tryLease takes or renews the lease. Without an error, false means that another holds it.
func (c *Client) tryLease(ctx context.Context, e Election, seen *leaseSeen) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Retry)
	defer cancel()
	leases := c.leases.Leases(c.ns)
	now := metav1.NewMicroTime(time.Now())
	l, err := leases.Get(ctx, e.Lease, metav1.GetOptions{})
	if NotFound(err) {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.Lease}, Spec: e.spec(now)}
		_, err = leases.Create(ctx, l, metav1.CreateOptions{})
		return err == nil, ignore(err, AlreadyExists)
	}
	if err != nil {
		return false, err
	}
	if l.ResourceVersion != seen.version {
		seen.version, seen.at = l.ResourceVersion, time.Now()
	}
	holder := ptr.Deref(l.Spec.HolderIdentity, "")
	if holder != "" && holder != e.Identity && time.Since(seen.at) < e.Duration {
		return false, nil
	}
	spec := e.spec(now)
	if holder == e.Identity {
		spec.AcquireTime = l.Spec.AcquireTime
	} else {
		spec.LeaseTransitions = ptr.To(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
	}
	l.Spec = spec
	_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	return err == nil, ignore(err, Conflict)
}

func (e Election) spec(now metav1.MicroTime) coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{
		HolderIdentity: &e.Identity, AcquireTime: &now, RenewTime: &now,
		LeaseDurationSeconds: ptr.To(max(1, int32(e.Duration/time.Second))),
	}
}

// releaseLease lets the next one take over at once. If it can't, that one waits.
func (c *Client) releaseLease(ctx context.Context, e Election) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Retry)
	defer cancel()
	leases := c.leases.Leases(c.ns)
	l, err := leases.Get(ctx, e.Lease, metav1.GetOptions{})
	if err != nil || ptr.Deref(l.Spec.HolderIdentity, "") != e.Identity {
		return
	}
	l.Spec.HolderIdentity = nil
	_, _ = leases.Update(ctx, l, metav1.UpdateOptions{})
}
