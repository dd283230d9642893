package watch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
)

func TestVerdict(t *testing.T) {
	for h, want := range map[api.Health]int{api.Healthy: 0, api.Changing: 0, api.Degraded: ExitDegraded, api.Unavailable: ExitUnavailable} {
		if got := boot.ExitCode(Verdict("it", h)); got != want {
			t.Errorf("%s has exit code %d", h, got)
		}
	}
}

func TestLoop(t *testing.T) {
	var out bytes.Buffer
	bad := errors.New("away")
	if err := (Loop{}).Run(t.Context(), &out, func(context.Context, io.Writer) error { return bad }); err != bad {
		t.Errorf("once: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := Loop{On: true, Every: time.Millisecond}.Run(ctx, &out, func(_ context.Context, w io.Writer) error {
		if n++; n == 3 {
			cancel()
			return bad
		}
		return nil
	})
	if err != bad || n != 3 || out.String() != "\n\naway\n" {
		t.Errorf("%d times, %v, printed %q", n, err, out.String())
	}
}
