package names

import (
	"strings"
	"testing"
)

func TestSubdomain(t *testing.T) {
	long := strings.Repeat("a", 63) + "."
	for name, want := range map[string]bool{
		"a": true, "example-store": true, "a.b-c.0": true, "0": true, strings.Repeat("a", 253): true, long + long + long + strings.Repeat("b", 61): true,
		"": false, ".": false, "..": false, "a..b": false, "a.": false, ".a": false, "-a": false, "a-": false, "a.-b": false, "A": false, "a_b": false,
		"a/b": false, "../a": false, "a\x00": false, "a b": false, "ä": false, "a\n": false, strings.Repeat("a", 254): false,
	} {
		if got := Subdomain(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestLabel(t *testing.T) {
	a, b := strings.Repeat("a", 63)+".x", strings.Repeat("a", 63)+".y"
	if Label("node-1") != "node-1" || len(Label(a)) != LabelMost || Label(a) == Label(b) || Label(a) != Label(a) {
		t.Errorf("%s, %s", Label(a), Label(b))
	}
	if got := Label(strings.Repeat("a", 45) + "." + strings.Repeat("b", 30)); !Subdomain(got) {
		t.Errorf("%s", got)
	}
}
