package kill

import (
	"path/filepath"
	"testing"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// equalReplicas ends dev and wants each replica to hold what the mount showed.
func equalReplicas(t *testing.T, d *devtest.Dev) {
	t.Helper()
	shown := Manifest(t, d.Mounts[0])
	d.Healthy(t) // an export shows what its replica has, also of one that is behind
	d.Stop(t)
	replicas, err := filepath.Glob(filepath.Join(d.Dir, "replica-*"))
	if err != nil || len(replicas) == 0 {
		t.Fatalf("no replicas in %s: %v", d.Dir, err)
	}
	for _, r := range replicas {
		out := filepath.Join(t.TempDir(), "export")
		if text, err := d.Run("ctl", "export", r, out); err != nil {
			t.Errorf("export %s: %v\n%s", r, err, text)
			continue
		}
		if diff := Difference(shown, Manifest(t, out)); diff != "" {
			t.Errorf("%s differs from what was mounted:\n%s", filepath.Base(r), diff)
		}
	}
	t.Logf("%d replicas hold the same %d files", len(replicas), len(shown))
}
