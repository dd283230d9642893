package image

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var build = flag.Bool("image", false, "build the image with buildah, as root; takes minutes")

// imageBytesMost is what the image may take.
const imageBytesMost = 100 << 20

// TestImage builds the image with this machine's Go and looks at what is in it.
func TestImage(t *testing.T) {
	if !*build {
		t.Skip("run it with: go test ./e2e/image -image")
	}
	const name = "localhost/tak-replicated-test"
	buildah(t, "bud", "--isolation", "chroot", "-v", goEnv(t, "GOROOT")+":/go:ro", "-v", goEnv(t, "GOMODCACHE")+":/mod", "-t", name, "../..")
	t.Cleanup(func() { buildah(t, "rmi", name) })
	container := buildah(t, "from", name)
	t.Cleanup(func() { buildah(t, "rm", container) })
	root := buildah(t, "mount", container)

	if n := size(t, root); n > imageBytesMost {
		t.Errorf("the image has %d bytes, more than %d", n, imageBytesMost)
	}
	link, err := os.Readlink(filepath.Join(root, "usr/bin/fusermount3"))
	if err != nil || link != "tak-replicated" {
		t.Errorf("fusermount3 is a link to %q: %v", link, err)
	}
	if out := buildah(t, "run", "--isolation", "chroot", container, "/usr/bin/tak-replicated", "dev", "--help"); !strings.Contains(out, "--replicas") {
		t.Errorf("help in the image: %s", out)
	}
	var exit *exec.ExitError
	cmd := exec.Command("buildah", "--storage-driver", "vfs", "run", "--isolation", "chroot", container, "/usr/bin/fusermount3", "-u", "/nowhere")
	if out, err := cmd.CombinedOutput(); !errors.As(err, &exit) || bytes.Contains(out, []byte("ROLE")) {
		t.Errorf("fusermount3 in the image: %v, %s", err, out)
	}
}

func buildah(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("buildah", append([]string{"--storage-driver", "vfs"}, args...)...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("buildah %s: %v\n%s%s", args[0], err, out, errOut.String())
	}
	return strings.TrimSpace(string(out))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func size(t *testing.T, root string) (n int64) {
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
