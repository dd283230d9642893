package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// step is one idempotent call.
type step struct {
	name string // for logs and tests
	do   func(ctx context.Context, m *manager) error
}

// notice is an Event to be told.
type notice struct {
	about           kube.Object
	warning         bool
	reason, message string
}

// plan is what a decision comes to.
type plan struct {
	steps   []step
	status  kube.ManagerStatus
	notices []notice
	// statusLast says that the status is true only once all steps are done.
	statusLast bool
	// again is when to look again without a change in the cluster; 0: at the next resync.
	again time.Duration
}

func (p *plan) add(do func(ctx context.Context, m *manager) error, format string, args ...any) {
	p.steps = append(p.steps, step{fmt.Sprintf(format, args...), do})
}

// soon asks for another look after d, or earlier.
func (p *plan) soon(d time.Duration) {
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

// tell adds an Event about the volume, and about the application's claim unless that is known to be gone.
func (p *plan) tell(o *observed, warning bool, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	p.notices = append(p.notices, notice{kube.ObjectOfVolume(o.v), warning, reason, message})
	if o.outer != nil || p.is(api.ConditionPublished) && o.v.Spec.Reclaim == nil {
		c := o.v.Spec.Claim
		p.notices = append(p.notices, notice{kube.ObjectOfClaim(c.Namespace, c.Name, c.UID), warning, reason, message})
	}
}

// tellTurn adds an Event when a condition of a provisioned volume has turned.
func (p *plan) tellTurn(o *observed, typ, better, worse string) {
	before := o.v.Condition(typ)
	if before == nil || !o.v.Is(api.ConditionProvisioned) || o.v.Spec.Reclaim != nil {
		return
	}
	i := slices.IndexFunc(p.status.Conditions, func(c api.Condition) bool { return c.Type == typ })
	switch now := p.status.Conditions[i]; {
	case now.Status == before.Status:
	case now.Status == "True":
		p.tell(o, false, better, "%s", now.Message)
	default:
		p.tell(o, true, worse, "%s", now.Message)
	}
}

// set makes a condition say something. It keeps the time since which it has
// its status.
func (p *plan) set(o *observed, typ string, status bool, reason, format string, args ...any) {
	c := api.Condition{
		Type: typ, Status: "False", Reason: reason, Message: fmt.Sprintf(format, args...),
		ObservedGeneration: o.v.Generation, LastTransitionTime: api.Time{Time: o.now.UTC().Truncate(time.Second)},
	}
	if status {
		c.Status = "True"
	}
	i := slices.IndexFunc(p.status.Conditions, func(h api.Condition) bool { return h.Type == typ })
	if i < 0 {
		p.status.Conditions = append(p.status.Conditions, c)
		return
	}
	if have := p.status.Conditions[i]; have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
		if have.Reason == c.Reason && have.Message == c.Message {
			c.ObservedGeneration = have.ObservedGeneration
		}
	}
	p.status.Conditions[i] = c
}

// drop removes a condition.
func (p *plan) drop(typ string) {
	p.status.Conditions = slices.DeleteFunc(p.status.Conditions, func(c api.Condition) bool { return c.Type == typ })
}

func (p *plan) is(typ string) bool {
	return slices.ContainsFunc(p.status.Conditions, func(c api.Condition) bool { return c.Type == typ && c.Status == "True" })
}

func (p *plan) reason(typ string) string {
	for _, c := range p.status.Conditions {
		if c.Type == typ {
			return c.Reason
		}
	}
	return ""
}
