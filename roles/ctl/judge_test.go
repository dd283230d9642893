package ctl

import (
	"strings"
	"testing"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/worker"
)

// TestRebuildIsJudged: a rebuild is shown with about how much there is to come.
func TestRebuildIsJudged(t *testing.T) {
	s := Status{Coordinator: "r1", Space: &worker.SpaceReport{UsedBytes: 6 << 20}, Members: []Member{
		{Replica: "r1", Report: &worker.Report{Serving: true}},
		{Replica: "r2", Report: &worker.Report{Rebuild: &worker.RebuildReport{Index: 7, Bytes: 3 << 19}}},
	}}
	s.judge()
	if s.Health != api.Degraded || !strings.Contains(strings.Join(s.Why, "; "), "r2: receiving checkpoint 7: 1.5 MiB of about 6.0") {
		t.Errorf("%s: %q", s.Health, s.Why)
	}
	s.Space, s.Why = nil, nil
	if s.judge(); !strings.Contains(strings.Join(s.Why, "; "), "7: 1.5 MiB") {
		t.Errorf("without a coordinator's word: %q", s.Why)
	}
}
