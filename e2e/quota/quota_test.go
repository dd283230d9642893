package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tak-os.org/tak-replicated/e2e/devtest"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/worker"
)

const (
	block    = 4096
	blocks   = 18_000              // more than what mounts leave to answers that wait for the log
	size     = blocks*block + 1000 // the odd bytes are no block
	patience = 20 * time.Second
)

// volume is a dev whose size is enforced.
type volume struct {
	*devtest.Dev
	t       *testing.T
	metrics string
}

func start(t *testing.T, dir string) *volume {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	v := &volume{t: t, metrics: l.Addr().String()}
	must(t, l.Close())
	v.Dev = devtest.Start(t, devtest.Options{
		Dir: dir, Mounts: 3, Args: []string{"--metrics-addr", v.metrics, "--checkpoint-bytes", "2097152", "--journal-bytes", "25165824"},
	})
	return v
}

// operate has an operation logged, as the manager of a cluster does.
func (v *volume) operate(op fsop.Op) {
	v.t.Helper()
	creds, err := pki.NewCredentials(pki.OpenDir(pki.OSFiles(filepath.Join(v.Dir, "trust", "operator")), time.Now).Load(pki.RoleOperator), time.Now, zap.NewNop())
	must(v.t, err)
	m := v.Coordinator(v.t)
	r, err := worker.Operate(context.Background(), m.Addr, creds.ClientTLS(worker.Member{Addr: m.Addr}.Host()), op)
	must(v.t, err)
	if r.Errno != fsop.OK {
		v.t.Fatal(r.Errno)
	}
}

func (v *volume) path(mount int, name string) string { return filepath.Join(v.Mounts[mount], name) }

// used is how many blocks df shows as used on each mount, one after the other.
func (v *volume) used() []int64 {
	v.t.Helper()
	used := make([]int64, len(v.Mounts))
	for i, m := range v.Mounts {
		var st unix.Statfs_t
		must(v.t, unix.Statfs(m, &st))
		if st.Bsize != block || st.Blocks != blocks || st.Bfree != st.Bavail {
			v.t.Fatalf("mount %d: statfs shows %+v", i, st)
		}
		used[i] = int64(st.Blocks - st.Bfree)
	}
	return used
}

// isUsed waits until that many blocks are used on every mount: orphans go when
// nobody has them open any more, and somebody has been asked, which may be between
// two mounts' answers. Then metrics and report agree.
func (v *volume) isUsed(want int64) {
	v.t.Helper()
	all := slices.Repeat([]int64{want}, len(v.Mounts))
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		used := v.used()
		if slices.Equal(used, all) {
			break
		}
		if time.Now().After(end) {
			v.t.Fatalf("the mounts show %d used blocks, want %d", used, want)
		}
	}
	for _, m := range v.Healthy(v.t).Members {
		if s := m.Report.Space; s.UsedBytes != uint64(want)*block || s.LimitBytes != size {
			v.t.Errorf("%s reports %d of %d bytes, want %d", m.Replica, s.UsedBytes, s.LimitBytes, want*block)
		}
	}
	for _, metric := range []struct {
		name string
		want float64
	}{{"tak_replicated_replica_used_bytes", float64(want) * block}, {"tak_replicated_replica_quota_bytes", size}} {
		all := v.metric(metric.name)
		if len(all) != 3 {
			v.t.Errorf("%s has %d values", metric.name, len(all))
		}
		for _, got := range all {
			if got != metric.want {
				v.t.Errorf("%s is %v, want %v", metric.name, got, metric.want)
			}
		}
	}
}

// metric has the values of all replicas.
func (v *volume) metric(name string) (all []float64) {
	v.t.Helper()
	resp, err := http.Get("http://" + v.metrics + "/metrics")
	must(v.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(v.t, err)
	for _, m := range regexp.MustCompile(`(?m)^`+name+`\{[^}]*\} (\S+)$`).FindAllSubmatch(text, -1) {
		f, err := strconv.ParseFloat(string(m[1]), 64)
		must(v.t, err)
		all = append(all, f)
	}
	return all
}

// grow appends to a file until not even one block more is taken, and returns how
// many there are.
func grow(path string) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for piece := int64(32); ; {
		_, err := f.Write(make([]byte, piece*block))
		switch {
		case err == nil:
			n += piece
		case piece > 1 && errors.Is(err, syscall.ENOSPC):
			piece = 1
		default:
			return n, errors.Join(err, f.Sync())
		}
	}
}

