package power

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// found is what TestPowerCut says of operations that were answered and are gone,
// or a worker of a journal that ends before what its host has seen. Or the volume
// stands still, as it should when no majority has all that was confirmed or the
// contents that belong to it (on disks that do not lie TestPowerCut shows that it
// goes on).
var found = regexp.MustCompile(`.*(no such file|file exists|records, appended were|is not what .* wrote|is there after it was renamed|` +
	`links, not|appends its|lists \d+ entries with \d+ names, not|reads ".*" where|transport endpoint|input/output error|stale|neither of two|both of two|replica state lost|hands make no progress).*`)

// TestLyingDisksAreFound runs TestPowerCut on disks that answer a flush before
// they are durable: it must fail (the planted bug of this package). A host's
// record may tell at once; without one the load does.
func TestLyingDisksAreFound(t *testing.T) {
	devtest.NeedFUSE(t)
	for _, record := range []string{"true", "false"} {
		t.Run("record="+record, func(t *testing.T) {
			t.Parallel()
			lie(t, record)
		})
	}
}

func lie(t *testing.T, record string) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^TestPowerCut$", "-power.lag", "400ms", "-power.rounds", "1", "-power.record="+record)
	cmd.Env = append(os.Environ(), "TAK_TEST_BINARY="+devtest.Binary(t))
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err == nil {
		t.Fatalf("nothing was found on disks that lie:\n%s", text)
	}
	if !strings.Contains(text, "--- FAIL: TestPowerCut") || !found.MatchString(text) {
		t.Fatalf("it failed for another reason: %v\n%s", err, text)
	}
	t.Logf("found: %s", found.FindString(text))
}
