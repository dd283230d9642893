package long

import (
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
)

var (
	longFor = flag.Duration("long.for", 0, "how long the load runs; 0: not at all")
	hands   = flag.Int("long.hands", 4, "how many do it at once")
)

// samplesMost is how many samples are taken in the whole time.
const samplesMost = 240

// TestLong runs the load and asks that nothing grows.
func TestLong(t *testing.T) {
	if *longFor == 0 {
		t.Skip("it takes long: give -long.for")
	}
	addr := devtest.FreeAddr(t)
	d := devtest.Start(t, devtest.Options{
		Replicas: 3, Mounts: 2, Watchdog: *longFor + 10*time.Minute,
		Args: []string{"--metrics-addr", addr, "--journal-bytes", "33554432", "--checkpoint-bytes", "8388608"},
	})
	ctx, cancel := context.WithTimeout(t.Context(), *longFor)
	defer cancel()
	var all sync.WaitGroup
	var rounds atomic.Int64
	for n := range *hands {
		h := &hand{n: n, mounts: d.Mounts, rounds: &rounds, rng: rand.New(rand.NewPCG(uint64(n), 1))}
		all.Go(func() {
			if err := h.run(ctx); err != nil {
				t.Error(err)
				cancel()
			}
		})
	}
	samples := watch(t, ctx, addr, d.Dir, &rounds)
	all.Wait()
	for _, m := range d.Mounts {
		if left, err := os.ReadDir(m); err != nil || len(left) > 0 {
			t.Errorf("%s has %d entries at the end, %v", m, len(left), err)
		}
	}
	if len(samples) < leastSamples {
		t.Fatalf("%d samples are too few", len(samples))
	}
	faults, lines := growth(samples)
	t.Logf("%d rounds of %d files in %s:\n%s", rounds.Load(), filesARound, *longFor, strings.Join(lines, "\n"))
	for _, f := range faults {
		t.Errorf("it grows: %s", f)
	}
	if rounds.Load() == 0 {
		t.Error("no round was ended")
	}
}

// watch takes samples until ctx ends.
func watch(t *testing.T, ctx context.Context, addr, dir string, rounds *atomic.Int64) (samples []sample) {
	t.Helper()
	tick := time.NewTicker(max(*longFor/samplesMost, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return samples
		case <-tick.C:
		}
		s := sample{}
		text, err := metrics(addr)
		if err == nil {
			err = s.fromMetrics(text)
		}
		if err == nil {
			err = s.fromDisk(dir)
		}
		if err != nil {
			t.Errorf("sample: %v", err)
			continue
		}
		samples = append(samples, s)
		if len(samples)%20 == 0 {
			t.Logf("%d rounds, %v", rounds.Load(), s)
		}
	}
}

func metrics(addr string) (string, error) {
	client := http.Client{Timeout: 30 * time.Second}
	resp, err := client.Get("http://" + addr + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// TestGrowth finds what grows, and not what goes up and down.
func TestGrowth(t *testing.T) {
	flat, leak := []sample{}, []sample{}
	for n := range 90 {
		s, l := sample{}, sample{}
		for _, f := range figures {
			s[f.name] = 100 + float64(n%7)*f.spare/10
			l[f.name] = 100
		}
		if n < 30 { // warming up
			s["memory MiB"] = float64(n)
		}
		l["goroutines"] = 100 + float64(4*n)
		flat, leak = append(flat, s), append(leak, l)
	}
	if faults, lines := growth(flat); len(faults) > 0 || len(lines) != len(figures) {
		t.Errorf("flat: %q", faults)
	}
	if faults, _ := growth(leak); len(faults) != 1 || !strings.HasPrefix(faults[0], "goroutines") {
		t.Errorf("a leak: %q", faults)
	}
}

func TestSample(t *testing.T) {
	s := sample{}
	if err := s.fromMetrics("go_goroutines 12\nprocess_open_fds 7\nprocess_resident_memory_bytes 2.097152e+06\nother 3\n"); err != nil || s["memory MiB"] != 2 || s["goroutines"] != 12 {
		t.Errorf("%v, %v", s, err)
	}
	if err := s.fromMetrics("go_goroutines 12\n"); err == nil {
		t.Error("metrics that are not there are not missed")
	}
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/replica-1/log/journal", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/replica-1/log/journal/segment", make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.fromDisk(dir); err != nil || s["journal MiB"] < 1 || s["disk MiB"] < s["journal MiB"] {
		t.Errorf("%v, %v", s, err)
	}
}

// TestRound does one round on an ordinary folder: what the load does is right anywhere.
func TestRound(t *testing.T) {
	dir := t.TempDir()
	var rounds atomic.Int64
	h := &hand{mounts: []string{dir, dir}, rounds: &rounds, rng: rand.New(rand.NewPCG(1, 1))}
	switch err := h.round(0); {
	case errors.Is(err, unix.EOPNOTSUPP):
		t.Skipf("the folder for tests has not all that is needed: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
