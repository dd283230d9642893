package worker

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/wire"
	"tak-os.org/tak-replicated/raftlog"
)

// Membership is managed over an operator's connection, beside the coordinator's
// own messages: a request whose payload begins with managePrefix, followed by a
// Replacement as JSON. The answer is a reply with a Replaced as JSON, or a
// failure. Version 1.
const (
	managePrefix = "tak-manage 1\n"
	// manageWait is how long one request waits for the end of a replacement; then
	// the answer tells how far it is, and the request is sent again.
	manageWait = 2 * time.Second
	manageMost = 64 << 10
)

// Replacement asks the coordinator to replace a member by a new one, which must
// be running with Config.Join. Remove 0 only adds. Add 0 takes back that Remove was to
// get a seat: it is denied to a member that has a vote. It may be repeated.
type Replacement struct {
	Remove Seat `json:"remove"`
	Add    Seat `json:"add"`
}

func (r *Replacement) withdraws() bool { return r.Add == Seat{} }

// Seat is a member as the log knows it.
type Seat struct {
	Member      uint64 `json:"member"`
	Replica     string `json:"replica"`
	Incarnation uint64 `json:"incarnation"`
}

// Replaced is how far a replacement is.
type Replaced struct {
	Done bool `json:"done"`
	// Phase says what it waits for, for people.
	Phase string `json:"phase"`
}

// Replace has the coordinator at addr carry out a replacement, as an operator,
// and returns how far it is after at most a few seconds: call it until Done. A
// worker that is not the coordinator answers with a *fsop.Failure whose Hint
// names it; any member may be asked.
func Replace(ctx context.Context, addr string, tls *tls.Config, want Replacement) (*Replaced, error) {
	text, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	payload, err := exchangeBytes(ctx, addr, tls, append([]byte(managePrefix), text...))
	if err != nil {
		return nil, err
	}
	reply, err := readReply(payload)
	if err != nil {
		return nil, err
	}
	return parseReplaced(reply.Data)
}

func parseReplaced(text []byte) (*Replaced, error) {
	var r Replaced
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("parse answer: %w", err)
	}
	return &r, nil
}

// parseReplacement reads a request behind its prefix.
func parseReplacement(text []byte) (Replacement, error) {
	var want Replacement
	if len(text) > manageMost {
		return want, errors.New("too long")
	}
	if err := json.Unmarshal(text, &want); err != nil {
		return want, err
	}
	a, r := want.Add, want.Remove
	switch {
	case a == Seat{} && r.Member != 0 && r.Replica != "" && r.Incarnation != 0:
		return want, nil
	case a.Member == 0 || a.Replica == "" || a.Incarnation == 0:
		return want, errors.New("no member to add")
	case r.Member == a.Member:
		return want, errors.New("a member can't replace itself")
	case r.Member != 0 && (r.Replica != a.Replica || r.Incarnation >= a.Incarnation):
		return want, errors.New("the new member is not a later incarnation of the same replica")
	}
	return want, nil
}

// operators is the coordinator's port for operators, with the management of
// members before it.
type operators struct {
	coord.Server
	r *replica
}

var _ wire.Handler = (*operators)(nil)

// Open implements wire.Handler.
func (o *operators) Open(peer wire.Peer, hello []byte, resp *wire.Responder) (wire.ConnHandler, error) {
	h, err := o.Server.Open(peer, hello, resp)
	if err != nil || peer.Role != "operator" {
		return h, err
	}
	return managing{h, o.r, resp}, nil
}

// managing is an operator's connection.
type managing struct {
	wire.ConnHandler
	r    *replica
	resp *wire.Responder
}

// Request implements wire.ConnHandler.
func (m managing) Request(id uint64, payload []byte) {
	text, ok := bytes.CutPrefix(payload, []byte(managePrefix))
	if !ok {
		m.ConnHandler.Request(id, payload)
		return
	}
	want, err := parseReplacement(text)
	if err != nil {
		m.answer(id, &fsop.Answer{Failure: fsop.Fail(fsop.Malformed, "%v", err)})
		return
	}
	m.r.spawn(func() { m.answer(id, m.r.replace(want)) })
}