// fill grows files on every mount at the same time until each is refused.
func (v *volume) fill(label string) (grown int64) {
	v.t.Helper()
	var all sync.WaitGroup
	counts, errs := make([]int64, 2*len(v.Mounts)), make([]error, 2*len(v.Mounts))
	for i := range counts {
		all.Go(func() { counts[i], errs[i] = grow(v.path(i%len(v.Mounts), fmt.Sprint(label, "-", i))) })
	}
	all.Wait()
	for i, err := range errs {
		if !errors.Is(err, syscall.ENOSPC) {
			v.t.Fatalf("writer %d ended after %d blocks with %v", i, counts[i], err)
		}
		grown += counts[i]
	}
	return grown
}

// TestQuota goes through all of it on one volume.
func TestQuota(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dev")
	v := start(t, dir)
	v.operate(&fsop.SetFeature{Level: tree.FeatureLimits})
	v.operate(&fsop.SetLimits{Bytes: size})
	// In a cluster that is done before anybody can mount. Mounts that are there
	// already may go on ahead of the log with the room that they were told before.
	v.Stop(t)
	v = start(t, dir)
	v.isUsed(0)
	if n := v.fill("a"); n != blocks {
		t.Fatalf("%d blocks of %d were taken", n, blocks)
	}
	v.isUsed(blocks)

	// On a full volume nothing grows, and all else works.
	f, err := os.OpenFile(v.path(0, "a-0"), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(make([]byte, 2*block), 0)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Truncate(1<<30)) // a hole takes nothing
	refused(t, second(f.WriteAt([]byte("x"), 1<<29)))
	refused(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 1<<28, 1))
	must(t, os.WriteFile(v.path(1, "empty"), nil, 0o644))
	must(t, os.Symlink("a-0", v.path(1, "symbolic")))

	// A hole that is punched makes room for exactly that, at once, on another mount.
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 2*block))
	if n, err := grow(v.path(1, "b")); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d blocks after a hole of 2: %v", n, err)
	}
	// So does truncating.
	must(t, os.Truncate(v.path(2, "b"), block))
	if n, err := grow(v.path(0, "c")); n != 1 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d blocks after 1 was cut off: %v", n, err)
	}
	v.isUsed(blocks)

	// A hard link takes nothing; removing one name of two gives nothing back; nor
	// does removing the last while another mount has the file open.
	must(t, os.Link(v.path(0, "b"), v.path(0, "b2")))
	must(t, os.Remove(v.path(1, "b")))
	open, err := os.Open(v.path(2, "b2"))
	must(t, err)
	must(t, os.Remove(v.path(1, "b2")))
	time.Sleep(300 * time.Millisecond) // several rounds of asking for orphans
	v.isUsed(blocks)
	refused(t, os.WriteFile(v.path(0, "d"), []byte("d"), 0o644))
	must(t, open.Close())
	v.eventually(os.WriteFile, v.path(0, "d"))
	v.isUsed(blocks)

	// A removed file gives its blocks back.
	var st unix.Stat_t
	must(t, unix.Stat(v.path(1, "a-1"), &st))
	must(t, os.Remove(v.path(1, "a-1")))
	v.isUsed(blocks - st.Blocks/8)

	// The same on a replica that is made anew from another's checkpoint, and after all
	// of them have started again.
	if out, err := v.Run("ctl", "replace", "--dir", dir, "--replica", "replica-2", "--incarnation", "1"); err != nil {
		t.Fatalf("replace: %v\n%s", err, out)
	}
	v.isUsed(blocks - st.Blocks/8)
	must(t, f.Close())
	v.Stop(t)
	v = start(t, dir)
	v.isUsed(blocks - st.Blocks/8)
	if n := v.fill("e"); n != st.Blocks/8 {
		t.Fatalf("%d blocks where %d were free", n, st.Blocks/8)
	}
	v.isUsed(blocks)
}

// eventually writes 1 byte as soon as there is room.
func (v *volume) eventually(write func(string, []byte, os.FileMode) error, path string) {
	v.t.Helper()
	from := time.Now()
	for err := write(path, []byte("d"), 0o644); err != nil; err = write(path, []byte("d"), 0o644) {
		if time.Since(from) > patience {
			v.t.Fatalf("no room %v after a file was given up: %v", patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	v.t.Logf("room %v after a file was given up", time.Since(from).Round(time.Millisecond))
}

func second(_ int, err error) error { return err }

func refused(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("growth on a full volume: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
