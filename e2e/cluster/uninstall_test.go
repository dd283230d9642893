//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/install"
)

// TestUninstall is the last: all volumes of the other scenarios are gone, and so is then everything of the product: objects, mounts,
// and folders that were not kept on purpose.
func TestUninstall(t *testing.T) {
	ours(t)
	eventually(t, settle, "no volume is left", func() error {
		out, err := try("get", "pv,replicatedvolumes", "-A", "-o", "name")
		if err == nil && out != "" {
			err = errors.New(strings.ReplaceAll(out, "\n", " "))
		}
		return err
	})
	image := strings.Fields(images(t))[0]
	setup.ended = time.Now()
	if err := install.Uninstall(t.Context(), setup.kubectl, image, install.Registrar); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"namespaces", "customresourcedefinitions", "csidrivers", "storageclasses", "clusterroles", "clusterrolebindings"} {
		eventually(t, settle, what+" gone", func() error {
			out, err := try("get", what, "-o", "name")
			if err == nil && strings.Contains(out, "tak-") {
				err = errors.New(out)
			}
			return err
		})
	}
	eventually(t, settle, "Pods gone", func() error {
		out, err := try("-n", "kube-system", "get", "pods", "-l", "csi.replicated.tak-os.org/component", "-o", "name")
		if err == nil && out != "" {
			err = errors.New(out)
		}
		return err
	})
	for i := range setup.nodes {
		cmd, err := setup.lab.Exec(t.Context(), i+1, "cat", "/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		mounts, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if isOurs(line) {
				t.Errorf("%s still has a mount: %s", setup.nodes[i], line)
			}
		}
		for _, dir := range []string{"local/volumes", "local/trash", "consumer", "host/replicas", "per-node/volumes"} {
			if err := empty(filepath.Join(setup.lab.Root(i+1), "var/lib/tak-replicated", dir)); err != nil {
				t.Errorf("%s: %v", setup.nodes[i], err)
			}
		}
	}
}

// isOurs tells of a line of mountinfo whether it is a mount of the product: by where it is mounted, and by its kind.
func isOurs(line string) bool {
	words := strings.Fields(line)
	_, after, _ := strings.Cut(line, " - ")
	kind, _, _ := strings.Cut(after, " ")
	at := words[4]
	return kind == "fuse" || strings.HasPrefix(kind, "fuse.") || strings.HasPrefix(at, "/var/lib/tak-replicated") ||
		strings.HasPrefix(at, "/run/tak-replicated") || strings.Contains(at, "kubernetes.io~csi") || strings.Contains(at, "kubernetes.io/csi")
}

func empty(dir string) error {
	left, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s has %d entries, %s among them", dir, len(left), left[0].Name())
	}
	return err
}
