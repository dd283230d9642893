package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/live"
	"tak-os.org/tak-replicated/roles/worker"
)

// TestSessionsOfAWorker asks a real worker, with the credentials that the manager keeps, and with the rights of the
// manager's account; the other replica has no address.
func TestSessionsOfAWorker(t *testing.T) {
	c := kubetest.Shared(t).Cluster(t)
	k := c.Kube(nil)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	uid := c.NewClaim("opened", nil)
	v, err := k.CreateVolume(t.Context(), pair("opened", uid))
	check(err)
	t.Cleanup(func() { _ = k.DeleteVolume(context.Background(), v) })
	rights, err := kubetest.Manifest("base/rbac-manager.yaml")
	check(err)
	c.Apply(rights)
	account, err := c.KubeconfigFor("system:serviceaccount:kube-system:tak-replicated-manager", "system:serviceaccounts:kube-system", "system:authenticated")
	check(err)
	k, err = kube.Connect(kube.Options{Kubeconfig: account})
	check(err)

	var real string
	ask := func(ctx context.Context, _ string, t *tls.Config) (*worker.Report, error) {
		return worker.Ask(ctx, real, t)
	}
	show := func() string {
		t.Helper()
		var out bytes.Buffer
		check(sessions(t.Context(), k, v.Name, api.DefaultClusterName, ask, &out))
		return out.String()
	}
	if got := show(); !strings.Contains(got, "can't be asked: there is no secret") {
		t.Errorf("without credentials: %s", got)
	}
	real = runWorker(t, c.Kube(nil), v)
	check(c.Kube(nil).ApplyEndpoint(t.Context(), v.Name, 1, "n1", "192.0.2.1", 20000)) // the API takes no loopback address
	kubetest.Eventually(t, 30*time.Second, "the worker coordinates", func() bool { return strings.Contains(show(), "nobody has the volume open") })
	if got := show(); !strings.Contains(got, "not asked: "+v.Name+"-r2: has no address") {
		t.Errorf("of the other replica: %s", got)
	}
}

// runWorker runs replica 1 as the only member, and returns where.
func runWorker(t *testing.T, k *kube.Client, v *api.ReplicatedVolume) string {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ca, err := pki.NewCA(v.Name, time.Now)
	check(err)
	pair, err := ca.Issue(pki.RoleOperator, "manager")
	check(err)
	token, err := ca.IssueToken()
	check(err)
	check(k.CreateSecret(t.Context(), kube.Secret{
		Namespace: api.TrustNamespace, Name: api.OperatorSecret(v.Name), Labels: api.Labels(v.Name, 0),
		Data: map[string][]byte{"ca.crt": ca.KeyPair().Cert, "operator.crt": pair.Cert, "operator.key": pair.Key, "token": []byte(token)},
	}))
	dir, name, host := t.TempDir(), api.ReplicaName(v.Name, 1), api.ServiceDNS(v.Name, 1, k.Namespace(), api.DefaultClusterName)
	trust := pki.OpenDir(pki.OSFiles(filepath.Join(dir, "trust")), time.Now)
	for _, h := range []pki.Holder{{Role: pki.RoleServer, Name: name, Hosts: []string{host}}, {Role: pki.RolePeer, Name: name}} {
		_, err := trust.Renew(ca, h)
		check(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	addr := l.Addr().String()
	check(l.Close())
	cfg := worker.Config{
		Dir: filepath.Join(dir, "replica"), Volume: v.Name, Replica: name, Incarnation: 1, Listen: addr, Trust: filepath.Join(dir, "trust"), Bootstrap: true,
		Members:         []worker.Member{{ID: 1, Replica: name, Addr: addr, ServerName: host}},
		CheckpointBytes: worker.DefaultCheckpointBytes, JournalBytes: worker.DefaultJournalBytes, RebuildRate: worker.DefaultRebuildRate, TTL: worker.DefaultTTL,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- worker.Run(ctx, cfg, zap.NewNop(), func(string) { close(ready) }) }()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("worker: %v", err)
	}
	return addr
}

// TestPrintLive is what is told of the workers' words.
func TestPrintLive(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rebuild := &worker.RebuildReport{Index: 7, Bytes: 3 << 19, Parts: 3}
	l := live.Answers{Silent: []string{"v-r3: connection refused"}, Reports: []*worker.Report{
		{Replica: "v-r1", Role: "coordinator", Term: 4, Sessions: []worker.SessionReport{{ID: 1, Name: "stale"}}},
		{
			Replica: "v-r2", Role: "coordinator", Term: 5, Owner: &worker.OwnerReport{Session: 9, Name: "n1"},
			Sessions: []worker.SessionReport{{ID: 9, Name: "n1", Opened: at, Locks: 2}, {ID: 10, Name: "n2", Opened: at}},
			Members:  []worker.MemberReport{{Replica: "v-r4", Rebuild: rebuild}}, Space: worker.SpaceReport{UsedBytes: 6 << 20},
		},
		{Replica: "v-r4", Role: "learner", Rebuild: rebuild},
	}}
	want := `  not asked: v-r3: connection refused
  v-r4 receives a checkpoint of entry 7: 1.5 MiB of about 6.0, in 3 parts
  v-r4 is sent a checkpoint of entry 7: 1.5 MiB of about 6.0, in 3 parts
  OPEN ON  SINCE                LOCKS  OWNER
  n1       2026-01-02 03:04:05  2      yes
  n2       2026-01-02 03:04:05  0      -
`
	var out bytes.Buffer
	if printLive(&l, &out); out.String() != want {
		t.Errorf("printed\n%s", &out)
	}
	out.Reset()
	l.Reports = l.Reports[2:]
	if printLive(&l, &out); !strings.Contains(out.String(), "who has the volume open is not known") {
		t.Errorf("without a coordinator: %s", &out)
	}
}
