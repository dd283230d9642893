// Package live asks the workers of a volume what they know: who has it open and which
// rebuilds are under way is in the log, and nowhere in the API.
//
// It asks with the credentials of an operator, which the manager keeps in a Secret of the
// volume, and keeps nothing.
package live

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/worker"
)

// patience bounds the question to one worker.
const patience = 3 * time.Second

// Asker asks a worker for its report; worker.Ask.
type Asker func(ctx context.Context, addr string, t *tls.Config) (*worker.Report, error)

// Answers are what a volume's workers say now.
type Answers struct {
	Reports []*worker.Report // by replica, of those that answer
	Silent  []string         // REPLICA: why, of the others
}

// Ask asks all workers of a volume, with the operator's credentials. The error
// says why nobody could be asked.
func Ask(ctx context.Context, k *kube.Client, v *api.ReplicatedVolume, domain string, ask Asker) (*Answers, error) {
	creds, err := operator(ctx, k, v.Name)
	if err != nil {
		return nil, err
	}
	ends, err := k.Endpoints(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reports, failed := make([]*worker.Report, len(v.Spec.Replicas)), make([]error, len(v.Spec.Replicas))
	var asking sync.WaitGroup
	for i, r := range v.Spec.Replicas {
		failed[i] = errors.New("has no address")
		at := slices.IndexFunc(ends, func(e kube.Endpoint) bool {
			return e.Service == api.ReplicaName(v.Name, r.Index) && len(e.Addrs) > 0
		})
		if at < 0 {
			continue
		}
		name := api.ServiceDNS(v.Name, r.Index, k.Namespace(), domain)
		asking.Go(func() { reports[i], failed[i] = ask(ctx, ends[at].Addrs[0], creds.ClientTLS(name)) })
	}
	asking.Wait()
	a := &Answers{}
	for i, r := range v.Spec.Replicas {
		if failed[i] != nil {
			a.Silent = append(a.Silent, fmt.Sprintf("%s: %v", api.ReplicaName(v.Name, r.Index), failed[i]))
			continue
		}
		a.Reports = append(a.Reports, reports[i])
	}
	return a, nil
}

// operator opens what the manager keeps for those who ask workers. It lists, since the manager's own account,
// in whose Pod the command may run, can do nothing else.
func operator(ctx context.Context, k *kube.Client, volume string) (*pki.Credentials, error) {
	secrets, err := k.SecretsOf(ctx, api.TrustNamespace, volume)
	if err != nil {
		return nil, err
	}
	for _, s := range secrets {
		if s.Name == api.OperatorSecret(volume) {
			return pki.NewCredentials(pki.OpenDir(secretFiles(s.Data), time.Now).Load(pki.RoleOperator), time.Now, zap.NewNop())
		}
	}
	return nil, fmt.Errorf("there is no secret %s/%s", api.TrustNamespace, api.OperatorSecret(volume))
}

// secretFiles is a Secret's content as a trust directory that is only read.
type secretFiles map[string][]byte

func (f secretFiles) Read(name string) ([]byte, error) {
	if b := f[name]; len(b) > 0 {
		return b, nil
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

func (secretFiles) Write(name string, _ []byte) error {
	return fmt.Errorf("%s: %w", name, fs.ErrPermission)
}

// Best is whose word counts: the coordinator's of the newest term, or nil.
func (a *Answers) Best() (best *worker.Report) {
	for _, r := range a.Reports {
		if r.Role == "coordinator" && (best == nil || r.Term > best.Term) {
			best = r
		}
	}
	return best
}
