//go:build e2e

package monitoring

import (
	"os/exec"
	"testing"

	"tak-os.org/tak-replicated/e2e/cluster/programs"
)

// TestRules runs promtool's checks and rule tests: each alert fires when it is to,
// and not otherwise.
func TestRules(t *testing.T) {
	promtool, err := programs.Path(t.Context(), programs.Promtool, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "../../manifests/monitoring"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
