package replicahost

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

// succeed writes a new life of a replica down, as the manager does: beside the one whose place it takes.
func (l *lab) succeed(v *api.ReplicatedVolume, index int32, to *node, member int64) {
	l.t.Helper()
	r := *v.Replica(index)
	l.backing(api.BackingClaimName(v.Name, index, r.Incarnation+1), v.Name, index, to)
	l.update(v.Name, func(v *api.ReplicatedVolume) {
		v.Spec.Retired = append(v.Spec.Retired, api.RetiredSpec{Index: index, Incarnation: r.Incarnation, Node: r.Node, Member: r.Member, State: api.StateServing})
		n := v.Replica(index)
		n.Node, n.Incarnation, n.Member = to.name, r.Incarnation+1, member
	})
}

// letIn has whoever coordinates let the new life in, and waits until it has the former one's place.
func (l *lab) letIn(volume string, want worker.Replacement, addrs map[int32]string) {
	l.t.Helper()
	l.eventually("the new life is let in", func() error {
		var last error
		for index, addr := range addrs {
			ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
			done, err := worker.Replace(ctx, addr, l.operator(volume, index), want)
			cancel()
			switch {
			case err == nil && done.Done:
				return nil
			case err == nil:
				last = fmt.Errorf("it waits: %s", done.Phase)
			case last == nil:
				last = err
			}
		}
		return last
	})
}

// limit sets a limit in the volume's log, and limitOf reads it: something that replicas have to agree on.
func (l *lab) limit(v *api.ReplicatedVolume, bytes uint64) {
	l.t.Helper()
	l.eventually("the log takes an operation", func() error {
		var last error
		for _, r := range v.Spec.Replicas {
			rep, err := l.ask(v.Name, r.Index)
			if err == nil {
				_, err = worker.Operate(l.t.Context(), rep.Addr, l.operator(v.Name, r.Index), &fsop.SetLimits{Bytes: bytes})
			}
			if err == nil {
				return nil
			}
			last = err
		}
		return last
	})
}

// moved moves a healthy replica of two to another node: both are needed to agree, so the former copy takes part
// until the new one does (C10).
func moved(t *testing.T, l *lab) {
	a, b, c := l.addNode("node-stay"), l.addNode("node-leave"), l.addNode("node-take")
	v := l.volume("pvc-moved", a.name, b.name)
	a.start()
	b.start()
	c.start()
	l.serving(v)
	l.limit(v, 7<<20)
	addrs := map[int32]string{}
	for _, index := range []int32{1, 2} {
		rep, err := l.ask(v.Name, index)
		must(t, err)
		addrs[index] = rep.Addr
	}
	stays, err := l.ask(v.Name, 1)
	must(t, err)

	l.succeed(v, 2, c, 3)
	l.status(v.Name, 2, "the new life waits to be let in", func(st api.ReplicaStatus) bool {
		return st.Node == c.name && st.Phase == api.ReplicaRunning && st.Initialized && st.Address != ""
	})
	ends, err := l.kube.Endpoints(t.Context(), v.Name)
	must(t, err)
	for _, e := range ends {
		if e.Service == "pvc-moved-r2" && e.Node != b.name {
			t.Errorf("before it is let in its Service leads to %s", e.Node)
		}
	}
	l.letIn(v.Name, worker.Replacement{
		Remove: worker.Seat{Member: 2, Replica: "pvc-moved-r2", Incarnation: 1}, Add: worker.Seat{Member: 3, Replica: "pvc-moved-r2", Incarnation: 2},
	}, addrs)
	if now, err := l.ask(v.Name, 1); err != nil || now.Started != stays.Started {
		t.Errorf("the replica that stays was started anew: %+v, %v", now, err)
	}

	l.update(v.Name, func(v *api.ReplicatedVolume) { v.Spec.Retired[0].State = api.StateReleased })
	l.eventually("the former copy is let go of", func() error {
		v, err := l.kube.Volume(t.Context(), v.Name)
		if err == nil && (len(v.Status.Retired) != 1 || v.Status.Retired[0].Released == nil) {
			err = fmt.Errorf("status %+v", v.Status.Retired)
		}
		return err
	})
	l.eventually("the Service leads to the new life", func() error {
		ends, err := l.kube.Endpoints(t.Context(), v.Name)
		for _, e := range ends {
			if e.Service == "pvc-moved-r2" && e.Node == c.name {
				return nil
			}
		}
		return fmt.Errorf("endpoints %+v, error %v", ends, err)
	})
	l.eventually("the new life has what the log has", func() error {
		rep, err := l.ask(v.Name, 2)
		if err == nil && (rep.Space.LimitBytes != 7<<20 || !rep.Serving || rep.Incarnation != 2) {
			err = fmt.Errorf("report %+v", rep)
		}
		return err
	})
	now, err := l.kube.Volume(t.Context(), v.Name)
	must(t, err)
	l.limit(now, 8<<20)
	// A host that was away for all of that, and whose copy nobody waits for any more, lets go of it by itself.
	b.kill()
	l.update(v.Name, func(v *api.ReplicatedVolume) { v.Spec.Retired = nil })
	b.start()
	l.eventually("the former host holds nothing", func() error {
		held, err := b.driver.List(t.Context())
		if err == nil && len(held) > 0 {
			err = fmt.Errorf("it holds %+v", held)
		}
		return err
	})
}

