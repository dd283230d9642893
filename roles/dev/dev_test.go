package dev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/raftlog/transport/pki"
	"tak-os.org/tak-replicated/roles/boot"
)

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	s, err := openSettings(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.Replicas != defaultReplicas || s.Initialised || !strings.HasPrefix(s.Volume, "dev-") {
		t.Errorf("new settings %+v", s)
	}
	s.Initialised = true
	if err := s.save(dir); err != nil {
		t.Fatal(err)
	}
	for _, replicas := range []int{0, 3} {
		again, err := openSettings(dir, replicas)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, s) {
			t.Errorf("opened %+v, saved %+v", again, s)
		}
	}
	if _, err := openSettings(dir, 1); !boot.IsUsage(err) || !strings.Contains(err.Error(), "has 3 replicas, not 1") {
		t.Errorf("another number of replicas: %v", err)
	}
	for _, bad := range []string{"", "{", `{"version":2,"volume":"v","replicas":3}`, `{"version":1,"volume":"v","replicas":5}`, `{"version":1,"replicas":3}`} {
		if err := os.WriteFile(filepath.Join(dir, settingsFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openSettings(dir, 0); !boot.IsUsage(err) {
			t.Errorf("settings %q: error %v", bad, err)
		}
	}
}

func TestLockDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	unlock, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "another dev runs") {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	unlock, err = lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestConfig(t *testing.T) {
	good := Config{Dir: "d", Mounts: 2}
	if err := good.complete(); err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(good.Dir) || good.Mount != filepath.Join(good.Dir, "mnt") || good.mountpoint(2) != good.Mount+"-2" {
		t.Errorf("completed to %+v", good)
	}
	for _, bad := range []Config{
		{Mounts: 1}, {Dir: "d"}, {Dir: "d", Mounts: mountsMost + 1}, {Dir: "d", Mounts: 1, Replicas: 5},
		{Dir: "d", Mounts: 1, Replicas: -1}, {Dir: "d", Mounts: 1, Mount: "/"}, {Dir: "d", Mounts: 1, QuorumWait: -1},
		{Dir: "d", Mounts: 1, ReserveBytes: reserveMost + 1}, {Dir: "d", Mounts: 1, CheckpointBytes: -1}, {Dir: "d", Mounts: 1, JournalBytes: -1},
		{Dir: "/a/d", Mounts: 1, Mount: "/a/d"}, {Dir: "/a/d", Mounts: 1, Mount: "/a"}, {Dir: "/a/d", Mounts: 1, Mount: "/a/d/replica-1/x"},
		{Dir: "d", Mounts: 1, Boot: boot.Config{MetricsAddr: "nonsense"}}, {Dir: "d", Mounts: 1, Boot: boot.Config{MetricsAddr: "127.0.0.1:99999"}},
		{Dir: "/a/d-2", Mounts: 2, Mount: "/a/d"}, {Dir: "/a/d", Mounts: 1, Mount: "/a/d/trust"},
	} {
		if err := bad.complete(); !boot.IsUsage(err) {
			t.Errorf("%+v: error %v", bad, err)
		}
	}
}

func TestFoldersAreFolders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Dir: filepath.Join(dir, "new"), Mounts: 1}, ""},
		{Config{Dir: dir + "/sub", Mount: filepath.Join(dir, "sub/..d"), Mounts: 1}, ""},
		{Config{Dir: file, Mounts: 1}, "--dir: " + file + " is not a folder"},
		{Config{Dir: filepath.Join(dir, "new"), Mount: file, Mounts: 1}, "--mount: " + file + " is not a folder"},
		{Config{Dir: filepath.Join(dir, "new"), Mount: "/proc", Mounts: 1}, "(proc) is mounted at /proc: unmount it, or give another folder"},
	} {
		got := ""
		if err := errors.Join(c.cfg.complete(), c.cfg.folders()); err != nil {
			got = err.Error()
		}
		if !strings.HasSuffix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%+v: %q, want %q at the end", c.cfg, got, c.want)
		}
	}
}

// TestLetGo: dev ends although a mount lives on in another namespace, and says so.
func TestLetGo(t *testing.T) {
	var out strings.Builder
	s := &system{cfg: Config{Mount: "/m", Mounts: 1}, errOut: &out}
	s.letGo(time.Hour)
	ended := make(chan struct{})
	s.ownerEnded = ended
	s.letGo(time.Millisecond)
	if !strings.HasPrefix(out.String(), "/m is also mounted in another mount namespace") {
		t.Errorf("said %q", out.String())
	}
	out.Reset()
	close(ended)
	s.letGo(time.Hour)
	if out.Len() > 0 {
		t.Errorf("said %q of an owner that has ended", out.String())
	}
}

