package idle

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/worker"
)

var (
	workers = flag.Int("idle.workers", 12, "how many workers; the figures that are promised are for 128")
	watch   = flag.Duration("idle.watch", 0, "how long to measure processor time once everything is idle; 0: not at all")
)

// What is promised for each worker, and for all of them together.
const (
	bytesPerWorker = 6 << 20
	baseBytes      = 96 << 20 // of a process with one worker: program, shared caches
	corePercent    = 2.0
)

// volume starts the workers of one volume of that many replicas.
func volume(t *testing.T, ctx context.Context, parts *sync.WaitGroup, name string, replicas int, serving chan<- string) {
	t.Helper()
	base := t.TempDir()
	now := time.Now
	ca, err := pki.NewCA(name, now)
	if err != nil {
		t.Fatal(err)
	}
	var members []worker.Member
	var taken []net.Listener
	for n := 1; n <= replicas; n++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, l) // until all ports are known
		members = append(members, worker.Member{ID: uint64(n), Replica: fmt.Sprintf("replica-%d", n), Addr: l.Addr().String()})
	}
	for _, l := range taken {
		l.Close()
	}
	for _, m := range members {
		trust := filepath.Join(base, "trust-"+m.Replica)
		for _, h := range []pki.Holder{{Role: pki.RoleServer, Name: m.Replica, Hosts: []string{"127.0.0.1"}}, {Role: pki.RolePeer, Name: m.Replica}} {
			if _, err := pki.OpenDir(pki.OSFiles(trust), now).Renew(ca, h); err != nil {
				t.Fatal(err)
			}
		}
		cfg := worker.Config{
			Dir: filepath.Join(base, m.Replica), Volume: name, Replica: m.Replica, Incarnation: 1, Listen: m.Addr,
			Members: members, Trust: trust, Bootstrap: true, CheckpointBytes: worker.DefaultCheckpointBytes,
			JournalBytes: worker.DefaultJournalBytes, RebuildRate: worker.DefaultRebuildRate, TTL: worker.DefaultTTL,
			Boot: boot.Config{LogLevel: "error", LogFormat: "json"},
		}
		parts.Go(func() {
			if err := worker.Run(ctx, cfg, zap.NewNop(), func(addr string) { serving <- addr }); err != nil {
				t.Errorf("%s %s: %v", name, m.Replica, err)
			}
		})
	}
}

// TestIdleWorkers starts workers of volumes with three replicas in this process,
// lets them come to rest, and measures memory and processor time.
func TestIdleWorkers(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	serving := make(chan string, *workers+3)
	started := 0
	for started < *workers {
		volume(t, ctx, &parts, fmt.Sprintf("idle-%d", started), 3, serving)
		for range 3 {
			select {
			case <-serving:
			case <-time.After(30 * time.Second):
				t.Fatalf("%d workers serve", started)
			}
			started++
		}
	}
	time.Sleep(3 * time.Second) // for the elections to be over
	debug.FreeOSMemory()
	resident := residentBytes(t)
	t.Logf("%d workers: %d MiB resident, %d goroutines, %d descriptors", started, resident>>20, runtime.NumGoroutine(), descriptors(t))
	if most := int64(baseBytes + started*bytesPerWorker); resident > most {
		t.Errorf("%d workers take %d MiB, more than %d", started, resident>>20, most>>20)
	}
	if *watch == 0 {
		return
	}
	time.Sleep(10 * time.Second) // idle groups slow down after 5 s
	from, before := time.Now(), processorTime(t)
	time.Sleep(*watch)
	used := 100 * float64(processorTime(t)-before) / float64(time.Since(from))
	t.Logf("%d idle workers use %.2f %% of a core", started, used)
	if used > corePercent*float64(started)/128 && used > corePercent {
		t.Errorf("%d idle workers use %.2f %% of a core", started, used)
	}
}

func residentBytes(t *testing.T) (n int64) {
	t.Helper()
	return residentOf(t, os.Getpid())
}

func residentOf(t *testing.T, pid int) (n int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
