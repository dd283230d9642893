//go:build e2e

package cluster

import (
	"errors"
	"regexp"
	"slices"
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
		for _, dir := range []string{"/var/lib/tak-replicated", "/run/tak-replicated"} {
			for _, f := range filesBelow(t, setup.nodes[i], dir) {
				if !slices.ContainsFunc(mayStay, func(m *regexp.Regexp) bool { return m.MatchString(f) }) {
					t.Errorf("%s still has %s", setup.nodes[i], f)
				}
			}
		}
	}
}

// mayStay is what the administrator guide says is left on a node besides folders.
var mayStay = []*regexp.Regexp{
	regexp.MustCompile(`^/var/lib/tak-replicated/(host|local|per-node)/lock$`),
	regexp.MustCompile(`^/run/tak-replicated/mount-owner\.sock\.(lock|handed-over\.[0-9a-f-]+)$`),
}

// filesBelow are all files below a folder of a node; no folders. Their number is noted.
func filesBelow(t *testing.T, node, dir string) []string {
	t.Helper()
	files := strings.Fields(inNode(t, node, "if [ -e "+dir+" ]; then find "+dir+" ! -type d; fi"))
	folders := strings.Fields(inNode(t, node, "if [ -e "+dir+" ]; then find "+dir+" -type d; fi"))
	t.Logf("%s, %s: folders %v, files %v", node, dir, folders, files)
	return files
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
