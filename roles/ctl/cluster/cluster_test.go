package cluster

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/kube/kubetest"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ctl/bundle"
	"tak-os.org/tak-replicated/roles/ctl/watch"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// TestRetainedVolume looks at a volume that was retained, and destroys it.
func TestRetainedVolume(t *testing.T) {
	c := kubetest.Shared(t).Cluster(t)
	k := c.Kube(nil)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	uid := c.NewClaim("content", nil)
	made := pair("content", uid)
	made.Finalizers = []string{api.FinalizerVolume}
	v, err := k.CreateVolume(t.Context(), made)
	check(err)
	check(k.ApplyManagerStatus(t.Context(), v, kube.ManagerStatus{Phase: api.PhaseDegraded, Ready: "1/2", Runtime: api.RuntimeShared, Conditions: []api.Condition{
		{Type: api.ConditionRedundant, Status: "False", Reason: api.ReasonReplicaUnavailable, Message: "replica 2 on n2: away", LastTransitionTime: v.CreationTimestamp},
		{Type: api.ConditionAvailable, Status: "True", Reason: api.ReasonQuorum, LastTransitionTime: v.CreationTimestamp},
	}}))
	check(k.ApplyReplicaStatus(t.Context(), v, "n1", []api.ReplicaStatus{{Index: 1, Incarnation: 1, Node: "n1", Phase: api.ReplicaRunning, Role: api.RoleCoordinator, Term: 7, AppliedIndex: 42}}, nil))
	c.AddPV("outer", v.Name, "Released")

	var out bytes.Buffer
	check(volumes(t.Context(), k, v.Name, false, &out))
	for _, part := range []string{"default/content", "1/2", "Degraded", "Coordinator", "42", "its host has said nothing", "Redundant since", "replica 2 on n2: away"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in:\n%s", part, &out)
		}
	}
	if strings.Contains(out.String(), api.ReasonQuorum+":") {
		t.Errorf("what is well is told too:\n%s", &out)
	}

	refused := func(what string) {
		t.Helper()
		if err := destroyRetained(t.Context(), k, v.Name, &out); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want %q", err, what)
		}
	}
	uninstall := func(parts ...string) {
		t.Helper()
		out.Reset()
		err := uninstallCheck(t.Context(), k, &out)
		if (err == nil) != (len(parts) == 0) {
			t.Errorf("error %v", err)
		}
		for _, part := range parts {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%q is not in:\n%s", part, &out)
			}
		}
	}
	refused("PersistentVolume outer (Released) names volume")
	uninstall("PersistentVolume outer ("+api.DriverReplicated+")", "ReplicatedVolume "+v.Name, "StorageClass "+kubetest.BackingClass)
	c.DeletePV("outer")
	refused("claim default/content")
	uninstall("retained: bind it again")
	c.DeleteClaim("content")
	check(destroyRetained(t.Context(), k, v.Name, &out))
	now, err := k.Volume(t.Context(), v.Name)
	check(err)
	if now.Spec.Reclaim == nil || now.Spec.Reclaim.Reason != api.ReclaimDestroyRetained {
		t.Errorf("reclaim is %+v", now.Spec.Reclaim)
	}
	now.Finalizers = nil
	_, err = k.UpdateVolume(t.Context(), now)
	check(err)
	check(k.DeleteVolume(t.Context(), now))
	uninstall()
	c.RemoveCRD() // as on a cluster where nothing was installed
	defer c.InstallCRD(kubetest.CRD(t))
	uninstall()
}

// TestStatusAndBundle asks a cluster how its volumes are, and gathers what it says.
func TestStatusAndBundle(t *testing.T) {
	c := kubetest.Shared(t).Cluster(t)
	k := c.Kube(nil)
	var out bytes.Buffer
	if err := ShowStatus(t.Context(), k, &out, false, false); err != nil || !strings.HasPrefix(out.String(), "0 volumes\n") {
		t.Errorf("no volumes: %v, %s", err, &out)
	}
	uid := c.NewClaim("content", nil)
	made := pair("content", uid)
	made.Spec.ReplicaCount, made.Spec.Replicas = 1, made.Spec.Replicas[:1]
	v, err := k.CreateVolume(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Event(t.Context(), "test", kube.ObjectOfVolume(v), true, "NoQuorum", "nobody answers"); err != nil {
		t.Fatal(err)
	}
	for uid, words := range map[string]string{uid: "the claim's owner is told", "other": "of another claim"} {
		if err := k.Event(t.Context(), "test", kube.ObjectOfClaim("default", "content", uid), true, "NoQuorum", words); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.ApplyManagerStatus(t.Context(), v, kube.ManagerStatus{Phase: api.PhaseUnavailable, Ready: "0/1", Runtime: api.RuntimeShared, Conditions: []api.Condition{
		{Type: api.ConditionAvailable, Status: "False", Reason: api.ReasonNoQuorum, Message: "none of 1 answers", LastTransitionTime: v.CreationTimestamp},
	}}); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	err = ShowStatus(t.Context(), k, &out, false, true)
	if boot.ExitCode(err) != watch.ExitUnavailable {
		t.Errorf("the error is %v", err)
	}
	for _, want := range []string{"1 volumes, \x1b[1;31m1 unavailable", "NoQuorum: none of 1 answers", "default/content"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
	out.Reset()
	if err := ShowStatus(t.Context(), k, &out, true, false); err == nil || !strings.Contains(out.String(), `"reason": "NoQuorum"`) {
		t.Errorf("as JSON: %v, %s", err, &out)
	}
	var packed bytes.Buffer
	a := bundle.New(&packed, "b", time.Unix(0, 0))
	if err := bundle.Cluster(t.Context(), a, k); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"b/volumes.json", "b/nodes.json", "b/classes.json", "b/pods.json", "nobody answers", "the claim's owner is told", "everything could be had"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the archive lacks %q", want)
		}
	}
	if bytes.Contains(text, []byte("of another claim")) {
		t.Error("the archive has Events about a claim that is not ours")
	}
}