func TestTrust(t *testing.T) {
	now := time.Now()
	tr := trust{dir: t.TempDir(), volume: "dev-1", replicas: 2, now: func() time.Time { return now }, log: zap.NewNop()}
	if err := tr.renew(); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(tr.folder("client"), "token")
	first, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.renew(); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(token); string(again) != string(first) {
		t.Error("a fresh token was replaced")
	}
	now = now.Add(13 * time.Hour)
	if err := tr.renew(); err != nil {
		t.Fatal(err)
	}
	if later, _ := os.ReadFile(token); string(later) == string(first) {
		t.Error("a token past half of its life was kept")
	}
	for role, folder := range map[pki.Role]string{
		pki.RoleServer: "replica-2", pki.RolePeer: "replica-1", pki.RoleClient: "client", pki.RoleOperator: "operator",
	} {
		creds, err := pki.NewCredentials(tr.open(folder).Load(role), tr.now, zap.NewNop())
		if err != nil {
			t.Errorf("credentials of %s: %v", folder, err)
			continue
		}
		if id := creds.Identity(); id.Role != role || id.Volume != "dev-1" {
			t.Errorf("%s has the identity %s", folder, id)
		}
	}
	if _, err := os.Stat(filepath.Join(tr.folder("replica-1"), "ca.key")); err == nil {
		t.Error("a replica has the authority's key")
	}
}

// TestPortsAreKept has several devs choose ports before any replica listens.
func TestPortsAreKept(t *testing.T) {
	seen := map[int]bool{}
	for range 3 {
		r, err := reservePorts(4)
		if err != nil {
			t.Fatal(err)
		}
		defer r.release()
		for _, p := range r.numbers {
			if p < portFirst || p > portLast || seen[p] {
				t.Errorf("port %d of %v, others have %v", p, r.numbers, seen)
			}
			seen[p] = true
		}
	}
}

func TestMountOf(t *testing.T) {
	cases := []struct{ line, point, typ string }{
		{"41 29 0:39 / /mnt rw,relatime shared:1 - fuse.tak-replicated tak:v rw", "/mnt", "fuse.tak-replicated"},
		{`41 29 0:39 / /a\040b\134c rw - ext4 /dev/x rw`, `/a b\c`, "ext4"},
		{"41 29 0:39", "", ""},
		{"", "", ""},
	}
	for _, c := range cases {
		if point, typ, _ := mountOf(c.line); point != c.point || typ != c.typ {
			t.Errorf("%q: %q %q", c.line, point, typ)
		}
	}
	if err := clearMount(t.TempDir()); err != nil {
		t.Errorf("clear what is not mounted: %v", err)
	}
}

func TestRuntime(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := newBoard(dir, "v")
	for _, pid := range []int{5, 6} {
		if err := errors.Join(b.replica(RuntimeReplica{Replica: "replica-1", PID: pid}), b.mount(RuntimeMount{Mountpoint: "/m", PID: pid})); err != nil {
			t.Fatal(err)
		}
	}
	r, err := ReadRuntime(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Running || len(r.Replicas) != 1 || r.Replicas[0].PID != 6 || len(r.Mounts) != 1 || r.Mounts[0].PID != 6 {
		t.Errorf("read %+v", r)
	}
	if _, err := parseRuntime([]byte(`{"version":9}`)); err == nil {
		t.Error("an unknown version was read")
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add([]byte(`{"version":1,"volume":"dev-1","replicas":3,"initialised":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSettings(b)
		if err == nil && (s.Replicas < 1 || s.Replicas > 4 || s.Volume == "") {
			t.Errorf("accepted %+v", s)
		}
	})
}

func FuzzParseReplaceRequest(f *testing.F) {
	f.Add([]byte(`{"replica":"replica-1","incarnation":2,"force":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if req, err := parseReplaceRequest(text); err == nil && (req.Replica == "" || req.Incarnation == 0) {
			t.Errorf("took %q", text)
		}
	})
}

func FuzzParseRuntime(f *testing.F) {
	f.Add([]byte(`{"version":1,"running":true,"replicas":[{"replica":"replica-1"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRuntime(b); err == nil && r.Version != runtimeVersion {
			t.Errorf("accepted %+v", r)
		}
	})
}

func TestSupervisor(t *testing.T) {
	boom := errors.New("boom")

	t.Run("never served", func(t *testing.T) {
		s := newSupervisor("part", zap.NewNop(), func(context.Context, func()) error { return boom })
		s.supervise(t.Context())
		if err := <-s.first; !errors.Is(err, boom) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("starts again", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		starts := 0
		s := newSupervisor("part", zap.NewNop(), func(_ context.Context, up func()) error {
			up()
			if starts++; starts == 2 {
				cancel()
			}
			return boom
		})
		s.supervise(ctx)
		if err := <-s.first; err != nil || starts != 2 {
			t.Errorf("error %v after %d starts", err, starts)
		}
	})
	t.Run("gives up", func(t *testing.T) {
		starts := 0
		s := newSupervisor("part", zap.NewNop(), func(_ context.Context, up func()) error {
			up()
			starts++
			return errGiveUp
		})
		s.supervise(t.Context())
		if starts != 1 {
			t.Errorf("started %d times", starts)
		}
	})
}
