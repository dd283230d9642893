//go:build e2e

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/install"
	"tak-os.org/tak-replicated/kube/api"
)

// fenced is a block of a document: its language and its text.
var fenced = regexp.MustCompile("(?s)```(yaml|sh)\n(.*?)```")

// documented are a document's blocks, in order.
func documented(t *testing.T, file string, least int) [][2]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks [][2]string
	for _, b := range fenced.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, [2]string{b[1], b[2]})
	}
	if len(blocks) < least {
		t.Fatalf("%s has %d blocks", file, len(blocks))
	}
	return blocks
}

// desk is where an administrator types what documents say: a folder with manifests/, which here names the image of the tests, and the two
// programs. What installs an overlay of the administrator's own is tried against the API server, and not kept.
type desk struct{ dir, path string }

func newDesk(t *testing.T, ns string) *desk {
	t.Helper()
	d := &desk{dir: t.TempDir()}
	d.path = filepath.Join(d.dir, "bin")
	folder := filepath.Join(d.dir, "manifests")
	for _, dir := range []string{d.path, folder} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := install.WriteOverlay(folder, strings.Fields(images(t))[0], install.Registrar); err != nil {
		t.Fatal(err)
	}
	// The test's namespace is the current one. As a flag it would be refused for objects of others.
	kubeconfig := filepath.Join(d.dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(must(t, "config", "view", "--raw", "--flatten")), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "--kubeconfig", kubeconfig, "config", "set-context", "--current", "--namespace="+ns)
	kubectl := strings.Join(setup.kubectl(context.Background(), "--kubeconfig", kubeconfig).Args, " ")
	for name, text := range map[string]string{
		"kubectl": `if [ "$*" = "apply -k overlay" ]; then set -- "$@" --dry-run=server; fi` + "\nexec " + kubectl + ` "$@"`,
		"tak-replicated": "exec " + kubectl +
			` -n kube-system exec deploy/tak-replicated-manager -c manager -- /usr/bin/tak-replicated "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(d.path, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// typedWithin bounds one block of commands.
const typedWithin = 5 * time.Minute

// types runs a block of commands, with names in place of the document's. The first that fails ends it.
func (d *desk) types(t *testing.T, block string, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), typedWithin)
	defer cancel()
	block = strings.NewReplacer(names...).Replace(block)
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", block)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "PATH="+d.path+":"+os.Getenv("PATH"))
	cmd.WaitDelay = time.Second
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, block, out)
	}
	t.Logf("%.1f s: %s", time.Since(begin).Seconds(), strings.TrimSpace(block))
}

// TestAdministratorGuide types what docs/administrator-guide.md says: a setting, looking, replacing and moving a replica, emptying a node. What it says
// about retained volumes TestRetain does.
func TestAdministratorGuide(t *testing.T) {
	ours(t)
	ns := namespace(t, "administrator")
	apply(t, class("e2e-moved", 2, "Delete"))
	t.Cleanup(func() { _, _ = try("delete", "storageclass", "e2e-moved") })
	apply(t, claim(ns, "data", "e2e-moved", "ReadWriteMany"))
	volume := volumeOf(t, ns, "data")
	v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
	if err != nil {
		t.Fatal(err)
	}
	user := v.Replica(1).Node // replica 2 is what moves
	apply(t, pod(ns, "writer", "data", user, "append", "/data/f"))
	running(t, ns, "writer")
	inSync(t, volume)
	d := newDesk(t, ns)
	begin := time.Now()
	for _, b := range documented(t, "administrator-guide.md", 5) {
		switch {
		case b[0] != "sh" || strings.Contains(b[1], "claimRef"):
		case strings.Contains(b[1], "ctl replace"):
			for line := range strings.Lines(b[1]) {
				now, free := replicaTwo(t, volume, user)
				d.types(t, line, "VOLUME", volume, "--incarnation 1", fmt.Sprintf("--incarnation %d", now.Incarnation), "n4", free)
			}
		case strings.Contains(b[1], "ctl drain"):
			now, _ := replicaTwo(t, volume, user)
			t.Cleanup(func() { _, _ = try("uncordon", now.Node) })
			d.types(t, b[1], "NODE", now.Node)
		default:
			d.types(t, b[1], "NAME", volume)
		}
	}
	end := time.Now()
	all := mustResults(t, ns, "writer")
	wantSmooth(t, "writer", all, begin, end, moveWithin)
	v, err = get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
	if err != nil {
		t.Fatal(err)
	}
	if life := v.Replica(2).Incarnation; life != 4 {
		t.Errorf("replica 2 is in its life %d: it was to be replaced twice, and drained", life)
	}
	apply(t, pod(ns, "reader", "data", user))
	ready(t, ns, "app=reader", 1)
	wantRecords(t, ns, "reader", "/data/f", all)
}

// replicaTwo is the volume's second replica once nothing moves, and a node that has no replica.
func replicaTwo(t *testing.T, volume, other string) (r api.ReplicaSpec, free string) {
	t.Helper()
	eventually(t, settle, "nothing moves", func() error {
		v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
		if err != nil {
			return err
		}
		if len(v.Spec.Retired) > 0 || v.Status.Phase != api.PhaseReady {
			return errors.New(string(v.Status.Phase))
		}
		r = *v.Replica(2)
		return nil
	})
	for _, n := range setup.nodes {
		if n != r.Node && n != other {
			free = n
		}
	}
	return r, free
}
