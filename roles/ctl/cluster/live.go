package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/worker"
)

// askPatience bounds the question to one worker.
const askPatience = 3 * time.Second

// asker asks a worker for its report; worker.Ask.
type asker func(ctx context.Context, addr string, t *tls.Config) (*worker.Report, error)

// live is what a volume's workers say now: who has it open and which rebuilds are
// under way is in the log, and nowhere in the API.
type live struct {
	reports []*worker.Report // by replica, of those that answer
	silent  []string         // REPLICA: why, of the others
}

// sessions prints what the workers of a volume say now. That nobody can be asked from
// here is told, and no error.
func sessions(ctx context.Context, k *kube.Client, name, domain string, ask asker, w io.Writer) error {
	v, err := k.Volume(ctx, name)
	if err != nil {
		return err
	}
	l, err := askWorkers(ctx, k, v, domain, ask)
	if err != nil {
		fmt.Fprintf(w, "  who has the volume open can't be asked: %v\n", err)
		return nil
	}
	l.print(w)
	return nil
}

// askWorkers asks all workers of a volume, with the operator's credentials. The error
// says why nobody could be asked.
func askWorkers(ctx context.Context, k *kube.Client, v *api.ReplicatedVolume, domain string, ask asker) (*live, error) {
	creds, err := operator(ctx, k, v.Name)
	if err != nil {
		return nil, err
	}
	ends, err := k.Endpoints(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
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
	l := &live{}
	for i, r := range v.Spec.Replicas {
		if failed[i] != nil {
			l.silent = append(l.silent, fmt.Sprintf("%s: %v", api.ReplicaName(v.Name, r.Index), failed[i]))
			continue
		}
		l.reports = append(l.reports, reports[i])
	}
	return l, nil
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

// best is whose word counts: the coordinator's of the newest term, or nil.
func (l *live) best() (best *worker.Report) {
	for _, r := range l.reports {
		if r.Role == "coordinator" && (best == nil || r.Term > best.Term) {
			best = r
		}
	}
	return best
}

// print tells who has the volume open, and of rebuilds.
func (l *live) print(w io.Writer) {
	for _, s := range l.silent {
		fmt.Fprintf(w, "  not asked: %s\n", s)
	}
	c, used := l.best(), uint64(0)
	if c != nil {
		used = c.Space.UsedBytes
	}
	for _, r := range l.reports {
		if r.Rebuild != nil {
			fmt.Fprintf(w, "  %s receives a checkpoint of entry %d: %s, in %d parts\n", r.Replica, r.Rebuild.Index, r.Rebuild.Of(used), r.Rebuild.Parts)
		}
	}
	if c == nil {
		fmt.Fprintln(w, "  no worker that answers coordinates: who has the volume open is not known")
		return
	}
	for _, m := range c.Members {
		if m.Rebuild != nil {
			fmt.Fprintf(w, "  %s is sent a checkpoint of entry %d: %s, in %d parts\n", m.Replica, m.Rebuild.Index, m.Rebuild.Of(used), m.Rebuild.Parts)
		}
	}
	if len(c.Sessions) == 0 {
		fmt.Fprintln(w, "  nobody has the volume open")
		return
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "  OPEN ON\tSINCE\tLOCKS\tOWNER")
	for _, s := range c.Sessions {
		owner := "-"
		if c.Owner != nil && c.Owner.Session == s.ID {
			owner = "yes"
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%s\n", s.Name, s.Opened.UTC().Format("2006-01-02 15:04:05"), s.Locks, owner)
	}
	_ = t.Flush()
}
