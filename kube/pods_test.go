package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tak-os.org/tak-replicated/kube/api"
)

// TestWorkerPodIsAsked has the kubelet ask a worker Pod for its health and readiness, at the port where it serves them: without, a Pod is ready as
// soon as its process runs, and the next of its volume would be replaced while this one has not come back.
func TestWorkerPodIsAsked(t *testing.T) {
	v := &api.ReplicatedVolume{}
	v.Name = "pvc-u"
	c := workerPodSpec(WorkerPod{Volume: v, Index: 1, MetricsPort: 9814}, "claim").Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for what, want := range map[string]struct {
		probe   *corev1.Probe
		path    string
		atLeast int32 // seconds that pass before anything comes of it
	}{
		"startup":   {c.StartupProbe, "/healthz", 3600}, // a long journal is read
		"liveness":  {c.LivenessProbe, "/healthz", 60},
		"readiness": {c.ReadinessProbe, "/readyz", 0},
	} {
		p := want.probe
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != want.path || ports[p.HTTPGet.Port.String()] != 9814 || p.PeriodSeconds*p.FailureThreshold < want.atLeast {
			t.Errorf("%s probe: %+v", what, p)
		}
	}
}

// TestWorkerPodMayLittle has a worker Pod have no more rights on its node than the replica host.
func TestWorkerPodMayLittle(t *testing.T) {
	v := &api.ReplicatedVolume{}
	v.Name = "pvc-u"
	s := workerPodSpec(WorkerPod{Volume: v, Index: 1}, "claim").Containers[0].SecurityContext
	if s == nil || s.Privileged != nil && *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
		s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.Capabilities == nil ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, []corev1.Capability{"DAC_OVERRIDE"}) {
		t.Errorf("%+v", s)
	}
}
