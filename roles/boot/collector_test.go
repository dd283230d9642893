package boot

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestGroupLimit(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		text string
		want int64
	}{
		{"805306368\n", 768 << 20}, {"max\n", 0}, {"9223372036854771712\n", 0}, {"", 0}, {"many", 0},
	} {
		f := filepath.Join(dir, "limit")
		if err := os.WriteFile(f, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := groupLimit(filepath.Join(dir, "none"), f); got != c.want {
			t.Errorf("%q: %d, want %d", c.text, got, c.want)
		}
	}
	if got := groupLimit(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("without a control group: %d", got)
	}
}

// TestCollector makes as much garbage as some reads do, which is no reason to
// collect any more.
func TestCollector(t *testing.T) {
	t.Setenv("GOGC", "")
	tuneCollector()
	defer func() { spare = nil }()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 32 {
		sink = make([]byte, 1<<20)
	}
	runtime.ReadMemStats(&after)
	if n := after.NumGC - before.NumGC; n > 0 {
		t.Errorf("collected %d times for 32 MiB", n)
	}
}

var sink []byte
