package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds a static program of this module, pkg from the repository's root, as the Containerfile does.
func Build(ctx context.Context, root, pkg, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Product builds the product's program and writes its image's archive into dir. label tells images of the
// same program apart: each has a digest of its own.
func Product(ctx context.Context, root, dir, name, label string) (file string, err error) {
	program := filepath.Join(dir, "tak-replicated")
	if err := Build(ctx, root, ".", program); err != nil {
		return "", err
	}
	i := Image{
		Name: name, Entrypoint: []string{"/usr/bin/tak-replicated"}, Labels: map[string]string{"build": label},
		Files: map[string]string{"/usr/bin/tak-replicated": program, "/": filepath.Join(root, "manifests", "image")},
	}
	file = filepath.Join(dir, "tak-replicated-"+label+".tar")
	_, err = i.Write(file)
	return file, err
}