func (m managing) answer(id uint64, a *fsop.Answer) { m.resp.Reply(id, fsop.AppendAnswer(nil, a)) }

// replace does what can be done of a replacement within manageWait.
func (r *replica) replace(want Replacement) *fsop.Answer {
	st := r.group.Status()
	fail := func(code fsop.Code, format string, args ...any) *fsop.Answer {
		f := fsop.Fail(code, format, args...)
		f.Hint = st.Leader
		return &fsop.Answer{Failure: f}
	}
	if st.Role != raftlog.RoleLeader {
		return fail(fsop.NotCoordinator, "")
	}
	if err := r.checkReplacement(&st, want); err != nil {
		return fail(fsop.Denied, "%v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), manageWait)
	defer cancel()
	err := r.group.ChangeMembers(ctx, raftlog.Change{
		Add:      raftlog.Member{ID: want.Add.Member, Replica: want.Add.Replica, Incarnation: want.Add.Incarnation},
		Remove:   want.Remove.Member,
		Withdraw: want.withdraws(),
	})
	done := Replaced{Done: err == nil}
	switch {
	case err == nil && want.withdraws():
		r.log.Info("member withdrawn", zap.Uint64("member", want.Remove.Member))
	case err == nil:
		r.log.Info("member replaced", zap.Uint64("removed", want.Remove.Member), zap.Uint64("member", want.Add.Member))
	case errors.Is(err, context.DeadlineExceeded):
		done.Phase = phase(r.group.Status(), &want)
	case errors.Is(err, raftlog.ErrNotLeading):
		return fail(fsop.NotCoordinator, "leadership has moved")
	default:
		return fail(fsop.Denied, "%v", err)
	}
	text, err := json.Marshal(done)
	if err != nil {
		panic(fmt.Sprintf("worker: encode answer: %v", err))
	}
	return &fsop.Answer{Reply: &fsop.Reply{Data: text}}
}

// checkReplacement refuses a replacement that does not fit the members: the
// operator has to name what is there.
func (r *replica) checkReplacement(st *raftlog.Status, want Replacement) error {
	for _, m := range st.Members {
		switch {
		case m.ID == want.Remove.Member && (m.Replica != want.Remove.Replica || m.Incarnation != want.Remove.Incarnation):
			return fmt.Errorf("member %d is %s of incarnation %d", m.ID, m.Replica, m.Incarnation)
		case m.ID == want.Add.Member && (m.Replica != want.Add.Replica || m.Incarnation != want.Add.Incarnation):
			return fmt.Errorf("member %d is %s of incarnation %d already", m.ID, m.Replica, m.Incarnation)
		case m.ID != want.Add.Member && m.ID != want.Remove.Member && m.Replica == want.Add.Replica:
			return fmt.Errorf("%s is member %d of incarnation %d", m.Replica, m.ID, m.Incarnation)
		}
	}
	if _, ok := r.cfg.place(want.Add.Replica); !ok && !want.withdraws() {
		return fmt.Errorf("replica %s has no place here", want.Add.Replica)
	}
	return nil
}

// phase says in words what a replacement waits for.
func phase(st raftlog.Status, want *Replacement) string {
	i := slices.IndexFunc(st.Members, func(m raftlog.MemberStatus) bool { return m.ID == want.Add.Member })
	switch {
	case want.withdraws():
	case i < 0:
		return "the new member is not admitted yet"
	case st.Members[i].Rebuild != nil:
		return fmt.Sprintf("the new member is sent checkpoint %d: %d bytes so far", st.Members[i].Rebuild.Index, st.Members[i].Rebuild.Bytes)
	case st.Members[i].Learner && !st.Members[i].Active:
		return "the new member is not heard of"
	case st.Members[i].Learner:
		return fmt.Sprintf("the new member is %d entries behind", st.Members[i].Lag)
	}
	return "the change is not committed yet"
}
