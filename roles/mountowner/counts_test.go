package mountowner

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/roles/boot"
)

// TestCountsOfUnmountedVolumes: a volume's counts are shown for a while after its
// last mount has ended, and then no more: a node's mount owner sees thousands of
// volumes in its life.
func TestCountsOfUnmountedVolumes(t *testing.T) {
	o := NewOwner(client.Limits{}, zap.NewNop())
	o.mu.ctx = context.Background()
	close(o.running)
	now := time.Unix(1e9, 0)
	o.tallies.now = func() time.Time { return now }
	ops := (&boot.Config{}).NewOps()
	o.Observe(ops)
	shown := func(volume string) bool {
		w := httptest.NewRecorder()
		ops.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return strings.Contains(w.Body.String(), `volume="`+volume+`"`)
	}
	mount := func(path, volume string) *mount {
		spec := validSpec()
		spec.Mountpoint, spec.Volume = path, volume
		m, _, err := o.begin(spec)
		must(t, err)
		return m
	}

	first, second := mount("/a", "twice"), mount("/b", "twice")
	first.tally.FromMemory()
	o.forget(first)
	now = now.Add(2 * talliesKept)
	if !shown("twice") {
		t.Error("one of two mounts has ended, and nothing is shown of the other")
	}
	o.forget(second)
	now = now.Add(talliesKept - 1)
	if !shown("twice") {
		t.Error("whoever looks a while after the last unmount misses the last counts")
	}
	now = now.Add(1)
	if shown("twice") {
		t.Error("a volume that was unmounted long ago is shown")
	}

	// Nobody has to look for that.
	o.forget(mount("/a", "unseen"))
	now = now.Add(talliesKept)
	mount("/a", "present")
	if n := len(o.tallies.mu.volumes); n != 1 || !shown("present") {
		t.Errorf("%d volumes are counted, 1 is mounted", n)
	}
}
