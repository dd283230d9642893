package worker

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/fusefs/wire"
)

// Report is what a worker tells of itself. It is made for people and programs
// that look on; nothing depends on it.
type Report struct {
	Volume      string         `json:"volume"`
	Replica     string         `json:"replica"`
	Incarnation uint64         `json:"incarnation"`
	Member      uint64         `json:"member"`
	PID         int            `json:"pid"`
	Addr        string         `json:"addr"`
	Role        string         `json:"role"` // coordinator, follower, candidate or learner
	Term        uint64         `json:"term"`
	Coordinator uint64         `json:"coordinator"` // member id, 0 unknown
	Commit      uint64         `json:"commit"`
	Applied     uint64         `json:"applied"`
	Checkpoint  uint64         `json:"checkpoint"`
	Journal     JournalReport  `json:"journal"`
	Fenced      bool           `json:"fenced"`    // catching up to what it may have confirmed
	Stateless   bool           `json:"stateless"` // has no usable state and waits for a checkpoint
	Serving     bool           `json:"serving"`   // its state is complete enough to be read
	Members     []MemberReport `json:"members"`   // match and lag are the coordinator's knowledge
	Rebuild     *RebuildReport `json:"rebuild"`   // a checkpoint being received
	// RebuildFailure says why the last checkpoint that it was sent was not installed.
	RebuildFailure string          `json:"rebuildFailure,omitempty"`
	Sessions       []SessionReport `json:"sessions"`
	Owner          *OwnerReport    `json:"owner"`      // of a volume that one node at a time may use
	Sealed         bool            `json:"sealed"`     // it takes no new sessions any more
	Opened         uint64          `json:"opened"`     // sessions ever opened
	Feature        uint64          `json:"feature"`    // the level that the log has been raised to
	FeatureMax     uint64          `json:"featureMax"` // the highest that this program knows
	Space          SpaceReport     `json:"space"`
	Scrub          ScrubReport     `json:"scrub"`
	Started        time.Time       `json:"started"`
	Conns          int             `json:"connections"`
}

// JournalReport is the extent of a journal.
type JournalReport struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Bytes int64  `json:"bytes"`
}

// MemberReport is what a worker knows of a member.
type MemberReport struct {
	ID          uint64         `json:"id"`
	Replica     string         `json:"replica"`
	Incarnation uint64         `json:"incarnation"`
	Addr        string         `json:"addr"`
	Learner     bool           `json:"learner"`
	Match       uint64         `json:"match"`
	Lag         uint64         `json:"lag"`
	Active      bool           `json:"active"`
	Rebuild     *RebuildReport `json:"rebuild"` // a checkpoint being sent to it
}

// RebuildReport is the progress of a checkpoint on its way.
type RebuildReport struct {
	Index uint64 `json:"index"`
	Bytes uint64 `json:"bytes"`
	Parts uint64 `json:"parts"`
}

// Of says how far it is. used is what the volume's files take at the coordinator: about
// the most that is sent, since what the member has already is not. 0: it is not known.
func (r *RebuildReport) Of(used uint64) string {
	const mib = 1 << 20
	if used == 0 {
		return fmt.Sprintf("%.1f MiB", float64(r.Bytes)/mib)
	}
	return fmt.Sprintf("%.1f MiB of about %.1f", float64(r.Bytes)/mib, float64(used)/mib)
}

// SessionReport is one session of the log.
type SessionReport struct {
	ID      uint64    `json:"id"`
	Epoch   uint64    `json:"epoch"`
	Name    string    `json:"name"`
	LastSeq uint64    `json:"lastSeq"`
	Locks   int       `json:"locks"` // inodes on which it holds locks
	Opened  time.Time `json:"opened"`
}

// OwnerReport says who owns a volume that one node at a time may use.
type OwnerReport struct {
	Session uint64 `json:"session"`
	Name    string `json:"name"`
}

// SpaceReport is the use of the volume and of the replica's disk.
type SpaceReport struct {
	UsedBytes   uint64 `json:"usedBytes"`
	UsedInodes  uint64 `json:"usedInodes"`
	LimitBytes  uint64 `json:"limitBytes"`
	LimitInodes uint64 `json:"limitInodes"`
	DiskBytes   uint64 `json:"diskBytes"`
	DiskFree    uint64 `json:"diskFree"`
	Reserve     uint64 `json:"reserve"`
	LimitsExact bool   `json:"limitsExact"` // growth beyond the quota is refused where it is applied
}

