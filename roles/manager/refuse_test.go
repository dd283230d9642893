package manager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
)

// TestProvisionRefuses asks a real API server for what is not given (D2, D3, A6); nothing is
// written then. What needs no cluster is in csi/replicated.
func TestProvisionRefuses(t *testing.T) {
	w := newWorld(t, 1)
	for _, n := range []kubetest.Node{
		{Name: "x-notready", NotReady: true}, {Name: "x-cordoned", Cordoned: true}, {Name: "x-nodriver", NoDriver: true},
		{Name: "x-nohost", NoHost: true}, {Name: "x-ailing", HostAiling: true},
	} {
		w.addNode(n)
	}
	w.c.AddClass("other-driver", "example.com/other", "WaitForFirstConsumer", "Delete")
	w.c.AddClass("immediate", api.DriverLocal, "Immediate", "Delete")
	w.c.AddClass("retain", api.DriverLocal, "WaitForFirstConsumer", "Retain")
	m := w.manager(nil)
	annotated := func(value string) func(*replicated.Request) {
		return func(r *replicated.Request) { w.c.AnnotateClaim(r.ClaimName, api.AnnotationReplicas, value) }
	}
	class := func(name string) func(*replicated.Request) {
		return func(r *replicated.Request) { r.BackingClass = name }
	}
	cases := map[string]struct {
		change func(*replicated.Request)
		kind   replicated.Kind
		parts  []string
	}{
		"name of another form": {func(r *replicated.Request) { r.Name = "vol-1" }, replicated.Refused, []string{`"vol-1" is not pvc-UID`}},
		"no such claim":        {func(r *replicated.Request) { r.ClaimName = "absent" }, replicated.Refused, []string{"claim default/absent", "does not exist"}},
		"another claim's UID":  {func(r *replicated.Request) { r.Name = "pvc-00000000" }, replicated.Refused, []string{"has UID", "00000000"}},
		"no such class":        {class("absent"), replicated.Refused, []string{`backingStorageClass: StorageClass "absent" does not exist`}},
		"class of another driver": {class("other-driver"), replicated.Refused, []string{
			`backingStorageClass: provisioner of "other-driver" is example.com/other, it has to be csi.local.tak-os.org`,
		}},
		"class that binds at once": {class("immediate"), replicated.Refused, []string{`volumeBindingMode of "immediate" is Immediate, it has to be WaitForFirstConsumer`}},
		"class that retains":       {class("retain"), replicated.Refused, []string{`reclaimPolicy of "retain" is Retain, it has to be Delete`}},
		"annotation 0":             {annotated("0"), replicated.Refused, []string{api.AnnotationReplicas, `"0" is not "1", "2", "3" or "4"`}},
		"annotation 5":             {annotated("5"), replicated.Refused, []string{`"5" is not`}},
		"annotation with a blank":  {annotated("3 "), replicated.Refused, []string{`"3 " is not`}},
		"empty annotation":         {annotated(""), replicated.Refused, []string{`"" is not`}},
		"too few nodes": {func(r *replicated.Request) { r.Replicas = 2 }, replicated.NoCapacity, []string{
			"2 replicas need 2 eligible nodes, there are 1 (n1)", "x-notready (not Ready)", "x-cordoned (unschedulable)",
			"x-nodriver (driver csi.local.tak-os.org is not registered)", "x-nohost (its replica host is not ready)", "x-ailing (its replica host is not ready)",
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := w.request(1)
			c.change(&r)
			_, err := m.Provision(t.Context(), r)
			for _, part := range c.parts {
				wantError(t, err, c.kind, part)
			}
			if _, err := w.k.Volume(t.Context(), r.Name); !kube.NotFound(err) {
				t.Errorf("a volume was written: %v", err)
			}
			if left := w.c.Left(r.Name); len(left) > 0 {
				t.Errorf("there is %v", left)
			}
			if c.kind == replicated.NoCapacity && !strings.Contains(strings.Join(w.c.Events("default", r.ClaimName), "\n"), api.ReasonTooFewNodes) {
				t.Errorf("events %v", w.c.Events("default", r.ClaimName))
			}
		})
	}
}

// TestAnnotationIsReadOnce changes the annotation between two tries (A6).
func TestAnnotationIsReadOnce(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	r := w.request(1)
	w.c.AnnotateClaim(r.ClaimName, api.AnnotationReplicas, "2")
	try := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), waitSpare+time.Second)
		defer cancel()
		_, err := m.Provision(ctx, r)
		return err
	}
	wantError(t, try(), replicated.Pending, "is being provisioned")
	for _, value := range []string{"3", "many"} {
		w.c.AnnotateClaim(r.ClaimName, api.AnnotationReplicas, value)
		wantError(t, try(), replicated.Pending, "is being provisioned")
	}
	v := w.settle(m, r.Name, isProvisioned)
	w.must(try())
	if v.Spec.ReplicaCount != 2 || len(v.Spec.Replicas) != 2 {
		t.Errorf("the volume has %d replicas", v.Spec.ReplicaCount)
	}
	for what, change := range map[string]func(*replicated.Request){
		"exists with access mode":   func(r *replicated.Request) { r.Access = replicated.OneNode },
		"exists with a capacity":    func(r *replicated.Request) { r.Bytes++ },
		"exists with backing class": func(r *replicated.Request) { r.BackingClass = "immediate" },
		"exists with quota":         func(r *replicated.Request) { r.QuotaEnforced = true },
	} {
		other := r
		change(&other)
		_, err := m.Provision(t.Context(), other)
		wantError(t, err, replicated.Different, what)
	}
}

