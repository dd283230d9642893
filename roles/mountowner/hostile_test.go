package mountowner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/csi/mounts"
	"tak-os.org/tak-replicated/roles/boot"
)

// TestForeignPlaces asks the owner for what no kubelet would: calls in the wrong order, for another volume, at
// places of others, inside of a volume, past links. Each is refused, and nothing has changed.
func TestForeignPlaces(t *testing.T) {
	n := newVolume(t).node("node-1")
	ctx := t.Context()
	must(t, n.stage(""))
	must(t, n.publish("pods/a", false))
	n.shOK("echo hello > %s/f", n.path("pods/a"))
	outside := filepath.Join(n.dir, "outside")
	must(t, os.Mkdir(outside, 0o755))
	must(t, os.Symlink(outside, n.path("out")))
	must(t, os.Symlink(n.path("pods"), n.path("inner")))
	must(t, os.WriteFile(n.path("file"), nil, 0o600))
	stage := func(volume, path string) error {
		_, err := n.Stage(ctx, StageRequest{Credentials: n.credentials(), Spec: Spec{
			Mountpoint: n.path(path), Volume: volume, Name: n.name, QuorumWaitMs: 1000, Members: []string{n.v.cfg.Members[0].String()},
		}})
		return err
	}
	publish := func(volume, staging, target string) error {
		return n.Publish(ctx, PublishRequest{Volume: volume, Staging: n.path(staging), Target: n.path(target)})
	}
	conflict := func(err error) bool { return errors.Is(err, ErrConflict) }
	notStaged := func(err error) bool { return errors.Is(err, ErrNotStaged) }
	before := n.mountsHere()
	for what, c := range map[string]struct {
		err  func() error
		want func(error) bool
	}{
		"unpublish what is staged":             {func() error { return n.unpublish("staging") }, conflict},
		"unstage what is published":            {func() error { return n.Unstage(ctx, "pvc-1", n.path("pods/a")) }, conflict},
		"unstage it, whatever it is":           {func() error { return n.Unstage(ctx, "", n.path("staging")) }, boot.IsUsage},
		"unpublish it, whatever it is":         {func() error { return n.Unpublish(ctx, "", n.path("pods/a")) }, boot.IsUsage},
		"usage of it, whatever it is":          {func() error { _, err := n.Stats(ctx, "", n.path("pods/a")); return err }, boot.IsUsage},
		"stage over what is published":         {func() error { return stage("pvc-1", "pods/a") }, conflict},
		"stage another over what is staged":    {func() error { return stage("pvc-2", "staging") }, conflict},
		"publish over what is staged":          {func() error { return publish("pvc-1", "staging", "staging") }, conflict},
		"publish another volume":               {func() error { return publish("pvc-2", "staging", "pods/b") }, conflict},
		"publish from a target":                {func() error { return publish("pvc-1", "pods/a", "pods/b") }, notStaged},
		"publish from nowhere":                 {func() error { return publish("pvc-1", "none/none", "pods/b") }, notStaged},
		"unpublish another volume":             {func() error { return n.Unpublish(ctx, "pvc-2", n.path("pods/a")) }, conflict},
		"unstage another volume":               {func() error { return n.Unstage(ctx, "pvc-2", n.path("staging")) }, conflict},
		"usage of another volume":              {func() error { _, err := n.Stats(ctx, "pvc-2", n.path("pods/a")); return err }, func(err error) bool { return errors.Is(err, ErrNotMounted) }},
		"stage inside of a volume":             {func() error { return stage("pvc-1", "pods/a/x") }, boot.IsUsage},
		"publish inside of a volume":           {func() error { return publish("pvc-1", "staging", "pods/a/x") }, boot.IsUsage},
		"unpublish inside of a volume":         {func() error { return n.unpublish("pods/a/f") }, boot.IsUsage},
		"publish past a link":                  {func() error { return publish("pvc-1", "staging", "out/x") }, boot.IsUsage},
		"publish past a link to the same":      {func() error { return publish("pvc-1", "staging", "inner/x") }, boot.IsUsage},
		"stage past a link":                    {func() error { return stage("pvc-1", "out/x/y") }, boot.IsUsage},
		"publish at a link":                    {func() error { return publish("pvc-1", "staging", "out") }, boot.IsUsage},
		"publish at a file":                    {func() error { return publish("pvc-1", "staging", "file") }, boot.IsUsage},
		"publish below a file":                 {func() error { return publish("pvc-1", "staging", "file/x") }, boot.IsUsage},
		"publish with a zero byte":             {func() error { return publish("pvc-1", "staging", "a\x00b") }, boot.IsUsage},
		"publish at a long name":               {func() error { return publish("pvc-1", "staging", strings.Repeat("x", 10<<10)) }, boot.IsUsage},
		"publish at a long path":               {func() error { return publish("pvc-1", "staging", strings.Repeat("x/", 5<<10)+"x") }, boot.IsUsage},
		"mount elsewhere":                      {func() error { _, err := n.Mount(ctx, Spec{Mountpoint: outside, Volume: "pvc-1"}); return err }, boot.IsUsage},
		"unmount without unstaging":            {func() error { return n.Unmount(ctx, n.path("staging"), true) }, boot.IsUsage},
		"credentials of a volume that is away": {func() error { return n.Refresh(ctx, "../pvc-1", n.credentials()) }, func(err error) bool { return errors.Is(err, ErrNotMounted) }},
	} {
		err := c.err()
		if err == nil || !c.want(err) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %.1200v", what, err)
		}
	}
	for _, volume := range []string{"", ".", "..", "../pvc-1", "a/b", "a\x00b", "é", "a\nb", "A", strings.Repeat("a", 10<<10)} {
		if err := stage(volume, "other"); !boot.IsUsage(err) || len(err.Error()) > 1000 {
			t.Errorf("stage %.20q: %.1200v", volume, err)
		}
	}
	if after := n.mountsHere(); after != before {
		t.Errorf("mounts were\n%s and are\n%s", before, after)
	}
	for dir, want := range map[string]string{outside: "", filepath.Join(n.dir, "trust"): "pvc-1"} {
		found, err := filepath.Glob(filepath.Join(dir, "*"))
		if got := strings.TrimPrefix(strings.Join(found, " "), dir+"/"); err != nil || got != want {
			t.Errorf("%s has %q, want %q, error %v", dir, got, want, err)
		}
	}
	if got := n.shOK("cat %s/f", n.path("pods/a")); got != "hello" {
		t.Errorf("the volume has %q", got)
	}
	must(t, n.unpublish("pods/a"))
	must(t, n.unstage())
}

// mountsHere lists what is mounted below the node's folder.
func (n *node) mountsHere() string {
	n.v.t.Helper()
	table, err := mounts.Own()
	must(n.v.t, err)
	var b strings.Builder
	for _, m := range table {
		if strings.HasPrefix(m.Point, n.dir+"/") {
			b.WriteString(m.Point + " " + m.Source + "\n")
		}
	}
	return b.String()
}
