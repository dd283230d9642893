package dev

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/roles/boot"
)

var bootConfig = boot.Config{LogLevel: "warn", LogFormat: "json"}

// TestBadInput gives every role what it can't use: one line and an exit code.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "")
	spoiled := filepath.Join(dir, "spoiled")
	if err := os.Mkdir(spoiled, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(spoiled, "settings.json"), "{")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "no role given"},
		{"nonsense", 2, `unknown role "nonsense"`},
		{"dev extra", 2, "unexpected argument"},
		{"dev --replicas 5 --dir DIR/x", 2, "--replicas: 5"},
		{"dev --replicas x", 2, `--replicas: "x" is not a whole number`},
		{"dev --dir DIR", 2, "has other files"},
		{"dev --dir DIR/x --mount DIR/spoiled", 2, "has files (settings.json), which the mount would hide"},
		{"dev --dir DIR/x --reserve-bytes 999999999999999", 2, "--reserve-bytes: 3 replicas of"},
		{"dev --dir DIR/y --metrics-addr 192.0.2.1:9", 1, "--metrics-addr: listen"},
		{"dev --dir DIR/y --journal-bytes 5", 2, "--journal-bytes: 5 is less than"},
		{"dev --mounts 0 --dir DIR/x", 2, "--mounts: 0"},
		{"dev --mount / --dir DIR/x", 2, "--mount"},
		{"dev --log-level loud", 2, "--log-level"},
		{"dev --quorum-wait -1s --dir DIR/x", 2, "--quorum-wait"},
		{"dev --dir FILE", 2, "--dir: "},
		{"dev --replicas 0 --dir DIR/x", 2, "--replicas: 0"},
		{"dev --dir DIR/x --mount FILE", 2, "is not a folder"},
		{"dev --dir DIR/x --mount DIR", 2, "would cover"},
		{"dev --dir DIR/spoiled", 2, "settings.json"},
		{"worker", 2, "--dir is needed"},
		{"worker --dir DIR/w --volume v --replica r --listen 127.0.0.1:0 --trust DIR/none --member 1=r@127.0.0.1:1", 1, "load credentials"},
		{"worker --dir DIR/w --volume v --replica r --listen nonsense --trust t --member 1=r@127.0.0.1:1", 2, "--listen"},
		{"worker --member nonsense", 2, "ID=REPLICA@HOST:PORT"},
		{"mount-owner --socket relative", 2, "--socket"},
		{"mount-owner nonsense", 2, "unknown command"},
		{"ctl", 2, "no command given"},
		{"ctl status --dir DIR/none", 1, "nothing has run in"},
		{"ctl journal verify", 2, "takes one replica folder"},
		{"ctl journal verify DIR", 2, "not a replica's folder"},
		{"ctl checkpoint verify DIR/none", 2, "not a replica's folder"},
		{"ctl export DIR", 2, "takes a replica folder and a new folder"},
	} {
		args := strings.Fields(strings.NewReplacer("DIR", dir, "FILE", file).Replace(c.args))
		code, out := run(t, args...)
		if code != c.code || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%q: exit code %d, want %d with %q: %s", c.args, code, c.code, c.want, out)
		}
	}
}
