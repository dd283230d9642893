package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/roles/mountowner"
)

// flaky is a mount owner, and a cluster, of which each answers only from its time on.
type flaky struct {
	Cluster
	Owner
	began        time.Time
	owner, api   time.Duration
	refreshed    []time.Duration
	looked, read int
}

func (f *flaky) before(d time.Duration) error {
	if time.Since(f.began) < d {
		return errors.New("no answer")
	}
	return nil
}

func (f *flaky) Mounts(context.Context) ([]mountowner.Status, error) {
	f.looked++
	v := mountowner.Status{Spec: mountowner.Spec{Volume: "v"}}
	return []mountowner.Status{v, v}, f.before(f.owner)
}

func (f *flaky) Secret(context.Context, string, string) (kube.Secret, error) {
	f.read++
	return kube.Secret{}, f.before(f.api)
}

func (f *flaky) Refresh(context.Context, string, mountowner.Credentials) error {
	f.refreshed = append(f.refreshed, time.Since(f.began))
	return nil
}

// TestRefreshAfterAnOutage has the mount owner and then the API be away when credentials are due: they are brought up to date soon after both
// are back, and then no more often than usual.
func TestRefreshAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{began: time.Now(), owner: 40 * time.Second, api: 100 * time.Second}
		front := &frontend{cluster: f, owner: f, log: zap.NewNop()}
		ctx, cancel := context.WithTimeout(t.Context(), f.api+refreshEvery+time.Minute)
		defer cancel()
		if err := front.refresh(ctx); err != nil {
			t.Fatal(err)
		}
		if len(f.refreshed) != 2 || f.refreshed[0] > f.api+20*time.Second || f.refreshed[1]-f.refreshed[0] != refreshEvery {
			t.Errorf("refreshed at %v, while the API answers from %s on", f.refreshed, f.api)
		}
		if f.looked > 10 || f.read > f.looked {
			t.Errorf("looked %d times, and read %d times", f.looked, f.read)
		}
	})
}