// report gathers a Report. It is called with the coordinator's lock held, so it
// does not ask the coordinator.
func (r *replica) report() Report {
	st := r.group.Status()
	rep := Report{
		Volume: st.Identity.Volume, Replica: st.Identity.Replica, Incarnation: st.Identity.Incarnation, Member: st.Identity.Member,
		PID: os.Getpid(), Addr: r.addr, Role: st.Role.String(), Term: st.Term, Coordinator: st.Leader,
		Commit: st.Commit, Applied: st.Applied, Checkpoint: st.Checkpoint,
		Journal: JournalReport{First: st.JournalFirst, Last: st.JournalLast, Bytes: st.JournalBytes},
		Fenced:  st.Fenced, Stateless: st.Stateless, Serving: r.tree.Ready(), Started: r.started, Conns: r.server.Conns(),
		Rebuild: (*RebuildReport)(st.Rebuild), RebuildFailure: st.RebuildFailure, Scrub: r.scrub.status(),
	}
	switch {
	case r.machine.leads.Load() != 0:
		rep.Role = "coordinator"
	case rep.Role == "leader":
		rep.Role = "candidate" // elected, and not done with earlier terms
	}
	for _, m := range st.Members {
		known, _ := r.cfg.place(m.Replica)
		rep.Members = append(rep.Members, MemberReport{
			ID: m.ID, Replica: m.Replica, Incarnation: m.Incarnation, Addr: known.Addr, Learner: m.Learner,
			Match: m.Match, Lag: m.Lag, Active: m.Active, Rebuild: (*RebuildReport)(m.Rebuild),
		})
	}
	for _, s := range r.tree.Sessions() {
		rep.Sessions = append(rep.Sessions, SessionReport{
			ID: s.ID, Epoch: s.Epoch, Name: string(s.Name), LastSeq: s.LastSeq, Locks: len(s.Locked),
			Opened: time.Unix(s.Opened.Sec, int64(s.Opened.Nsec)).UTC(),
		})
	}
	if o, ok := r.tree.Owner(); ok {
		rep.Owner = &OwnerReport{Session: o.Session, Name: string(o.Name)}
	}
	rep.Feature, rep.FeatureMax = r.tree.Feature(), tree.FeatureMax
	rep.Sealed, rep.Opened = r.tree.Sealed(), r.tree.SessionsOpened()
	if sp, err := r.tree.Space(); err == nil {
		rep.Space = SpaceReport{
			LimitsExact: sp.LimitsExact,
			UsedBytes:   sp.UsedBytes, UsedInodes: sp.UsedInodes, LimitBytes: sp.LimitBytes, LimitInodes: sp.LimitInodes,
			DiskBytes: sp.DiskBytes, DiskFree: sp.DiskFree, Reserve: sp.Reserve,
		}
	}
	return rep
}

// status is the report as a reply's data.
func (r *replica) status() []byte {
	b, err := json.Marshal(r.report())
	if err != nil {
		panic(fmt.Sprintf("worker: encode report: %v", err))
	}
	return b
}

// Ask asks the worker at addr for its report, as an operator.
func Ask(ctx context.Context, addr string, tls *tls.Config) (*Report, error) {
	payload, err := exchange(ctx, addr, tls, &fsop.Message{Kind: fsop.MessageStatus, Status: &fsop.StatusQuery{}})
	if err != nil {
		return nil, err
	}
	return readReport(payload)
}

// Operate has the coordinator at addr log a control operation, as an operator. A
// worker that is not the coordinator answers with a *fsop.Failure.
func Operate(ctx context.Context, addr string, tls *tls.Config, op fsop.Op) (*fsop.Reply, error) {
	payload, err := exchange(ctx, addr, tls, &fsop.Message{Kind: fsop.MessageOperate, Operate: &fsop.Operate{Op: op}})
	if err != nil {
		return nil, err
	}
	return readReply(payload)
}

// exchange sends one message to the worker at addr and returns what it answers.
func exchange(ctx context.Context, addr string, tls *tls.Config, m *fsop.Message) ([]byte, error) {
	return exchangeBytes(ctx, addr, tls, fsop.AppendMessage(nil, m))
}

func exchangeBytes(ctx context.Context, addr string, tls *tls.Config, message []byte) ([]byte, error) {
	conn, err := wire.Dial(ctx, wire.DialConfig{Addr: addr, TLS: tls, Operator: true})
	if err != nil {
		return nil, err
	}
	answer := make(answers, 1)
	ended := make(chan error, 1)
	go func() { ended <- conn.Run(answer) }()
	defer func() { conn.Close(); <-ended }()
	if err := conn.Send(1, message); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case err := <-ended:
		ended <- err
		return nil, err
	case payload := <-answer:
		return payload, nil
	}
}

func readReply(payload []byte) (*fsop.Reply, error) {
	a, err := fsop.DecodeAnswer(payload)
	switch {
	case err != nil:
		return nil, err
	case a.Failure != nil:
		return nil, a.Failure
	case a.Reply == nil:
		return nil, fmt.Errorf("answer to an operator is not a reply")
	}
	return a.Reply, nil
}

func readReport(payload []byte) (*Report, error) {
	reply, err := readReply(payload)
	if err != nil {
		return nil, err
	}
	var rep Report
	if err := json.Unmarshal(reply.Data, &rep); err != nil {
		return nil, fmt.Errorf("parse report: %w", err)
	}
	return &rep, nil
}

// answers takes the one reply that is asked for.
type answers chan []byte

func (a answers) Reply(_ uint64, payload []byte) {
	select {
	case a <- payload:
	default:
	}
}

func (answers) Push([]byte) {}
