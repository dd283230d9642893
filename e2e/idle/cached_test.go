package idle

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
)

var (
	cached = flag.Int("idle.cached", 24_000, "how many files a mount looks at, of which it may remember a few thousand; the figure that is promised is for 1,000,000")
	dirty  = flag.Int("idle.dirty", 400, "how many files are written and not synced")
)

// What a mount and a coordinator may take more once the files are several times as many as
// a mount remembers. Go collects garbage when 96 MiB have gathered, so that much is noise.
const (
	cacheInodes  = 4096
	filesInDir   = 2000
	growthMost   = 160 << 20
	cachedWithin = 25 * time.Minute
)

// TestCachedFiles has a mount look at many more files than it may remember, and another
// one write to many without a sync: what serves the mount and what coordinates stays
// within bounds that the number of files has nothing to do with.
func TestCachedFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("makes thousands of files")
	}
	d := devtest.Start(t, devtest.Options{Mounts: 2, Processes: true, Watchdog: cachedWithin, Args: []string{"--cache-inodes", fmt.Sprint(cacheInodes)}})
	path := func(mount, n int) string {
		return filepath.Join(d.Mounts[mount], fmt.Sprint("dir-", n/filesInDir), fmt.Sprint("file-", n))
	}
	first := min(*cached, 2*cacheInodes)
	make := func(from, to int) {
		for n := from; n < to; n++ {
			if n%filesInDir == 0 {
				must(t, os.Mkdir(filepath.Dir(path(0, n)), 0o755))
			}
			fd, err := unix.Open(path(0, n), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
			must(t, err)
			must(t, unix.Close(fd))
		}
	}
	look := func(from, to int) {
		var st unix.Stat_t
		for n := from; n < to; n++ {
			must(t, unix.Stat(path(1, n), &st))
		}
	}
	resident := func() (all []int64) {
		st := d.Healthy(t)
		for _, pid := range []int{st.Mounts[0].PID, st.Mounts[1].PID, d.Coordinator(t).PID} {
			all = append(all, residentOf(t, pid))
		}
		return all
	}
	make(0, first)
	look(0, first)
	before := resident()
	make(first, *cached)
	look(first, *cached)
	look(0, first) // once more, since they were forgotten
	data := []byte(strings.Repeat("dirty", 4000))
	for n := range min(*dirty, *cached) {
		must(t, os.WriteFile(path(0, n), data, 0o644))
	}
	after := resident()
	for i, what := range []string{"the mount that writes", "the mount that looks", "the coordinator"} {
		t.Logf("%s: %d MiB after %d files, %d MiB after %d", what, before[i]>>20, first, after[i]>>20, *cached)
		if grown := after[i] - before[i]; grown > growthMost {
			t.Errorf("%s has grown by %d MiB", what, grown>>20)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
