package install

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"tak-os.org/tak-replicated/e2e/cluster/programs"
	"tak-os.org/tak-replicated/e2e/image"
)

// What Kubernetes' storage suite runs in its Pods: each is here the machine's busybox with all commands, and agnhost.
var suiteImages = []string{
	"registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
	"registry.k8s.io/e2e-test-images/agnhost:2.63.0",
	"registry.k8s.io/e2e-test-images/nginx:1.15-4",
	"registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0",
}

// SuiteImages writes the archives of the images of the programs.StorageSuite to dir.
func SuiteImages(ctx context.Context, dir string, logf programs.Logf) ([]string, error) {
	agnhost, err := programs.Path(ctx, programs.Agnhost, logf)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "/bin/busybox", "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("install Debian's package busybox-static: %w", err)
	}
	bin, err := busybox(dir, strings.Fields(string(out)))
	if err != nil {
		return nil, err
	}
	var archives []string
	for _, name := range suiteImages {
		i := image.Image{Name: name, Files: map[string]string{"/bin": bin, "/agnhost": agnhost}}
		if i.Cmd = []string{"sh"}; strings.Contains(name, "agnhost") {
			i.Entrypoint, i.Cmd = []string{"/agnhost"}, []string{"pause"}
		}
		file := filepath.Join(dir, strings.ReplaceAll(filepath.Base(name), ":", "-")+".tar")
		if _, err := i.Write(file); err != nil {
			return nil, err
		}
		archives = append(archives, file)
	}
	return archives, nil
}
