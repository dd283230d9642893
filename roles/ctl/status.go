package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/dev"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/worker"
)

// askTimeout bounds each question to a worker or mount owner.
const askTimeout = 3 * time.Second

// Status is what `ctl status --json` prints.
type Status struct {
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
	st := &Status{Volume: rt.Volume, Members: make([]Member, len(rt.Replicas)), Mounts: make([]Mount, len(rt.Mounts)), Sessions: []worker.SessionReport{}}
	var asking sync.WaitGroup
	for i, r := range rt.Replicas {
		asking.Go(func() { st.Members[i] = askWorker(ctx, creds, r) })
	}
	for i, m := range rt.Mounts {
		asking.Go(func() { st.Mounts[i] = askOwner(ctx, m) })
	}
	asking.Wait()
	st.conclude()
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

// print writes the status for people.
func (s *Status) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	coordinator := s.Coordinator
	if coordinator == "" {
		coordinator = "none"
	}
	fmt.Fprintf(t, "volume %s, coordinator %s\n\n", s.Volume, coordinator)
	fmt.Fprintln(t, "REPLICA\tLIFE\tROLE\tPID\tTERM\tAPPLIED\tLAG\tADDRESS\tNOTE")
	for _, m := range s.Members {
		note, life := m.Error, "?"
		if r := m.Report; r != nil {
			life = fmt.Sprint(r.Incarnation)
			switch {
			case r.Rebuild != nil:
				note = fmt.Sprintf("receiving checkpoint %d: %s", r.Rebuild.Index, size(r.Rebuild.Bytes))
			case r.Stateless:
				note = "has no usable state, waits for a checkpoint"
			case r.Fenced:
				note = "catching up to what it may have confirmed"
			case !r.Serving:
				note = "catching up"
			case r.Scrub.Left > 0:
				note = fmt.Sprintf("%d damaged pages that no replica could mend", r.Scrub.Left)
			case r.Scrub.Unsettled > 0:
				note = "records differ between replicas, and no majority agrees"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", m.Replica, life, m.Role, m.PID, m.Term, m.Applied, m.Lag, m.Addr, note)
	}
	if s.Space != nil {
		fmt.Fprintf(t, "\nfiles %s in %d inodes, disk %s free of %s\n", size(s.Space.UsedBytes), s.Space.UsedInodes, size(s.Space.DiskFree), size(s.Space.DiskBytes))
	}
	fmt.Fprintln(t, "\nSESSION\tEPOCH\tMUTATIONS\tLOCKS\tSINCE\tNAME")
	for _, x := range s.Sessions {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%s\t%q\n", x.ID, x.Epoch, x.LastSeq, x.Locks, x.Opened.Format(time.RFC3339), x.Name)
	}
	fmt.Fprintln(t, "\nMOUNT\tSERVED BY\tKEEPER\tSESSION\tNOTE")
	for _, m := range s.Mounts {
		note, session := m.Error, uint64(0)
		if m.Status != nil {
			session = m.Status.Session.Session
			if !m.Survives {
				note = "ends with its serving process"
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\n", m.Mountpoint, m.PID, m.Keeper, session, note)
	}
	return t.Flush()
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
