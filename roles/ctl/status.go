package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ctl/cluster"
	"tak-os.org/tak-replicated/roles/ctl/table"
	"tak-os.org/tak-replicated/roles/ctl/watch"
	"tak-os.org/tak-replicated/roles/dev"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// askTimeout bounds each question to a worker or mount owner.
const askTimeout = 3 * time.Second

// statusFlags are the flags of `ctl status`.
type statusFlags struct {
	dir, kubeconfig, namespace string
	inCluster, json, watch     bool
	every                      time.Duration
}

func (f *statusFlags) run(ctx context.Context) error {
	if f.every <= 0 {
		return boot.Usagef("--every: %v is not a positive duration", f.every)
	}
	colour := table.Coloured(os.Stdout)
	show := func(ctx context.Context, w io.Writer) error { return showStatus(ctx, f.dir, w, f.json, colour) }
	if f.kubeconfig != "" || f.inCluster {
		k, err := cluster.Connect(f.kubeconfig, f.namespace)
		if err != nil {
			return err
		}
		show = func(ctx context.Context, w io.Writer) error { return cluster.ShowStatus(ctx, k, w, f.json, colour) }
	}
	loop := watch.Loop{On: f.watch, Every: f.every, Clear: boot.Terminal(os.Stdout)}
	return loop.Run(ctx, os.Stdout, show)
}

// showStatus prints how a dev is. The error says that it is not well.
func showStatus(ctx context.Context, dir string, w io.Writer, asJSON, colour bool) error {
	st, err := status(ctx, dir)
	if err != nil {
		return err
	}
	if asJSON {
		if err := st.json(w); err != nil {
			return err
		}
	} else {
		st.print(w, colour)
	}
	return watch.Verdict("the volume", st.Health)
}

// Status is what `ctl status --json` prints of a dev.
type Status struct {
	Health      api.Health             `json:"health"`
	Why         []string               `json:"why"` // what is not well, the worst first
	Volume      string                 `json:"volume"`
	Coordinator string                 `json:"coordinator"` // the coordinator's replica, empty when there is none
	Members     []Member               `json:"members"`
	Sessions    []worker.SessionReport `json:"sessions"`
	Space       *worker.SpaceReport    `json:"space"`
	Mounts      []Mount                `json:"mounts"`
}

// Member is one replica's worker.
type Member struct {
	ID      uint64 `json:"id"`
	Replica string `json:"replica"`
	Addr    string `json:"addr"`
	// Role is coordinator, follower, candidate or learner; unreachable when
	// the worker does not answer.
	Role    string         `json:"role"`
	PID     int            `json:"pid"`
	Term    uint64         `json:"term"`
	Applied uint64         `json:"applied"`
	Lag     uint64         `json:"lag"` // entries behind what the coordinator has committed
	Error   string         `json:"error,omitempty"`
	Report  *worker.Report `json:"report"`
}

// Mount is one mount of the volume on this machine.
type Mount struct {
	Mountpoint string             `json:"mountpoint"`
	Socket     string             `json:"socket"`
	Keeper     int                `json:"keeper"` // process that holds the descriptors, 0 for none
	PID        int                `json:"pid"`    // serving process
	Survives   bool               `json:"survives"`
	Error      string             `json:"error,omitempty"`
	Status     *mountowner.Status `json:"status"`
}

// status asks everybody that dev started in dir.
func status(ctx context.Context, dir string) (*Status, error) {
	rt, err := dev.ReadRuntime(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("nothing has run in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	if !rt.Running {
		return nil, fmt.Errorf("nothing runs in %s", dir)
	}
	trust := pki.OpenDir(pki.OSFiles(filepath.Join(dir, "trust", "operator")), time.Now)
	creds, err := pki.NewCredentials(trust.Load(pki.RoleOperator), time.Now, zap.NewNop())
	if err != nil {
		return nil, err
	}
	st := &Status{Volume: rt.Volume, Members: make([]Member, len(rt.Replicas)), Mounts: make([]Mount, len(rt.Mounts)), Sessions: []worker.SessionReport{}, Why: []string{}}
	var asking sync.WaitGroup
	for i, r := range rt.Replicas {
		asking.Go(func() { st.Members[i] = askWorker(ctx, creds, r) })
	}
	for i, m := range rt.Mounts {
		asking.Go(func() { st.Mounts[i] = askOwner(ctx, m) })
	}
	asking.Wait()
	st.conclude()
	st.judge()
	return st, nil
}

func askWorker(ctx context.Context, creds *pki.Credentials, r dev.RuntimeReplica) Member {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m := Member{ID: r.Member, Replica: r.Replica, Addr: r.Addr, Role: "unreachable", PID: r.PID}
	host := worker.Member{Addr: r.Addr}.Host()
	rep, err := worker.Ask(ctx, r.Addr, creds.ClientTLS(host))
	if err != nil {
		m.Error = boot.OneLine(err)
		return m
	}
	m.Report = rep
	m.Role, m.PID, m.Term, m.Applied = rep.Role, rep.PID, rep.Term, rep.Applied
	return m
}

func askOwner(ctx context.Context, r dev.RuntimeMount) Mount {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m := Mount{Mountpoint: r.Mountpoint, Socket: r.Socket}
	c := mountowner.NewClient(r.Socket)
	h, err := c.Health(ctx)
	if err != nil {
		m.Error = boot.OneLine(err)
		return m
	}
	m.Keeper, m.PID = h.Keeper, h.PID
	list, err := c.Mounts(ctx)
	if err != nil {
		m.Error = boot.OneLine(err)
		return m
	}
	for _, s := range list {
		if s.Mountpoint == r.Mountpoint {
			m.Status, m.Survives = &s, s.Survives
			return m
		}
	}
	m.Error = "not mounted"
	return m
}

// conclude fills in what follows from all answers together: of two that call
// themselves coordinator the one of the newer term is.
func (s *Status) conclude() {
	var best *worker.Report
	for _, m := range s.Members {
		if r := m.Report; r != nil && r.Role == "coordinator" && (best == nil || r.Term > best.Term) {
			best = r
		}
	}
	if best == nil {
		return
	}
	s.Coordinator, s.Space = best.Replica, &best.Space
	if best.Sessions != nil {
		s.Sessions = best.Sessions
	}
	for i := range s.Members {
		m := &s.Members[i]
		if m.Role == "coordinator" && m.ID != best.Member {
			m.Role = "follower"
		}
		if m.Report != nil && m.Applied < best.Commit {
			m.Lag = best.Commit - m.Applied
		}
	}
}

func (s *Status) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s)
}

// size is a number of bytes for people.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
