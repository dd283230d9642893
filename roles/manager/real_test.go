package manager

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

// at speaks to one real worker, whatever address the cluster names.
type at struct {
	overTLS
	addr string
}

func (a at) Ask(ctx context.Context, _ string, t *tls.Config) (*worker.Report, error) {
	return a.overTLS.Ask(ctx, a.addr, t)
}

func (a at) Operate(ctx context.Context, _ string, t *tls.Config, op fsop.Op) (*fsop.Reply, error) {
	return a.overTLS.Operate(ctx, a.addr, t, op)
}

// TestRealWorker has the manager's credentials open a real worker: it sees the
// quorum, sets the quota, and seals the volume before anything of it goes.
func TestRealWorker(t *testing.T) {
	w := newWorld(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	addr := l.Addr().String()
	w.must(l.Close())
	m := w.manager(nil)
	m.workers = at{addr: addr}
	r := w.request(1)
	r.QuotaEnforced = true
	v, err := m.begin(t.Context(), r)
	w.must(err)
	name := api.ReplicaName(v.Name, 1)
	w.settle(m, v.Name, func(*api.ReplicatedVolume) bool {
		_, err := w.k.Secret(t.Context(), api.TrustNamespace, name)
		return err == nil
	})
	stop := w.runWorker(v, addr)
	defer stop()
	v = w.settle(m, v.Name, func(v *api.ReplicatedVolume) bool {
		if !isProvisioned(v) {
			time.Sleep(100 * time.Millisecond) // an election takes its time
		}
		return isProvisioned(v)
	})
	secret, err := w.k.Secret(t.Context(), api.TrustNamespace, api.OperatorSecret(v.Name))
	w.must(err)
	creds, err := operatorCredentials(secret, time.Now)
	w.must(err)
	host := api.ServiceDNS(v.Name, 1, w.k.Namespace(), api.DefaultClusterName)
	ask := func() *worker.Report {
		t.Helper()
		rep, err := worker.Ask(t.Context(), addr, creds.ClientTLS(host))
		w.must(err)
		return rep
	}
	if rep := ask(); rep.Space.LimitBytes != 1<<30 || !rep.Space.LimitsExact || rep.Sealed || rep.Volume != v.Name {
		t.Errorf("the worker reports %+v", rep)
	}
	w.must(m.requestReclaim(t.Context(), v, api.ReclaimDeleteVolume))
	w.settle(m, v.Name, func(v *api.ReplicatedVolume) bool { return v.Status.Fence != nil })
	if rep := ask(); !rep.Sealed {
		t.Error("the volume is not sealed")
	}
	stop()
	w.settle(m, v.Name, nil)
}

// runWorker runs the worker of replica 1 with what its Secret holds.
func (w *world) runWorker(v *api.ReplicatedVolume, addr string) (stop func()) {
	w.t.Helper()
	dir, name := w.t.TempDir(), api.ReplicaName(v.Name, 1)
	secret, err := w.k.Secret(w.t.Context(), api.TrustNamespace, name)
	w.must(err)
	trust := filepath.Join(dir, "trust")
	w.must(os.Mkdir(trust, 0o700))
	for file, data := range secret.Data {
		w.must(os.WriteFile(filepath.Join(trust, file), data, 0o600))
	}
	host := api.ServiceDNS(v.Name, 1, w.k.Namespace(), api.DefaultClusterName)
	c := worker.Config{
		Dir: filepath.Join(dir, "replica"), Volume: v.Name, Replica: name, Incarnation: 1, Listen: addr, Trust: trust, Bootstrap: true,
		Members:         []worker.Member{{ID: 1, Replica: name, Addr: addr, ServerName: host}},
		CheckpointBytes: worker.DefaultCheckpointBytes, JournalBytes: worker.DefaultJournalBytes, RebuildRate: worker.DefaultRebuildRate, TTL: worker.DefaultTTL,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- worker.Run(ctx, c, zap.NewNop(), func(string) { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		w.t.Fatalf("worker: %v", err)
	}
	var once bool
	return func() {
		if !once {
			once = true
			cancel()
			<-done
		}
	}
}