// TestOlderDefinition shows that a manager that finds an older resource says so and
// provisions nothing (D1).
func TestOlderDefinition(t *testing.T) {
	w := newWorld(t, 1)
	now := string(kubetest.CRD(t))
	defer w.c.InstallCRD([]byte(now))
	for what, drop := range map[string]string{"no access mode": "accessMode", "no runtime": "runtime", "no owner": "owner"} {
		// The field is given another name: to the driver it is not there.
		w.c.InstallCRD([]byte(strings.ReplaceAll(strings.ReplaceAll(now, " "+drop+":\n", " "+drop+"Old:\n"), "- "+drop+"\n", "- "+drop+"Old\n")))
		m := w.manager(nil)
		r := w.request(1)
		_, err := m.Provision(t.Context(), r)
		wantError(t, err, replicated.Unknown, "older release")
		wantError(t, err, replicated.Unknown, drop)
		if drop != "owner" { // of spec: also the server itself refuses what it does not know
			v := newVolume(r, kube.Claim{Namespace: "default", Name: r.ClaimName, UID: "u"}, []string{"n1"}, api.RuntimeShared)
			if _, err := w.k.CreateVolume(t.Context(), v); !errors.Is(err, kube.ErrOldSchema) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := w.k.CheckSchema(t.Context()); !errors.Is(err, kube.ErrOldSchema) {
			t.Errorf("%s: %v", what, err)
		}
		c := &schemaCheck{m: m}
		ctx, cancel := context.WithCancel(t.Context())
		looked := make(chan error, 1)
		go func() { looked <- c.run(ctx) }()
		kubetest.Eventually(t, 30*time.Second, what+": the manager is not ready", func() bool { return errors.Is(c.ready(), kube.ErrOldSchema) })
		cancel()
		<-looked
		if left := w.c.Left(r.Name); len(left) > 0 {
			t.Errorf("%s: there is %v", what, left)
		}
	}
}

// TestImmutable has the API server refuse changes of what can't change (D1).
func TestImmutable(t *testing.T) {
	w := newWorld(t, 3)
	m := w.manager(nil)
	r := w.request(2)
	v, err := m.begin(t.Context(), r)
	w.must(err)
	cases := map[string]struct {
		change  func(*api.ReplicatedVolumeSpec)
		message string
	}{
		"accessMode":    {func(s *api.ReplicatedVolumeSpec) { s.AccessMode = api.ReadWriteOnce }, "spec.accessMode cannot be changed"},
		"replicaCount":  {func(s *api.ReplicatedVolumeSpec) { s.ReplicaCount = 1 }, "spec.replicaCount cannot be changed"},
		"capacity":      {func(s *api.ReplicatedVolumeSpec) { s.Capacity = api.Bytes(2 << 30) }, "spec.capacity cannot be changed"},
		"quota":         {func(s *api.ReplicatedVolumeSpec) { s.Quota = api.QuotaEnforced }, "spec.quota cannot be changed"},
		"backing class": {func(s *api.ReplicatedVolumeSpec) { s.BackingStorageClass = "x" }, "spec.backingStorageClass cannot be changed"},
		"runtime":       {func(s *api.ReplicatedVolumeSpec) { s.Runtime = api.RuntimePod }, "spec.runtime cannot be changed"},
		"claim":         {func(s *api.ReplicatedVolumeSpec) { s.Claim.Name = "x" }, "spec.claim cannot be changed"},
		"node":          {func(s *api.ReplicatedVolumeSpec) { s.Replicas[0].Node = "elsewhere" }, "a replica does not move"},
		"member":        {func(s *api.ReplicatedVolumeSpec) { s.Replicas[0].Member = 9 }, "a new incarnation has a new member id"},
		"incarnation":   {func(s *api.ReplicatedVolumeSpec) { s.Replicas[0].Incarnation = 2 }, "a new incarnation has a new member id"},
		"same node":     {func(s *api.ReplicatedVolumeSpec) { s.Replicas[0].Node, s.Replicas[0].Placement = s.Replicas[1].Node, 2 }, "no two replicas may be on one node"},
		"fewer":         {func(s *api.ReplicatedVolumeSpec) { s.Replicas = s.Replicas[:1] }, "one entry for each"},
	}
	for name, c := range cases {
		changed := v.DeepCopy()
		c.change(&changed.Spec)
		if _, err := w.k.UpdateVolume(t.Context(), changed); !kube.Invalid(err) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q", name, err, c.message)
		}
	}
	changed := v.DeepCopy()
	changed.Spec.Replicas[0].State = api.StateReleased
	v, err = w.k.UpdateVolume(t.Context(), changed)
	w.must(err)
	v.Spec.Replicas[0].State = api.StateServing
	if _, err := w.k.UpdateVolume(t.Context(), v); !kube.Invalid(err) {
		t.Errorf("a released replica serves again: %v", err)
	}
}
