package replicahost

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

// obstacle is why a replica does not get on: said in its status, and tried again.
type obstacle struct {
	phase           api.ReplicaPhase
	reason, message string
	final           bool // nothing changes it but another assignment
}

// stopped says that the replica is to stop, which is no obstacle to speak of.
var stopped = &obstacle{}

func pending(reason, format string, args ...any) *obstacle {
	return &obstacle{phase: api.ReplicaPending, reason: reason, message: fmt.Sprintf(format, args...)}
}

func unavailable(reason, format string, args ...any) *obstacle {
	return &obstacle{phase: api.ReplicaUnavailable, reason: reason, message: fmt.Sprintf(format, args...)}
}

func stateLost(format string, args ...any) *obstacle {
	return &obstacle{phase: api.ReplicaStateLost, reason: api.HostReasonStateLost, message: fmt.Sprintf(format, args...), final: true}
}

// messageMost bounds a message, as the resource does.
const messageMost = 1000

// say sets the replica's state.
func (r *replica) say(phase api.ReplicaPhase, reason, message string) {
	if r.note(phase, reason, message) {
		r.host.tell(r.volume) // without the replica's lock: the host's is taken before it
	}
}

// note keeps the state and reports whether it is another one.
func (r *replica) note(phase api.ReplicaPhase, reason, message string) bool {
	if len(message) > messageMost {
		message = message[:messageMost] + "…"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st := &r.mu.status
	if st.Phase == phase && st.Reason == reason && st.Message == message {
		return false
	}
	if st.Phase != phase || st.Reason != reason {
		now := api.Time{Time: time.Now().UTC()}
		st.Since = &now
		r.log.Info("replica", zap.String("phase", string(phase)), zap.String("reason", reason), zap.String("message", message))
	}
	st.Phase, st.Reason, st.Message = phase, reason, message
	listens := phase == api.ReplicaRunning || phase == api.ReplicaRebuilding || reason == api.HostReasonWaitingForCheckpoint
	if !listens {
		st.Role, st.Term, st.Lag, st.Address = "", 0, 0, ""
	}
	return true
}

// stuck says what the replica does not get on for.
func (r *replica) stuck(o *obstacle) {
	r.mu.Lock()
	r.mu.trouble.met(o, time.Now())
	r.mu.Unlock()
	r.say(o.phase, o.reason, o.message)
}

// snapshot is the state as it is now.
func (r *replica) snapshot() api.ReplicaStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.status
}

// reportEvery is how often a running replica's part in the log is looked at;
// numbers alone are told to the API only every statusEvery.
const (
	reportEvery = 2 * time.Second
	statusEvery = 30 * time.Second
)

// follow keeps a running worker's state up to date until ctx ends.
func (r *replica) follow(ctx context.Context, addr string, report func() worker.Report) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		r.running(addr, report())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// running says how a worker that listens is. One that is rebuilt or served is in no trouble.
func (r *replica) running(addr string, rep worker.Report) {
	if rep.Rebuild != nil || rep.Serving && !rep.Fenced && rep.Coordinator != 0 {
		r.overcome()
	}
	switch {
	case rep.Rebuild != nil && rep.Rebuild.Index == 0: // nothing of it has come
		r.say(api.ReplicaPending, api.HostReasonWaitingForCheckpoint, "waits for a checkpoint: the coordinator's host takes it, or sends as many as it may (--max-rebuilds)")
	case rep.Rebuild != nil:
		r.say(api.ReplicaRebuilding, api.HostReasonCatchingUp, "receiving a checkpoint")
	case !rep.Serving || rep.Fenced:
		r.say(api.ReplicaRunning, api.HostReasonCatchingUp, "applying what it may have confirmed")
	default:
		taken, all := r.host.bounds.Rebuilds.Places()
		r.say(api.ReplicaRunning, api.HostReasonServing, waitingRebuild(&rep, taken, all))
		if rep.Coordinator != 0 {
			r.settle()
		}
	}
	role := roles[rep.Role]
	if role == api.RoleFollower && rep.Coordinator == 0 {
		role = api.RoleNone
	}
	r.mu.Lock()
	st := &r.mu.status
	moved := st.Role != role || st.Term != int64(rep.Term) || st.Address != addr
	st.Role, st.Term, st.Address = role, int64(rep.Term), addr
	st.AppliedIndex, st.Lag = int64(rep.Applied), int64(rep.Commit)-int64(rep.Applied)
	r.mu.Unlock()
	if moved {
		r.host.tell(r.volume)
	}
}

var roles = map[string]api.ReplicaRole{
	"coordinator": api.RoleCoordinator, "follower": api.RoleFollower, "learner": api.RoleLearner, "candidate": api.RoleCandidate,
}

// waitingRebuild says which member waits for a checkpoint because this host sends
// as many as it may; "" for none. Nothing of such a rebuild has been sent.
func waitingRebuild(rep *worker.Report, taken, all int) string {
	if taken < all {
		return ""
	}
	for _, m := range rep.Members {
		if m.Rebuild != nil && m.Rebuild.Index == 0 && m.Rebuild.Parts == 0 && m.Rebuild.Bytes == 0 {
			return fmt.Sprintf("%s waits for a checkpoint: this host sends %d at a time (--max-rebuilds)", m.Replica, all)
		}
	}
	return ""
}
