package fleet

import (
	"path/filepath"
	"time"

	"tak-os.org/tak-replicated/e2e/kill"
)

// scrubLimit bounds the wait for a scrub of everything.
const scrubLimit = 30 * time.Second

// Scrubbed waits until each replica has compared all that it holds with its
// checksums and with the others, from now on, and wants no difference to have
// been found since its worker started.
func (f *Fleet) Scrubbed() {
	f.t.Helper()
	var from []uint64
	for _, m := range f.Healthy().Members {
		from = append(from, m.Report.Scrub.Rounds)
	}
	for end := time.Now().Add(scrubLimit); ; time.Sleep(100 * time.Millisecond) {
		behind := 0
		for i, m := range f.Healthy().Members {
			s := m.Report.Scrub
			if s.Found+s.Left+s.Differs+s.Unsettled > 0 {
				f.t.Fatalf("%s: the scrub found %+v", m.Replica, s)
			}
			if s.Rounds < from[i]+2 {
				behind++
			}
		}
		if behind == 0 {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("%d replicas were not scrubbed within %v", behind, scrubLimit)
		}
	}
}

// Equal wants both mounts to show the same, ends everything, and wants each
// replica to hold that.
func (f *Fleet) Equal() {
	f.t.Helper()
	shown := kill.Manifest(f.t, f.Mounts[0])
	for _, m := range f.Mounts[1:] {
		if diff := kill.Difference(shown, kill.Manifest(f.t, m)); diff != "" {
			f.t.Errorf("the mounts differ:\n%s", diff)
		}
	}
	f.Stop()
	for n := range f.Members {
		out := filepath.Join(f.t.TempDir(), "export")
		if text, err := f.Command("ctl", "export", f.Folder(n+1), out).CombinedOutput(); err != nil {
			f.t.Errorf("export %s: %v\n%s", f.Folder(n+1), err, text)
			continue
		}
		if diff := kill.Difference(shown, kill.Manifest(f.t, out)); diff != "" {
			f.t.Errorf("%s differs from what was mounted:\n%s", Replica(n+1), diff)
		}
	}
	f.t.Logf("%d replicas hold the same %d files", len(f.Members), len(shown))
}
