package pernode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/csi/mounts/mountstest"
)

func TestMain(m *testing.M) { os.Exit(mountstest.Run(m)) }

// node is a node's folders, the cluster, and the driver that has them.
type node struct {
	*Driver
	dir   string
	world *world
}

const handle = "example-store"

var (
	pvA  = PV{Name: "example-store", UID: "uid-a"}
	pvB  = PV{Name: "example-store", UID: "uid-b"}
	pod1 = Pod{Namespace: "example", Name: "store-1", UID: "pod-1"}
	pod2 = Pod{Namespace: "example", Name: "store-2", UID: "pod-2"}
)

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: mountstest.Dir(t), world: newWorld()}
	n.world.setPVs(handle, pvA)
	n.world.setPod(pod1, true)
	n.world.setPod(pod2, true)
	n.open(t)
	t.Cleanup(func() { n.Close() })
	return n
}

func (n *node) open(t *testing.T) {
	t.Helper()
	d, err := Open(Config{
		Root: filepath.Join(n.dir, "root"), Node: "node-1", KubeletDir: filepath.Join(n.dir, "kubelet"),
		Proc: "/proc", FolderMode: 0o755, LookEvery: time.Hour,
	}, n.world, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	n.Driver = d
}

// restart opens the driver again, as a new process would; after a reboot nothing
// is mounted, and the boot has another name.
func (n *node) restart(t *testing.T, reboot bool) {
	t.Helper()
	boot := n.boot
	n.Close()
	if reboot {
		mountstest.Clean(t, n.dir)
		boot += "'"
	}
	n.open(t)
	n.boot = boot
}

func (n *node) want(t *testing.T, pod Pod) publication {
	t.Helper()
	return publication{handle: handle, target: filepath.Join(mountstest.Folder(t, n.dir, "kubelet", pod.UID), "mount"), pod: pod}
}

func (n *node) mustPublish(t *testing.T, pod Pod) publication {
	t.Helper()
	p := n.want(t, pod)
	if err := n.publish(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func (n *node) mustUnpublish(t *testing.T, p publication) {
	t.Helper()
	if err := n.unpublish(t.Context(), p.handle, p.target); err != nil {
		t.Fatal(err)
	}
}

func (n *node) holder(t *testing.T) string {
	t.Helper()
	r, err := n.read(handle)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil || r.Hold == nil {
		return ""
	}
	return r.Hold.Pod.UID
}

func wantHeld(t *testing.T, err error, by Pod) {
	t.Helper()
	var held heldError
	if !errors.As(err, &held) || held.by.Pod != by {
		t.Errorf("error %v, want a hold of %v", err, by)
	}
	if status.Code(toStatus(err)) != codes.FailedPrecondition {
		t.Errorf("answered with %v", toStatus(err))
	}
}

// TestOneHolder: F2, and that the copy outlives its Pod (F3).
func TestOneHolder(t *testing.T) {
	n := newNode(t)
	p1 := n.mustPublish(t, pod1)
	n.mustPublish(t, pod1) // the kubelet repeats itself
	file := filepath.Join(p1.target, "data")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	p2 := n.want(t, pod2)
	wantHeld(t, n.publish(t.Context(), p2), pod1)
	if _, err := os.Lstat(p2.target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused Pod has a target: %v", err)
	}
	// A second target of the same Pod: the hold ends with the last.
	second := p1
	second.target += "2"
	second.readOnly = true
	if err := n.publish(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second.target, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only target was written: %v", err)
	}
	n.restart(t, false)
	n.mustUnpublish(t, p1)
	wantHeld(t, n.publish(t.Context(), p2), pod1)
	for range 2 {
		n.mustUnpublish(t, second)
	}
	n.mustPublish(t, pod2)
	if b, err := os.ReadFile(filepath.Join(p2.target, "data")); err != nil || string(b) != "kept" {
		t.Errorf("the copy did not outlive its Pod: %q, error %v", b, err)
	}
	wantHeld(t, n.publish(t.Context(), p1), pod2)
	n.mustUnpublish(t, p2)
}

// TestRefusalSaysWho: through CSI, with an Event on the refused Pod.
func TestRefusalSaysWho(t *testing.T) {
	n := newNode(t)
	n.mustPublish(t, pod1)
	_, err := NewNode(n.Driver).NodePublishVolume(t.Context(), n.request(t, pod2))
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "example/store-1") || !strings.Contains(err.Error(), "pod-1") {
		t.Errorf("error %v", err)
	}
	if len(n.world.events) != 1 || !strings.HasPrefix(n.world.events[0], "example/store-2 VolumeHeld: ") || !strings.Contains(n.world.events[0], "by Pod example/store-1 ") {
		t.Errorf("events %q", n.world.events)
	}
}

func (n *node) request(t *testing.T, pod Pod) *csi.NodePublishVolumeRequest {
	p := n.want(t, pod)
	return &csi.NodePublishVolumeRequest{
		VolumeId: handle, TargetPath: p.target,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		},
		VolumeContext: map[string]string{podNamespaceKey: pod.Namespace, podNameKey: pod.Name, podUIDKey: pod.UID},
	}
}

// races is how often TestRace lets two Pods race for a handle.
const races = 10_000

// TestRace: two Pods ask for one handle at the same time; each time one has it, and
// only that one has the copy.
func TestRace(t *testing.T) {
	n := newNode(t)
	p1, p2 := n.want(t, pod1), n.want(t, pod2)
	tries := races
	if testing.Short() {
		tries = 500
	}
	won := map[string]int{}
	for i := range tries {
		var ready atomic.Int32
		var err1, err2 error
		together := func() {
			for ready.Add(1); ready.Load() < 2; {
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { together(); err1 = n.publish(t.Context(), p1) })
		wg.Go(func() { together(); err2 = n.publish(t.Context(), p2) })
		wg.Wait()
		winner, loser, lost := p1, p2, err2
		if err1 != nil {
			winner, loser, lost = p2, p1, err1
		}
		var held heldError
		if (err1 == nil) == (err2 == nil) || !errors.As(lost, &held) || held.by.Pod != winner.pod {
			t.Fatalf("try %d: %v; %v", i, err1, err2)
		}
		if n.holder(t) != winner.pod.UID || isMounted(t, loser.target) || !isMounted(t, winner.target) {
			t.Fatalf("try %d: %s holds; mounted: winner %v, loser %v", i, n.holder(t), isMounted(t, winner.target), isMounted(t, loser.target))
		}
		won[winner.pod.Name]++
		n.mustUnpublish(t, winner)
	}
	t.Logf("%d races, one winner each: %v", tries, won)
	if len(won) != 2 {
		t.Errorf("no race: %v", won)
	}
}

func isMounted(t *testing.T, path string) bool {
	t.Helper()
	table, err := mounts.Own()
	if err != nil {
		t.Fatal(err)
	}
	_, ok := mounts.At(table, path)
	return ok
}

// TestHoldFromBeforeReboot is released only without a mount and without the Pod.
func TestHoldFromBeforeReboot(t *testing.T) {
	n := newNode(t)
	n.mustPublish(t, pod1)
	p2 := n.want(t, pod2)
	n.world.setPod(pod1, false)
	wantHeld(t, n.publish(t.Context(), p2), pod1) // same boot: only unpublication ends it
	n.restart(t, true)
	n.world.setPod(pod1, true)
	wantHeld(t, n.publish(t.Context(), p2), pod1) // the Pod is still there
	n.world.setPod(pod1, false)
	n.world.setSilent(true)
	if code := status.Code(toStatus(n.publish(t.Context(), p2))); code != codes.Unavailable {
		t.Errorf("without an answer: %v", code)
	}
	n.world.setSilent(false)
	if err := n.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.holder(t); got != "" {
		t.Errorf("held by %s", got)
	}
	n.mustPublish(t, pod2)

	// A mount that is there keeps the hold, whatever the boot's name says.
	n.boot += "'"
	n.world.setPod(pod2, false)
	wantHeld(t, n.publish(t.Context(), n.want(t, pod1)), pod2)
	mountstest.Clean(t, n.dir)
	n.mustPublish(t, pod1)
}

// TestSamePodAfterReboot: the Pod of before goes on with its hold.
func TestSamePodAfterReboot(t *testing.T) {
	n := newNode(t)
	n.mustPublish(t, pod1)
	n.restart(t, true)
	p := n.mustPublish(t, pod1)
	if r, err := n.read(handle); err != nil || r.Hold.Boot != n.boot || len(r.Hold.Targets) != 1 {
		t.Errorf("record %+v, error %v", r, err)
	}
	n.mustUnpublish(t, p)
}

// copies lists the copies on the node, and empties the trash.
func (n *node) copiesLeft(t *testing.T) string {
	t.Helper()
	if err := n.trash.Empty(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(n.dir, "root/volumes/*/*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		found[i] = strings.TrimPrefix(f, filepath.Join(n.dir, "root/volumes")+"/")
	}
	return strings.Join(found, " ")
}

// TestDeletion: F3. The copy goes with its PersistentVolume, not while it is held,
// not without an answer.
func TestDeletion(t *testing.T) {
	n := newNode(t)
	p := n.mustPublish(t, pod1)
	n.world.setPVs(handle)
	look := func() error { t.Helper(); return n.Look(t.Context()) }
	if err := look(); err != nil || n.copiesLeft(t) != "example-store/uid-a" {
		t.Errorf("a held copy is gone: %q, error %v", n.copiesLeft(t), err)
	}
	if err := n.publish(t.Context(), n.want(t, pod1)); !errors.Is(err, ErrNoPV) {
		t.Errorf("published without a PersistentVolume: %v", err)
	}
	n.mustUnpublish(t, p)
	n.world.setSilent(true)
	if err := look(); !errors.Is(err, errNoAnswer) || n.copiesLeft(t) != "example-store/uid-a" {
		t.Errorf("without an answer: %q, error %v", n.copiesLeft(t), err)
	}
	n.world.setSilent(false)
	// A mount that somebody made keeps it as well.
	f, err := n.folder(handle, pvA.UID)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := mountstest.Folder(t, n.dir, "elsewhere")
	at, err := os.Open(elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	if err := mounts.Bind(f, at, false); err != nil {
		t.Fatal(err)
	}
	at.Close()
	f.Close()
	if err := look(); !errors.Is(err, errMounted) || n.copiesLeft(t) != "example-store/uid-a" {
		t.Errorf("while mounted: %q, error %v", n.copiesLeft(t), err)
	}
	if err := unix.Unmount(elsewhere, 0); err != nil {
		t.Fatal(err)
	}
	if err := look(); err != nil || n.copiesLeft(t) != "" {
		t.Errorf("left %q, error %v", n.copiesLeft(t), err)
	}
	if s, err := n.Summary(); err != nil || s != (Summary{}) {
		t.Errorf("summary %+v, error %v", s, err)
	}
	if err := look(); err != nil {
		t.Error(err)
	}
}

// TestRunLooks: at the start for what happened while the node was away, and when
// the cluster says that something has gone; after unpublication of what is gone.
func TestRunLooks(t *testing.T) {
	n := newNode(t)
	p := n.mustPublish(t, pod1)
	n.mustUnpublish(t, p)
	n.world.setPVs(handle) // the node is away
	n.restart(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	await := func(what, want string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			found, _ := filepath.Glob(filepath.Join(n.dir, "root/volumes/*/*"))
			records, _ := filepath.Glob(filepath.Join(n.dir, "root/records/*"))
			got := fmt.Sprint(len(found), " ", len(records))
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s copies and records, want %s", what, got, want)
			}
		}
	}
	await("at the start", "0 0")
	n.world.setPVs(handle, pvA)
	n.mustUnpublish(t, n.mustPublish(t, pod1))
	await("made again", "1 1")
	n.world.setPVs(handle)
	await("deleted", "0 0")
	n.world.setPVs(handle, pvA)
	p = n.mustPublish(t, pod1)
	n.world.setPVs(handle)
	n.mustUnpublish(t, p)
	await("unpublished after the deletion", "0 0")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRecreatedPV: another PersistentVolume with the same handle gets a copy of its
// own, even if nobody looked in between.
func TestRecreatedPV(t *testing.T) {
	n := newNode(t)
	p := n.mustPublish(t, pod1)
	if err := os.WriteFile(filepath.Join(p.target, "stale"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.world.setPVs(handle, pvA, pvB)
	if err := n.publish(t.Context(), n.want(t, pod1)); !errors.Is(err, ErrManyPVs) {
		t.Errorf("two PersistentVolumes: %v", err)
	}
	n.world.setPVs(handle, pvB)
	wantHeld(t, n.publish(t.Context(), n.want(t, pod1)), pod1)
	wantHeld(t, n.publish(t.Context(), n.want(t, pod2)), pod1)
	n.mustUnpublish(t, p)
	p = n.mustPublish(t, pod2)
	if left, err := os.ReadDir(p.target); err != nil || len(left) != 0 {
		t.Errorf("a recreated PersistentVolume has %v, error %v", left, err)
	}
	if err := n.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.copiesLeft(t); got != "example-store/uid-b" {
		t.Errorf("left %q", got)
	}
	n.mustUnpublish(t, p)
	// Back to the first UID's record would be a stale copy too, were it there.
	n.world.setPVs(handle, pvA)
	p = n.mustPublish(t, pod1)
	if left, err := os.ReadDir(p.target); err != nil || len(left) != 0 {
		t.Errorf("copy has %v, error %v", left, err)
	}
	n.mustUnpublish(t, p)
}

// TestLostRecords: a copy without a record is the PersistentVolume's whose UID it
// has, and goes only when the cluster says that there is none.
func TestLostRecords(t *testing.T) {
	n := newNode(t)
	n.mustUnpublish(t, n.mustPublish(t, pod1))
	if err := n.records.Remove(handle); err != nil {
		t.Fatal(err)
	}
	n.world.setSilent(true)
	if err := n.Look(t.Context()); !errors.Is(err, errNoAnswer) || n.copiesLeft(t) != "example-store/uid-a" {
		t.Errorf("left %q, error %v", n.copiesLeft(t), err)
	}
	n.world.setSilent(false)
	if err := n.Look(t.Context()); err != nil || n.copiesLeft(t) != "example-store/uid-a" {
		t.Errorf("left %q, error %v", n.copiesLeft(t), err)
	}
	n.world.setPVs(handle)
	if err := n.Look(t.Context()); err != nil || n.copiesLeft(t) != "" {
		t.Errorf("left %q, error %v", n.copiesLeft(t), err)
	}
}

// TestOneBadRecord has a record that can't be read: others are published, and the driver is ready and says which one it is.
func TestOneBadRecord(t *testing.T) {
	n := newNode(t)
	n.mustPublish(t, pod1)
	if err := os.WriteFile(filepath.Join(n.dir, "root/records/bad"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(); err != nil {
		t.Errorf("ready: %v", err)
	}
	if s, err := n.Summary(); err != nil || s != (Summary{Copies: 1, Held: 1, Unreadable: 1}) {
		t.Errorf("summary %+v, error %v", s, err)
	}
	if err := n.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "handle bad: ") {
		t.Errorf("look: %v", err)
	}
}

// TestNoAnswer: without the API nothing new is published, and what is can go.
func TestNoAnswer(t *testing.T) {
	n := newNode(t)
	p := n.mustPublish(t, pod1)
	n.world.setSilent(true)
	if code := status.Code(toStatus(n.publish(t.Context(), p))); code != codes.Unavailable {
		t.Errorf("answered with %v", code)
	}
	n.mustUnpublish(t, p)
	if got := n.holder(t); got != "" {
		t.Errorf("held by %s", got)
	}
}

// TestFailedMountGivesBack: the kubelet does not unpublish what it was refused for
// good, so nothing stays held.
func TestFailedMountGivesBack(t *testing.T) {
	n := newNode(t)
	p := n.want(t, pod1)
	taken := mountstest.Folder(t, p.target)
	if err := unix.Mount("x", taken, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := n.publish(t.Context(), p); !errors.Is(err, mounts.ErrTaken) {
		t.Errorf("error %v", err)
	}
	if got := n.holder(t); got != "" {
		t.Errorf("held by %s", got)
	}
	// A hold that was there before stays.
	ok := p
	ok.target += "2"
	if err := n.publish(t.Context(), ok); err != nil {
		t.Fatal(err)
	}
	if err := n.publish(t.Context(), p); !errors.Is(err, mounts.ErrTaken) || n.holder(t) != pod1.UID {
		t.Errorf("held by %q, error %v", n.holder(t), err)
	}
}

// TestHostileHandles: F4, by every call, and no file outside is touched.
func TestHostileHandles(t *testing.T) {
	n := newNode(t)
	node := NewNode(n.Driver)
	before := tree(t, n.dir)
	for _, h := range []string{
		".", "..", "../x", "a/../../x", "/etc", "a/b", "A", "a_b", "-a", "a-", ".a", "a.", "a..b", "a\x00b", "a b", "é", "a\nb",
		strings.Repeat("a", 254), "%2e%2e", "\\..\\x",
	} {
		q := n.request(t, pod1)
		q.VolumeId = h
		n.world.setPVs(h, pvA)
		if _, err := node.NodePublishVolume(t.Context(), q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("publish %q: %v", h, err)
		}
		if _, err := node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: h, TargetPath: q.TargetPath}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("unpublish %q: %v", h, err)
		}
		if _, err := node.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: h, VolumePath: q.TargetPath}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("stats %q: %v", h, err)
		}
	}
	if after := tree(t, n.dir); after != before {
		t.Errorf("files changed from\n%s to\n%s", before, after)
	}
	for _, target := range []string{"/x", filepath.Join(n.dir, "kubelet"), filepath.Join(n.dir, "kubelet/../x")} {
		p := n.want(t, pod1)
		p.target = target
		if err := n.publish(t.Context(), p); !errors.Is(err, mounts.ErrOutside) {
			t.Errorf("target %s: %v", target, err)
		}
	}
	for _, uid := range []string{"", "..", "a/b"} {
		n.world.setPVs(handle, PV{Name: "x", UID: uid})
		if err := n.publish(t.Context(), n.want(t, pod1)); err == nil {
			t.Errorf("a PersistentVolume with UID %q was accepted", uid)
		}
	}
}

// TestLinksDoNotEscape: a copy's place that somebody replaced by a link is not
// followed out of the root.
func TestLinksDoNotEscape(t *testing.T) {
	n := newNode(t)
	outside := mountstest.Folder(t, n.dir, "outside")
	place := filepath.Join(n.dir, "root/volumes", handle)
	for _, link := range []string{place, filepath.Join(place, pvA.UID)} {
		mountstest.Folder(t, filepath.Dir(link))
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
		if err := n.publish(t.Context(), n.want(t, pod1)); err == nil {
			t.Errorf("published through the link %s", link)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside there is %v, error %v", left, err)
	}
}

// tree lists the files below dir/root and what lies beside it.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if p == filepath.Join(dir, "kubelet") {
			return filepath.SkipDir
		}
		fmt.Fprintln(&b, p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRequests(t *testing.T) {
	n := newNode(t)
	for what, change := range map[string]func(*csi.NodePublishVolumeRequest){
		"no Pod":  func(q *csi.NodePublishVolumeRequest) { delete(q.VolumeContext, podUIDKey) },
		"inline":  func(q *csi.NodePublishVolumeRequest) { q.VolumeContext[ephemeralKey] = "true" },
		"no mode": func(q *csi.NodePublishVolumeRequest) { q.VolumeCapability.AccessMode = nil },
		"block": func(q *csi.NodePublishVolumeRequest) {
			q.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		},
	} {
		q := n.request(t, pod1)
		change(q)
		if _, err := NewNode(n.Driver).NodePublishVolume(t.Context(), q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, a := range answers {
		if got := status.Code(toStatus(fmt.Errorf("x: %w", a.err))); got != a.code {
			t.Errorf("%v is answered with %v", a.err, got)
		}
	}
}
