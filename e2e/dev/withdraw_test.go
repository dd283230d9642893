package dev

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/e2e/volumetest"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/worker"
)

// TestWithdraw: a new copy that never comes is taken back, and another one is let in in its
// place; a member with a vote is not taken back.
func TestWithdraw(t *testing.T) {
	v := volumetest.New(t, volumetest.Options{})
	v.StartAll()
	operator, err := pki.NewCredentials(pki.OpenDir(pki.OSFiles(v.Trust("operator")), time.Now).Load(pki.RoleOperator), time.Now, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	seat := func(member, incarnation uint64) worker.Seat {
		return worker.Seat{Member: member, Replica: v.ReplicaName(3), Incarnation: incarnation}
	}
	ask := func(want worker.Replacement) (r *worker.Replaced, err error) {
		t.Helper()
		for range 10 { // the coordinator may change
			at := v.Members[v.Coordinator()-1].Addr
			r, err = worker.Replace(context.Background(), at, operator.ClientTLS("127.0.0.1"), want)
			var failed *fsop.Failure
			if !errors.As(err, &failed) || failed.Code != fsop.NotCoordinator {
				return r, err
			}
		}
		return r, err
	}
	waits := func(add worker.Seat) {
		t.Helper()
		r, err := ask(worker.Replacement{Remove: seat(3, 1), Add: add})
		if err != nil || r.Done || r.Phase != "the new member is not heard of" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	waits(seat(4, 2))
	for member, wrong := range map[worker.Seat]string{seat(4, 3): "member 4 is replica-3 of incarnation 2", seat(3, 1): "has a vote"} {
		if r, err := ask(worker.Replacement{Remove: member}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("withdrawing %+v: %+v, %v", member, r, err)
		}
	}
	if _, err := ask(worker.Replacement{Remove: seat(3, 1), Add: seat(5, 3)}); err == nil {
		t.Error("two copies join in one replica's place")
	}
	for range 2 {
		if r, err := ask(worker.Replacement{Remove: seat(4, 2)}); err != nil || !r.Done {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	waits(seat(5, 3))
	if _, err := ask(worker.Replacement{Remove: seat(3, 1), Add: seat(4, 2)}); err == nil {
		t.Error("a member that was withdrawn joins again")
	}
}
