package power

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// lost is what TestPowerCut says of operations that were answered and are gone,
// forgotten what a worker says of its replica.
var (
	lost = regexp.MustCompile(`.*(no such file|file exists|records, appended were|is not what .* wrote|is there after it was renamed|` +
		`links, not|appends its|reads ".*" where|transport endpoint|input/output error|stale|neither of two|both of two).*`)
	forgotten = regexp.MustCompile(`.*replica state lost.*`)
)

// TestLyingDisksAreFound runs TestPowerCut on disks that answer a flush before
// they are durable: it must fail (the planted bug of this package). The hosts'
// records tell at once; without them the load does.
func TestLyingDisksAreFound(t *testing.T) {
	devtest.NeedFUSE(t)
	for record, wants := range map[string]*regexp.Regexp{"true": forgotten, "false": lost} {
		t.Run("record="+record, func(t *testing.T) {
			t.Parallel()
			lie(t, record, wants)
		})
	}
}

func lie(t *testing.T, record string, wants *regexp.Regexp) {
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
	if !strings.Contains(text, "--- FAIL: TestPowerCut") || !wants.MatchString(text) {
		t.Fatalf("it failed for another reason: %v\n%s", err, text)
	}
	t.Logf("found: %s", wants.FindString(text))
}