// forced loses one of two replicas for good: the other one goes on alone, in a new life on the
// storage that it has, and a new one joins it.
func forced(t *testing.T, l *lab) {
	a, b := l.addNode("node-survivor"), l.addNode("node-gone")
	v := l.volume("pvc-forced", a.name, b.name)
	a.start()
	b.start()
	l.serving(v)
	l.limit(v, 7<<20)
	b.kill()
	l.update(v.Name, func(v *api.ReplicatedVolume) {
		v.Spec.Retired = []api.RetiredSpec{{Index: 2, Incarnation: 1, Node: b.name, Member: 2, State: api.StateServing}}
		s, n := v.Replica(1), v.Replica(2)
		s.ClaimOf, s.Incarnation, s.Member = 1, 2, 3
		n.Node, n.Incarnation, n.Member = "node-later", 2, 4
	})
	st := l.status(v.Name, 1, "the survivor coordinates alone", func(st api.ReplicaStatus) bool {
		return st.Incarnation == 2 && st.Phase == api.ReplicaRunning && st.Role == api.RoleCoordinator
	})
	rep, err := l.ask(v.Name, 1)
	must(t, err)
	if len(rep.Members) != 1 || rep.Member != 3 || rep.Space.LimitBytes != 7<<20 || st.PV != "pv-pvc-forced-r1" {
		t.Errorf("report %+v, status %+v", rep, st)
	}
	// It goes on as that after a restart, and nothing of its first life is left.
	a.kill()
	a.start()
	l.eventually("the host that was restarted serves it", func() error {
		rep, err := l.ask(v.Name, 1)
		if err == nil && (rep.PID != a.host.Process.Pid || rep.Coordinator != 3) {
			err = fmt.Errorf("report %+v", rep)
		}
		return err
	})
	held, err := a.driver.List(t.Context())
	if err != nil || len(held) != 1 {
		t.Errorf("the host holds %+v, error %v", held, err)
	}
	// The one that was given up comes back: nobody listens to it.
	b.start()
	l.eventually("the lost replica is let go of", func() error {
		v, err := l.kube.Volume(t.Context(), v.Name)
		if err == nil && (len(v.Status.Retired) != 1 || v.Status.Retired[0].Reason != api.HostReasonReplaced) {
			err = fmt.Errorf("status %+v", v.Status.Retired)
		}
		return err
	})
	l.update(v.Name, func(v *api.ReplicatedVolume) { v.Spec.Retired[0].State = api.StateReleased })
	l.eventually("its copy is acknowledged", func() error {
		v, err := l.kube.Volume(t.Context(), v.Name)
		if err == nil && v.Status.Retired[0].Released == nil {
			err = fmt.Errorf("status %+v", v.Status.Retired)
		}
		return err
	})
}
