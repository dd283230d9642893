package replicahost

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
)

// defaults is what the role's own flags say of its bounds when nobody else does.
func defaults(t *testing.T) (c Config) {
	t.Helper()
	role := &cli.Command{Name: "replica-host", Flags: flags(&c), Action: func(context.Context, *cli.Command) error { return nil }}
	var errOut strings.Builder
	if code := boot.Main(t.Context(), []*cli.Command{role}, []string{boot.Name, role.Name}, io.Discard, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	return c
}

// TestDefaultBounds holds the flags' defaults to the bounds that were promised (D8, D9).
func TestDefaultBounds(t *testing.T) {
	c := defaults(t)
	for flag, is := range map[string][2]int64{
		"max-workers": {int64(c.Workers), 128}, "max-starts": {int64(c.Starts), 4}, "max-operations": {int64(c.Operations), 32},
		"max-checkpoints": {int64(c.Checkpoints), 2}, "max-rebuilds": {int64(c.Rebuilds), 2}, "rebuild-rate": {c.RebuildRate, 32 << 20},
		"port-first": {int64(c.PortFirst), 20000}, "port-last": {int64(c.PortLast), 20255},
	} {
		if is[0] != is[1] {
			t.Errorf("--%s is %d by default, not %d", flag, is[0], is[1])
		}
	}
}

// TestOneMoreThanTheDefault places a replica more on a host than it serves by default: all but the last get as far as their claims, and that one is
// pending, and says why. A place that gets free is its own.
func TestOneMoreThanTheDefault(t *testing.T) {
	asked := make(chan string)
	h := seatedHost(t, unbound{asked: asked}, defaults(t).Workers)
	ctx, cancel := context.WithCancel(t.Context())
	defer h.running.Wait()
	defer cancel()
	const most = 128
	key := func(i int) string { return fmt.Sprintf("v%d-r1.1", i) }
	for i := range most + 1 {
		h.start(ctx, Assignment{Volume: fmt.Sprint("v", i), Index: 1, Incarnation: 1, Claim: fmt.Sprint("claim-", i)}, nil)
	}
	claim := fmt.Sprint("claim-", most)
	patient := time.After(patience)
	wait := func(what string, so func(name string) bool) {
		t.Helper()
		for {
			select {
			case name := <-asked:
				if so(name) {
					return
				}
			case <-patient:
				t.Fatal(what)
			}
		}
	}
	served := map[string]bool{}
	last := h.mu.replicas[key(most)]
	wait("not all that have a place ask for their claims, or the last does not say what it waits for", func(name string) bool {
		served[name] = true
		return len(served) >= most && last.snapshot().Phase != ""
	})
	st := last.snapshot()
	if served[claim] || st.Phase != api.ReplicaPending || st.Reason != api.HostReasonTooManyWorkers || st.Message != "this host serves 128 replicas, and no more" {
		t.Errorf("replica %d asks for its claim: %v; it is %s, %s: %s", most+1, served[claim], st.Phase, st.Reason, st.Message)
	}
	for i := range most {
		if st := h.mu.replicas[key(i)].snapshot(); st.Reason == api.HostReasonTooManyWorkers {
			t.Errorf("replica %d is %s: %s", i+1, st.Phase, st.Message)
		}
	}
	h.forget(h.mu.replicas[key(0)])
	wait("the last replica does not get the place that is free", func(name string) bool { return name == claim })
}
