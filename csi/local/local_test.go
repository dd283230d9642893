package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/local/consumer"
	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/mounts/mountstest"
)

func TestMain(m *testing.M) { os.Exit(mountstest.Run(m)) }

// node is a node's folders, and the driver that has them.
type node struct {
	*Driver
	dir string
}

func config(dir string) Config {
	return Config{
		Root: filepath.Join(dir, "root"), Node: "node-1", KubeletDir: filepath.Join(dir, "kubelet"),
		ConsumerRoot: filepath.Join(dir, "consumer"), Proc: "/proc", FolderMode: 0o755,
	}
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: mountstest.Dir(t)}
	mountstest.Folder(t, n.dir, "kubelet")
	n.open(t)
	t.Cleanup(func() { n.Close() })
	return n
}

func (n *node) open(t *testing.T) {
	t.Helper()
	d, err := Open(config(n.dir), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	n.Driver = d
}

// restart opens the driver again, as a new process would.
func (n *node) restart(t *testing.T) {
	t.Helper()
	n.Close()
	n.open(t)
	if err := n.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (n *node) target(pod string) string { return filepath.Join(n.dir, "kubelet", pod) }

// away takes pvc-1 away from a Pod.
func (n *node) away(pod string) error { return n.unpublish(n.targets(), "pvc-1", n.target(pod)) }

func (n *node) mustCreate(t *testing.T, name string) string {
	t.Helper()
	r, err := n.create(t.Context(), name, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func TestVolumeLife(t *testing.T) {
	n := newNode(t)
	ctx := t.Context()
	id := n.mustCreate(t, "pvc-1")
	if info, err := os.Stat(filepath.Join(n.dir, "root/volumes/pvc-1")); err != nil || info.Mode() != os.ModeDir|0o755 {
		t.Errorf("folder %v, error %v", info, err)
	}
	if err := n.publish(ctx, id, n.target("a"), false, false); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.target("a"), "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "delete while mounted", n.delete(ctx, id), errMounted)
	wantErr(t, "target elsewhere", n.publish(ctx, id, filepath.Join(n.dir, "x"), false, false), mounts.ErrOutside)
	wantErr(t, "another volume at the target", n.publish(ctx, n.mustCreate(t, "pvc-2"), n.target("a"), false, false), mounts.ErrTaken)
	wantErr(t, "alone", n.publish(ctx, id, n.target("b"), false, true), errMounted)
	if err := n.publish(ctx, id, n.target("a"), false, true); err != nil {
		t.Errorf("alone at the same target: %v", err)
	}
	n.restart(t)
	if err := n.away("a"); err != nil {
		t.Fatal(err)
	}
	if err := n.publish(ctx, id, n.target("b"), true, false); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(n.target("b"), "file")); err != nil || string(b) != "kept" {
		t.Errorf("file %q, error %v", b, err)
	}
	if err := n.away("b"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.delete(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, "publish after deletion", n.publish(ctx, id, n.target("a"), false, false), errAbsent)
	if err := n.trash.Empty(ctx); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(n.dir, "root/trash")); len(left) != 0 {
		t.Errorf("trash %v", left)
	}
	n.mustCreate(t, "pvc-1")
	if _, err := os.Stat(filepath.Join(n.dir, "root/volumes/pvc-1/file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a new volume has an old file: %v", err)
	}
}

func TestAcquisition(t *testing.T) {
	n := newNode(t)
	ctx := t.Context()
	id := n.mustCreate(t, "pvc-1")
	mine, other := consumer.Request{Volume: id, Consumer: "host.a"}, consumer.Request{Volume: id, Consumer: "host.b"}

	var first consumer.Acquisition
	for i := range 2 {
		a, err := n.Acquire(ctx, mine)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = a
		}
		if a != first || !a.Mounted || a.Path != filepath.Join(n.dir, "consumer", a.Name) {
			t.Errorf("acquired %+v", a)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(first.Path, &st); err != nil || st.Dev != first.Device || st.Ino != first.Inode {
		t.Errorf("what is mounted is %d:%d, error %v; want %+v", st.Dev, st.Ino, err, first)
	}
	_, err := n.Acquire(ctx, other)
	wantErr(t, "second consumer", err, consumer.ErrHeld)
	wantErr(t, "release by another", n.Release(ctx, other), consumer.ErrHeld)
	wantErr(t, "publication", n.publish(ctx, id, n.target("a"), false, false), errAcquired)
	wantErr(t, "deletion", n.delete(ctx, id), errAcquired)

	busy, err := os.Open(first.Path)
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, "release while busy", n.Release(ctx, mine), consumer.ErrInUse)
	busy.Close()

	// The machine restarts: mounts are gone, the record is not.
	if err := unix.Unmount(first.Path, 0); err != nil {
		t.Fatal(err)
	}
	if l, err := n.List(ctx); err != nil || len(l) != 1 || l[0].Mounted || l[0].Consumer != "host.a" {
		t.Errorf("list %+v, error %v", l, err)
	}
	n.restart(t)
	if l, err := n.List(ctx); err != nil || len(l) != 1 || l[0] != first {
		t.Errorf("after a restart the list is %+v, error %v", l, err)
	}
	wantErr(t, "publication after a restart", n.publish(ctx, id, n.target("a"), false, false), errAcquired)

	for range 2 {
		if err := n.Release(ctx, mine); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(first.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("mount point is left: %v", err)
	}
	if err := n.publish(ctx, id, n.target("a"), false, false); err != nil {
		t.Fatal(err)
	}
	_, err = n.Acquire(ctx, other)
	wantErr(t, "acquisition while published", err, consumer.ErrInUse)
	if !strings.Contains(err.Error(), n.target("a")) {
		t.Errorf("the refusal does not say where: %v", err)
	}
	if l, err := n.List(ctx); err != nil || len(l) != 0 {
		t.Errorf("list %+v, error %v", l, err)
	}
}

func TestAcquisitionRequests(t *testing.T) {
	n := newNode(t)
	for _, q := range []consumer.Request{{}, {Volume: "v"}, {Volume: "v", Consumer: "a/b"}, {Volume: "../v", Consumer: "a"}, {Volume: strings.Repeat("v", 129), Consumer: "a"}} {
		_, err := n.Acquire(t.Context(), q)
		wantErr(t, fmt.Sprint(q), err, consumer.ErrInvalid)
		wantErr(t, fmt.Sprint(q), n.Release(t.Context(), q), consumer.ErrInvalid)
	}
	_, err := n.Acquire(t.Context(), consumer.Request{Volume: "none", Consumer: "a"})
	wantErr(t, "no such volume", err, consumer.ErrNotFound)
	if err := n.Release(t.Context(), consumer.Request{Volume: "none", Consumer: "a"}); err != nil {
		t.Errorf("releasing a volume that is gone: %v", err)
	}
	n.cfg.ConsumerRoot = ""
	if _, err := n.List(t.Context()); !errors.Is(err, consumer.ErrInvalid) {
		t.Errorf("a list without acquisition: %v", err)
	}
	_, err = n.Acquire(t.Context(), consumer.Request{Volume: "v", Consumer: "a"})
	wantErr(t, "turned off", err, consumer.ErrInvalid)
}

// TestAcquisitionPropagates shows the mount to a namespace that only receives, as
// the replica host's container does, and takes it away there too.
func TestAcquisitionPropagates(t *testing.T) {
	n := newNode(t)
	id := n.mustCreate(t, "pvc-1")
	q := consumer.Request{Volume: id, Consumer: "host"}
	watcher := startNamespace(t, "mount --make-rslave /")
	sees := func() bool {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", watcher))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(table), filepath.Join(n.dir, "consumer", id)+" ")
	}
	if _, err := n.Acquire(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if !sees() {
		t.Error("the mount does not arrive in another namespace")
	}
	if err := n.Release(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if sees() {
		t.Error("the mount is still in another namespace")
	}
}

// TestMountElsewhereRefuses: a mount that survives only in another namespace, as a
// container keeps one that the kubelet has taken away, keeps the volume.
func TestMountElsewhereRefuses(t *testing.T) {
	n := newNode(t)
	ctx := t.Context()
	id := n.mustCreate(t, "pvc-1")
	if err := n.publish(ctx, id, n.target("a"), false, false); err != nil {
		t.Fatal(err)
	}
	pid := startNamespace(t, fmt.Sprintf("mount --make-rprivate /; mount --bind %s %s", n.target("a"), mountstest.Folder(t, n.dir, "container")))
	if err := n.away("a"); err != nil {
		t.Fatal(err)
	}
	_, err := n.Acquire(ctx, consumer.Request{Volume: id, Consumer: "host"})
	wantErr(t, "acquisition", err, consumer.ErrInUse)
	err = n.delete(ctx, id)
	wantErr(t, "deletion", err, errMounted)
	if want := fmt.Sprintf("process %d", pid); !strings.Contains(err.Error(), want) {
		t.Errorf("the refusal does not name %s: %v", want, err)
	}
}

// TestConsumerRootHasToBeShared refuses a root whose mounts would reach nobody.
func TestConsumerRootHasToBeShared(t *testing.T) {
	dir := mountstest.Dir(t)
	private := mountstest.Folder(t, dir, "private")
	if err := unix.Mount("x", private, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", private, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	c := config(dir)
	c.ConsumerRoot = filepath.Join(private, "deep", "consumer")
	if _, err := Open(c, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "not shared") {
		t.Errorf("error %v", err)
	}
}

// TestLostFolder: a record whose folder is gone is a loss, not a new volume.
func TestLostFolder(t *testing.T) {
	n := newNode(t)
	ctx := t.Context()
	id := n.mustCreate(t, "pvc-1")
	q := consumer.Request{Volume: id, Consumer: "host"}
	if _, err := n.Acquire(ctx, q); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(filepath.Join(n.dir, "consumer", id), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.dir, "root/volumes", id)); err != nil {
		t.Fatal(err)
	}
	n.restart(t)
	_, err := n.Acquire(ctx, q)
	wantErr(t, "acquisition", err, errLost)
	if l, err := n.List(ctx); err != nil || len(l) != 1 || l[0].Mounted {
		t.Errorf("list %+v, error %v", l, err)
	}
	if err := n.Release(ctx, q); err != nil {
		t.Fatal(err)
	}
	if code := status.Code(toStatus(n.publish(ctx, id, n.target("a"), false, false))); code != codes.DataLoss {
		t.Errorf("publication answers %v", code)
	}
	n.mustCreate(t, "pvc-1") // the record answers, and nothing is made
	if _, err := os.Stat(filepath.Join(n.dir, "root/volumes", id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder was made anew: %v", err)
	}
	if err := n.delete(ctx, id); err != nil {
		t.Errorf("a lost volume can't be deleted: %v", err)
	}
}

// TestOneBadVolume has a record that can't be read, and a volume whose folder does not answer: the driver starts, is ready and
// lists the others, and each is told of once.
func TestOneBadVolume(t *testing.T) {
	n := newNode(t)
	ctx := t.Context()
	for _, name := range []string{"pvc-bad", "pvc-dead", "pvc-good"} {
		id := n.mustCreate(t, name)
		if _, err := n.Acquire(ctx, consumer.Request{Volume: id, Consumer: "host"}); err != nil {
			t.Fatal(err)
		}
	}
	mountstest.Dead(t, filepath.Join(n.dir, "root/volumes/pvc-dead"))
	if err := os.WriteFile(filepath.Join(n.dir, "root/records/pvc-bad"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	core, told := observer.New(zap.ErrorLevel)
	n.restart(t)
	n.log = zap.New(core)
	for range 2 {
		list, err := n.List(ctx)
		if err != nil || len(list) != 2 || list[0].Volume != "pvc-dead" || list[0].Mounted || list[1].Volume != "pvc-good" || !list[1].Mounted {
			t.Fatalf("list %+v, error %v", list, err)
		}
		if err := n.Ready(); err != nil {
			t.Errorf("ready: %v", err)
		}
	}
	if told.Len() != 1 || told.All()[0].ContextMap()["volume"] != "pvc-dead" { // the record was told of at the start
		t.Errorf("told %v", told.All())
	}
	s, err := n.Summary()
	if err != nil || s.Unreadable != 2 || s.Acquired != 2 {
		t.Errorf("summary %+v, error %v", s, err)
	}
	if err := os.Remove(filepath.Join(n.dir, "root/records/pvc-bad")); err != nil {
		t.Fatal(err)
	}
	if s, err := n.Summary(); err != nil || s.Unreadable != 1 {
		t.Errorf("when the bad record is gone: summary %+v, error %v", s, err)
	}
}

// TestFilesWithoutRecord are never given to a new volume.
func TestFilesWithoutRecord(t *testing.T) {
	n := newNode(t)
	mountstest.Folder(t, n.dir, "root/volumes/pvc-1/somebody")
	if _, err := n.create(t.Context(), "pvc-1", 0, 0); err == nil || !strings.Contains(err.Error(), "files and no record") {
		t.Errorf("error %v", err)
	}
	mountstest.Folder(t, n.dir, "root/volumes/pvc-2")
	n.mustCreate(t, "pvc-2")
	if err := os.Symlink(n.dir, filepath.Join(n.dir, "root/volumes/pvc-3")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.create(t.Context(), "pvc-3", 0, 0); err == nil {
		t.Error("a link was taken for a folder")
	}
}

// TestOneProcess keeps a second driver away from the root.
func TestOneProcess(t *testing.T) {
	n := newNode(t)
	if _, err := Open(config(n.dir), zap.NewNop()); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("error %v", err)
	}
}

// TestExclusion races publication against acquisition: never both.
func TestExclusion(t *testing.T) {
	n := newNode(t)
	ctx := t.Context()
	id := n.mustCreate(t, "pvc-1")
	q := consumer.Request{Volume: id, Consumer: "host"}
	for range 300 {
		var pub, acq error
		var wg sync.WaitGroup
		wg.Go(func() { pub = n.publish(ctx, id, n.target("a"), false, false) })
		wg.Go(func() { _, acq = n.Acquire(ctx, q) })
		wg.Wait()
		switch {
		case pub == nil && errors.Is(acq, consumer.ErrInUse):
			if err := n.away("a"); err != nil {
				t.Fatal(err)
			}
		case acq == nil && errors.Is(pub, errAcquired):
			if err := n.Release(ctx, q); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("publication: %v; acquisition: %v", pub, acq)
		}
	}
}

// TestCapabilityRefusals: what CreateVolume refuses, by name.
func TestCapabilityRefusals(t *testing.T) {
	n := newNode(t)
	c := NewController(n.Driver)
	ok := func() *csi.CreateVolumeRequest {
		return &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}}}
	}
	here := &csi.Topology{Segments: map[string]string{TopologyKey: "node-1"}}
	there := &csi.Topology{Segments: map[string]string{TopologyKey: "node-2"}}
	for what, row := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		code   codes.Code
		text   string
	}{
		"parameter": {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"x": ""} }, codes.InvalidArgument, `parameter "x"`},
		"metadata":  {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{metadataKeys[0]: "x"} }, codes.OK, ""},
		"fsType":    {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0].GetMount().FsType = "ext4" }, codes.InvalidArgument, `fsType "ext4"`},
		"option":    {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0].GetMount().MountFlags = []string{"noatime"} }, codes.InvalidArgument, `mount option "noatime"`},
		"block": {func(q *csi.CreateVolumeRequest) {
			q.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}, codes.InvalidArgument, "block device"},
		"many nodes": {func(q *csi.CreateVolumeRequest) {
			q.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, codes.InvalidArgument, "MULTI_NODE_MULTI_WRITER"},
		"source":  {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = &csi.VolumeContentSource{} }, codes.InvalidArgument, "snapshot"},
		"mutable": {func(q *csi.CreateVolumeRequest) { q.MutableParameters = map[string]string{"iops": "1"} }, codes.InvalidArgument, `"iops"`},
		"limits": {func(q *csi.CreateVolumeRequest) {
			q.CapacityRange = &csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1}
		}, codes.InvalidArgument, "capacity"},
		"too large": {func(q *csi.CreateVolumeRequest) {
			q.Name, q.CapacityRange = "large", &csi.CapacityRange{RequiredBytes: 1 << 60}
		}, codes.ResourceExhausted, "are free"},
		"another node": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{there}}
		}, codes.ResourceExhausted, "node-1"},
		"one of two": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{there, here}}
		}, codes.OK, ""},
		"preferred one": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Preferred: []*csi.Topology{there}}
		}, codes.OK, ""},
	} {
		q := ok()
		row.change(q)
		_, err := c.CreateVolume(t.Context(), q)
		if status.Code(err) != row.code || !strings.Contains(status.Convert(err).Message(), row.text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	free := func(topology *csi.Topology, v *csi.VolumeCapability) int64 {
		q := &csi.GetCapacityRequest{AccessibleTopology: topology}
		if v != nil {
			q.VolumeCapabilities = []*csi.VolumeCapability{v}
		}
		a, err := c.GetCapacity(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return a.AvailableCapacity
	}
	if free(here, ok().VolumeCapabilities[0]) <= 0 || free(there, nil) != 0 || free(nil, &csi.VolumeCapability{}) != 0 {
		t.Error("capacity is not this node's")
	}
}

func TestIDs(t *testing.T) {
	for name, want := range map[string]string{"pvc-1": "pvc-1", "a.b": "a.b"} {
		if got := idOf(name); got != want {
			t.Errorf("%s has handle %s", name, got)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{"A", "a/b", "..", "", "volume-x", strings.Repeat("a", 129), strings.Repeat("a", 130), "ä"} {
		id := idOf(name)
		if !validID(id) || !strings.HasPrefix(id, hashedPrefix) || seen[id] != "" {
			t.Errorf("%q has handle %s, as %q has", name, id, seen[id])
		}
		seen[id] = name
	}
}

// TestErrorsHaveCodes: each reason has an answer of its own kind, also when it is
// wrapped.
func TestErrorsHaveCodes(t *testing.T) {
	for _, a := range answers {
		if got := status.Code(toStatus(fmt.Errorf("x: %w", a.err))); got != a.code {
			t.Errorf("%v is answered with %v", a.err, got)
		}
	}
	if got := status.Code(toStatus(unix.EIO)); got != codes.Internal {
		t.Errorf("EIO is answered with %v", got)
	}
}
