package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/kube"
)

// reconcile makes one pass over a volume. It returns when to look again, 0 for
// no time of its own.
func (m *manager) reconcile(ctx context.Context, name string) (time.Duration, error) {
	v, err := m.kube.Volume(ctx, name)
	switch {
	case kube.NotFound(err):
		m.told.forget(name)
		return 0, nil
	case err != nil:
		return 0, err
	}
	o, err := m.observe(ctx, v)
	if err != nil {
		return 0, fmt.Errorf("observe: %w", err)
	}
	p := decide(o, m.settings())
	if err := m.act(ctx, o, p); err != nil {
		return 0, err
	}
	return p.again, nil
}

// act does a plan's steps in order until one fails, then says how things are.
func (m *manager) act(ctx context.Context, o *observed, p *plan) error {
	var failed error
	for _, s := range p.steps {
		m.log.Info("step", zap.String("volume", o.v.Name), zap.String("step", s.name))
		err := s.do(ctx, m)
		if err != nil && !harmless(err) {
			failed = fmt.Errorf("%s: %w", s.name, err)
			if kube.Forbidden(err) || kube.Invalid(err) { // nothing that passes by itself
				p.tell(o, true, "StepFailed", "%v", failed)
			}
			break
		}
		if err != nil { // somebody else was quicker; what is there now says what is next
			p.soon(time.Second)
		}
	}
	if failed == nil || !p.statusLast {
		if err := m.applyStatus(ctx, o, p); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	m.tell(ctx, o, p.notices)
	return failed
}

// harmless says that the thing that was to be done is done, or has changed since
// it was looked at: the next pass sees.
func harmless(err error) bool { return kube.AlreadyExists(err) || kube.Conflict(err) }

// applyStatus writes the manager's part of the status if it differs.
func (m *manager) applyStatus(ctx context.Context, o *observed, p *plan) error {
	have, err := json.Marshal(kube.ManagerStatusOf(&o.v.Status))
	if err != nil {
		return err
	}
	want, err := json.Marshal(p.status)
	if err != nil || string(have) == string(want) {
		return err
	}
	err = m.kube.ApplyManagerStatus(ctx, o.v, p.status)
	if kube.NotFound(err) || kube.Conflict(err) { // gone, or another of its name
		return nil
	}
	return err
}

// tell writes Events, each at most once in a while. They are only told: failing is no failure.
func (m *manager) tell(ctx context.Context, o *observed, notices []notice) {
	for _, n := range notices {
		if !m.told.due(o.v.Name, n, m.now()) {
			continue
		}
		if err := m.kube.Event(ctx, component, n.about, n.warning, n.reason, n.message); err != nil {
			m.log.Debug("event", zap.String("volume", o.v.Name), zap.Error(err))
		}
	}
}
