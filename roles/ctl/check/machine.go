package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/csi/mounts"
)

// version is a kernel's, as far as it matters.
type version struct{ major, minor int }

func (v version) before(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

var (
	// needed: mounts that appear at once with their attributes (mount_setattr).
	needed = version{5, 12}
	// wanted: requests that a dead server had are sent again (FUSE_HAS_RESEND).
	wanted = version{6, 9}
)

func kernel() []Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return []Finding{{What: "kernel", State: Fail, Says: err.Error()}}
	}
	return judgeKernel(unix.ByteSliceToString(u.Release[:]))
}

// judgeKernel goes by the version: what FUSE can do the kernel tells only to whoever
// serves a mount.
func judgeKernel(release string) []Finding {
	k, r := Finding{What: "kernel", State: OK, Says: release}, Finding{What: "RESEND", State: OK, Says: "is there, by the kernel's version"}
	var v version
	if _, err := fmt.Sscanf(release, "%d.%d", &v.major, &v.minor); err != nil {
		k.State, k.Do = Warn, "not a version that is understood; Linux 6.9 or later is wanted"
		return []Finding{k}
	}
	if v.before(needed) {
		k.State, k.Do = Fail, "Linux 5.12 or later is needed"
	}
	if v.before(wanted) {
		r.State, r.Says = Warn, "is not there, by the kernel's version, unless that has it from a later one: what a mount says when it is \"mounted\" (survives) is certain"
		r.Do = "before Linux 6.9 open files do not survive the end of the process that serves a mount: drain a node before its mount owner is updated"
	}
	return []Finding{k, r}
}

func fuse() Finding {
	f := Finding{What: "/dev/fuse", State: OK, Says: "opens"}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		f.State, f.Says, f.Do = Fail, err.Error(), "modprobe fuse, and run this as root"
		return f
	}
	unix.Close(fd)
	return f
}

// propagation sees whether mounts below the kubelet's folder reach others.
func propagation(dir string) Finding {
	f := Finding{What: "mount propagation", State: OK}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		f.State, f.Says, f.Do = Fail, err.Error(), "name the kubelet's folder with --kubelet-dir (k0s and MicroK8s have their own)"
		return f
	}
	table, err := mounts.Own()
	if err != nil {
		f.State, f.Says = Fail, err.Error()
		return f
	}
	m, ok := mounts.Containing(table, real)
	switch {
	case !ok:
		f.State, f.Says = Fail, real+" lies in no mount of this process"
	case !m.Shared:
		f.State, f.Says = Fail, fmt.Sprintf("%s lies in the mount %s, which is not shared", dir, m.Point)
		f.Do = "mount --make-rshared " + m.Point + ", at every start of the machine"
	default:
		f.Says = dir + " lies in a shared mount"
	}
	return f
}

// clockErrorMost is how far the clock may be from others', in the kernel's
// estimate, before certificates and tokens are in danger.
const clockErrorMost = time.Second

func clock() Finding {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Finding{What: "clock", State: Warn, Says: err.Error()}
	}
	return judgeClock(state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0, time.Duration(t.Maxerror)*time.Microsecond)
}

func judgeClock(unsynchronised bool, most time.Duration) Finding {
	f := Finding{What: "clock", State: OK, Says: fmt.Sprintf("synchronised to within %v", most.Round(time.Millisecond))}
	const do = "run chrony or another NTP client: credentials are only good while clocks agree"
	switch {
	case unsynchronised:
		f.State, f.Says, f.Do = Warn, "the kernel does not know whether it is right", do
	case most > clockErrorMost:
		f.State, f.Do = Warn, do
	}
	return f
}

// Bounds of a sync's time, at the 99th percentile. Above syncMost a replica gives
// up leadership.
const (
	syncGood = 50 * time.Millisecond
	syncMost = 2 * time.Second
	// syncs are measured, for syncPatience at most.
	syncs        = 100
	syncPatience = 10 * time.Second
)

// nearest is dir, or the nearest folder above it that is there.
func nearest(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			return "", fmt.Errorf("%s is not a folder", dir)
		}
		if err == nil || !errors.Is(err, os.ErrNotExist) || dir == "/" || dir == "." {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

func disk(ctx context.Context, dir string) Finding {
	took, err := measure(ctx, dir)
	if err != nil {
		return Finding{What: "disk", State: Fail, Says: err.Error(), Do: "name a folder on the disk for volumes with --dir, and run this as root"}
	}
	return judgeDisk(took)
}

// measure writes and syncs as a journal does.
func measure(ctx context.Context, dir string) (took []time.Duration, err error) {
	if dir, err = nearest(dir); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, ".tak-check-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4096)
	// As a journal's segment: made beforehand, then overwritten.
	if _, err := f.WriteAt(make([]byte, len(block)*syncs), 0); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	end := time.Now().Add(syncPatience)
	for i := 0; i < syncs && ctx.Err() == nil && time.Now().Before(end); i++ {
		begin := time.Now()
		if _, err := f.WriteAt(block, int64(i*len(block))); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("fdatasync in %s: %w", dir, err)
		}
		took = append(took, time.Since(begin))
	}
	if len(took) == 0 {
		return nil, fmt.Errorf("no sync in %s within %v", dir, syncPatience)
	}
	return took, nil
}

func judgeDisk(took []time.Duration) Finding {
	slices.Sort(took)
	middle, high := took[len(took)/2], took[(len(took)*99-1)/100]
	f := Finding{What: "disk", State: OK, Says: fmt.Sprintf("%d syncs: median %v, 99th percentile %v", len(took), round(middle), round(high))}
	switch {
	case high > syncMost:
		f.State, f.Do = Fail, "too slow to keep a quorum: use another disk"
	case high > syncGood:
		f.State, f.Do = Warn, "every write of a file waits for this on a quorum: a disk with power-loss protection is faster"
	}
	return f
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// spaceLow is the part of a disk, in percent, below which it is nearly full.
const spaceLow = 10

func space(dir string) Finding {
	f := Finding{What: "space", State: OK}
	dir, err := nearest(dir)
	if err != nil {
		f.State, f.Says = Fail, err.Error()
		return f
	}
	d, err := os.Open(dir)
	if err != nil {
		f.State, f.Says = Fail, err.Error()
		return f
	}
	defer d.Close()
	u, err := mounts.UsageOf(d)
	if err != nil {
		f.State, f.Says = Fail, err.Error()
		return f
	}
	return judgeSpace(u.BytesFree, u.BytesTotal)
}

func judgeSpace(free, total int64) Finding {
	f := Finding{What: "space", State: OK, Says: fmt.Sprintf("%d of %d MiB are free", free>>20, total>>20)}
	if total > 0 && free*100/total < spaceLow {
		f.State, f.Do = Warn, "growth is refused when the disk of a replica is nearly full"
	}
	return f
}
