package dev

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/roles/worker"
)

var rebuildMiB = flag.Int("dev.rebuild", 0, "how many MiB TestRebuildBesideLoad has made anew; 2048 take a minute; 0: the test is skipped")

// slowerMost is how much longer the slowest hundredth of synced appends may take while a
// copy is made.
const slowerMost = 2.0

// TestRebuildBesideLoad makes a copy anew, at the bounded rate, while somebody appends and
// syncs, and once more while somebody writes at half that rate: the former hardly notices,
// and the latter does not keep the copy from being finished. It measures, and wants an
// otherwise idle machine.
func TestRebuildBesideLoad(t *testing.T) {
	if *rebuildMiB == 0 {
		t.Skip("it measures for minutes on an idle machine: give -dev.rebuild")
	}
	d := devtest.Start(t, devtest.Options{Replicas: 3, Processes: true, Watchdog: 20 * time.Minute})
	for i := range *rebuildMiB / 4 {
		if err := os.WriteFile(filepath.Join(d.Mounts[0], fmt.Sprint("filler-", i)), make4MiB(i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d.Healthy(t)
	appending := filepath.Join(d.Mounts[0], "appended")
	alone := appendAndSync(t, appending, after(20*time.Second))
	beside := func() (times []time.Duration) {
		done := replaceFollower(t, d)
		times = appendAndSync(t, appending, done)
		return times
	}()
	was, is := percentile(alone, 0.99), percentile(beside, 0.99)
	t.Logf("%d appends alone, 99 %% within %v; %d while a copy of %d MiB was made, 99 %% within %v: %.2f times", len(alone), was, len(beside), *rebuildMiB, is, float64(is)/float64(was))
	if float64(is) > slowerMost*float64(was) {
		t.Errorf("99 %% of the appends take %v and %v, more than %.0f times as long", was, is, slowerMost)
	}
	d.Healthy(t)

	var wrote atomic.Int64
	done := replaceFollower(t, d)
	writing := filepath.Join(d.Mounts[0], "written")
	f, err := os.Create(writing)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	began := time.Now()
	for block := make4MiB(7)[:1<<20]; !closed(done); {
		if time.Since(began) > 10*time.Minute {
			t.Fatalf("the copy is not made beside %d MiB that were written", wrote.Load()>>20)
		}
		ahead := time.Duration(float64(wrote.Load())/(worker.DefaultRebuildRate/2)*float64(time.Second)) - time.Since(began)
		time.Sleep(max(0, ahead))
		n, err := f.WriteAt(block, wrote.Load()%(64<<20))
		if err != nil {
			t.Fatal(err)
		}
		wrote.Add(int64(n))
	}
	took := time.Since(began)
	t.Logf("made in %v beside %.1f MiB/s", took.Round(time.Second), float64(wrote.Load())/took.Seconds()/(1<<20))
	f.Close()
	equalExports(t, d, 3)
}

// make4MiB is what no disk makes smaller.
func make4MiB(seed int) []byte {
	b := make([]byte, 4<<20)
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// replaceFollower begins to make a follower's copy anew; done is closed when it is.
func replaceFollower(t *testing.T, d *devtest.Dev) (done <-chan struct{}) {
	t.Helper()
	victim := followerOf(t, d.Status(t))
	ended := make(chan struct{})
	failed := make(chan string, 1)
	go func() {
		defer close(ended)
		out, err := d.Run("ctl", "replace", "--dir", d.Dir, "--replica", victim.Replica, "--incarnation", fmt.Sprint(victim.Report.Incarnation))
		if err != nil {
			failed <- fmt.Sprintf("replace: %v\n%s", err, out)
		}
	}()
	t.Cleanup(func() {
		<-ended
		select {
		case why := <-failed:
			t.Error(why)
		default:
		}
	})
	return ended
}

// appendAndSync appends 4 KiB and syncs, again and again, and returns how long each took.
func appendAndSync(t *testing.T, path string, until <-chan struct{}) (times []time.Duration) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make4MiB(3)[:4096]; !closed(until); {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	return times
}

func after(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func percentile(times []time.Duration, p float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)-1, int(p*float64(len(times))))]
}
