package dev

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// TestLogKeysAreUnique reads what everything says at the most talkative level: lines are JSON, and none has a key twice.
func TestLogKeysAreUnique(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Replicas: 3, Processes: true, Args: []string{"--log-level", "debug", "--log-format", "json"}})
	write(t, filepath.Join(d.Mounts[0], "f"), "x")
	if out, err := d.Run("ctl", "status", "--dir", d.Dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d.Stop(t)
	lines := 0
	for line := range strings.Lines(d.Stderr()) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		lines++
		if key := twice(t, line); key != "" {
			t.Errorf("%q is there twice: %s", key, line)
		}
	}
	if lines < 20 {
		t.Errorf("only %d lines were said:\n%s", lines, d.Stderr())
	}
}

// twice returns a key that an object has twice.
func twice(t *testing.T, line string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	seen, depth, key := map[string]bool{}, 0, true
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			key = depth == 1
			continue
		case string:
			if depth == 1 && key {
				if seen[v] {
					return v
				}
				seen[v] = true
				key = false
				continue
			}
		}
		if depth == 1 {
			key = true
		}
	}
}

func TestTwice(t *testing.T) {
	for line, want := range map[string]string{
		`{"a":1,"b":"a","a":2}`: "a", `{"a":{"b":1},"b":[1,"b"],"c":"a"}`: "", `{"a":null,"b":true,"b":1}`: "b",
	} {
		if got := twice(t, line); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}
