package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/worker"
)

// askPatience bounds one question to one worker.
const askPatience = 3 * time.Second

// target is a replica and where its worker may be.
type target struct {
	index int32
	life  int64 // the present one
	addrs []string
	host  string // the name in its certificate
}

// Workers is how the manager speaks to workers.
type Workers interface {
	Ask(ctx context.Context, addr string, t *tls.Config) (*worker.Report, error)
	Operate(ctx context.Context, addr string, t *tls.Config, op fsop.Op) (*fsop.Reply, error)
	Replace(ctx context.Context, addr string, t *tls.Config, want worker.Replacement) (*worker.Replaced, error)
}

// overTLS speaks to real workers.
type overTLS struct{}

func (overTLS) Ask(ctx context.Context, addr string, t *tls.Config) (*worker.Report, error) {
	return worker.Ask(ctx, addr, t)
}

func (overTLS) Operate(ctx context.Context, addr string, t *tls.Config, op fsop.Op) (*fsop.Reply, error) {
	return worker.Operate(ctx, addr, t, op)
}

func (overTLS) Replace(ctx context.Context, addr string, t *tls.Config, want worker.Replacement) (*worker.Replaced, error) {
	return worker.Replace(ctx, addr, t, want)
}

// group is what a volume's workers say of themselves.
type group struct {
	reports map[int32]*worker.Report // of present lives
	former  map[int32]*worker.Report // of the lives that these take the place of
	addr    string                   // of the coordinator
	host    string                   // the name in its certificate
	leader  *leaderSay               // nil: nobody says that it coordinates, with a quorum
}

// leaderSay is the coordinator's report.
type leaderSay struct{ *worker.Report }

// lookAt asks all workers at once. It does not fail: who does not answer is missing.
func lookAt(ctx context.Context, w Workers, creds *pki.Credentials, targets []target) *group {
	g := &group{reports: map[int32]*worker.Report{}, former: map[int32]*worker.Report{}}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, t := range targets {
		for _, addr := range t.addrs {
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, askPatience)
				defer cancel()
				rep, err := w.Ask(ctx, addr, creds.ClientTLS(t.host))
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				g.add(t, addr, rep)
			})
		}
	}
	asking.Wait()
	return g
}

// add takes a report. Of several that claim to coordinate, the newest term's counts, and only
// with a majority of the members active.
func (g *group) add(t target, addr string, rep *worker.Report) {
	if rep.Incarnation == uint64(t.life) {
		g.reports[t.index] = rep
	} else {
		g.former[t.index] = rep
	}
	if rep.Role != "coordinator" || !hasQuorum(rep) {
		return
	}
	if g.leader == nil || rep.Term > g.leader.Term {
		g.leader, g.addr, g.host = &leaderSay{rep}, addr, t.host
	}
}

func hasQuorum(rep *worker.Report) bool {
	voters, active := 0, 0
	for _, m := range rep.Members {
		if m.Learner {
			continue
		}
		voters++
		if m.Active || m.ID == rep.Member {
			active++
		}
	}
	return voters > 0 && active > voters/2
}

// errNoQuorum says that nobody coordinates the volume.
var errNoQuorum = errors.New("no coordinator with a quorum answers")

// operate has a control operation logged by the coordinator.
func (g *group) operate(ctx context.Context, w Workers, creds *pki.Credentials, op fsop.Op) (*fsop.Reply, error) {
	if g == nil || g.leader == nil {
		return nil, errNoQuorum
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	r, err := w.Operate(ctx, g.addr, creds.ClientTLS(g.host), op)
	if err != nil {
		return nil, fmt.Errorf("ask the coordinator at %s: %w", g.addr, err)
	}
	return r, nil
}

// replace has the coordinator go on with a replacement, and says how far it is.
func (g *group) replace(ctx context.Context, w Workers, creds *pki.Credentials, want worker.Replacement) (*worker.Replaced, error) {
	if g == nil || g.leader == nil {
		return nil, errNoQuorum
	}
	ctx, cancel := context.WithTimeout(ctx, 2*askPatience) // the coordinator itself waits for a while
	defer cancel()
	return w.Replace(ctx, g.addr, creds.ClientTLS(g.host), want)
}

// confirmed asks the coordinator again after a quorum has confirmed that it
// still is it: what it says then was true at that time.
func (g *group) confirmed(ctx context.Context, w Workers, creds *pki.Credentials) (*worker.Report, error) {
	if g == nil || g.leader == nil {
		return nil, errNoQuorum
	}
	limits := &fsop.SetLimits{Bytes: g.leader.Space.LimitBytes, Inodes: g.leader.Space.LimitInodes}
	if r, err := g.operate(ctx, w, creds, limits); err != nil {
		return nil, err
	} else if r.Errno != fsop.OK {
		return nil, r.Errno
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	return w.Ask(ctx, g.addr, creds.ClientTLS(g.host))
}
