package install

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/lab"
	"tak-os.org/tak-replicated/e2e/cluster/programs"
	"tak-os.org/tak-replicated/e2e/image"
)

// Images as the manifests name them: those that the nodes have are used, and nothing is pulled.
const (
	ProvisionerImage = "registry.k8s.io/sig-storage/csi-provisioner:v6.4.0"
	dnsImage         = "tak-os.org/e2e-coredns:1"
	// What the examples use: here it holds the machine's static busybox.
	busyboxImage = "docker.io/library/busybox:1.37"
	productImage = "tak-os.org/tak-replicated"
)

// ProductImage is the product's image that was built with a label.
func ProductImage(label string) string { return productImage + ":" + label }

// nodeGrace is shorter than Kubernetes' 50 s, so that tests need not wait for it.
const nodeGrace = 20 * time.Second

//go:embed dns.yaml
var dns string

// Root is the repository's root.
func Root() (string, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(self) {
		return "", errors.New("the program was built without its source's path (-trimpath)")
	}
	return filepath.Abs(filepath.Join(filepath.Dir(self), "..", "..", ".."))
}

// Up starts a cluster with the images of sidecars and workloads, and cluster DNS.
func Up(ctx context.Context, nodes int, logf programs.Logf) (*lab.Cluster, error) {
	dir, err := os.MkdirTemp("", "tak-e2e-images")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	images, err := sidecars(ctx, dir, logf)
	if err != nil {
		return nil, err
	}
	c, err := lab.Up(ctx, lab.Options{Dir: lab.Dir(), Nodes: nodes, NodeGrace: nodeGrace, Images: images, Logf: logf})
	if err != nil {
		return c, err
	}
	return c, Apply(ctx, c, dns)
}

// sidecars writes the archives of the images that are not the product's.
func sidecars(ctx context.Context, dir string, logf programs.Logf) ([]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	workload := filepath.Join(dir, "workload")
	if err := image.Build(ctx, root, "./e2e/cluster/workload", workload); err != nil {
		return nil, err
	}
	coredns, err := programs.Path(ctx, programs.CoreDNS, logf)
	if err != nil {
		return nil, err
	}
	provisioner, err := programs.Path(ctx, programs.Provisioner, logf)
	if err != nil {
		return nil, err
	}
	shell, err := busybox(dir, exampleCommands)
	if err != nil {
		return nil, err
	}
	var archives []string
	for name, i := range map[string]image.Image{
		"busybox":     {Name: busyboxImage, Files: map[string]string{"/bin": shell}},
		"workload":    {Name: lab.WorkloadImage, Files: map[string]string{"/workload": workload}},
		"coredns":     {Name: dnsImage, Files: map[string]string{"/coredns": coredns}},
		"provisioner": {Name: ProvisionerImage, Files: map[string]string{"/csi-provisioner": provisioner}},
	} {
		for at := range i.Files {
			if name != "busybox" {
				i.Entrypoint = []string{at}
			}
		}
		file := filepath.Join(dir, name+".tar")
		if _, err := i.Write(file); err != nil {
			return nil, err
		}
		archives = append(archives, file)
	}
	return archives, nil
}

// exampleCommands are the commands that examples and tests use.
var exampleCommands = []string{"sh", "cat", "chown", "cp", "date", "df", "echo", "head", "hostname", "id", "ls", "mkdir", "mv", "rm", "sleep", "stat", "sync", "tail", "touch", "wc"}

// busybox makes a folder with the program and a link for each of its commands that is wanted.
func busybox(dir string, commands []string) (string, error) {
	b, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return "", fmt.Errorf("install Debian's package busybox-static: %w", err)
	}
	bin := filepath.Join(dir, "busybox")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(bin, "busybox"), b, 0o755); err != nil {
		return "", err
	}
	for _, name := range commands {
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			return "", err
		}
	}
	return bin, nil
}

// Load builds the product's image with a label of its own, and loads it into all nodes.
func Load(ctx context.Context, c *lab.Cluster, label string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tak-e2e-product")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archive, err := image.Product(ctx, root, dir, ProductImage(label), label)
	if err != nil {
		return err
	}
	return c.Load(ctx, archive)
}

// Product loads the product's image and installs it.
func Product(ctx context.Context, c *lab.Cluster, label string, logf programs.Logf) error {
	begin := time.Now()
	if err := Load(ctx, c, label); err != nil {
		return err
	}
	logf("%5.1f s image", time.Since(begin).Seconds())
	return Manifests(ctx, c.Kubectl, ProductImage(label), Registrar)
}

// overlay names the image, also the one of worker Pods, as docs/administrator-guide.md has it.
const overlay = `resources: [%s]
components: [%s]
images: [{name: %s, newName: %s, newTag: %q}]
replacements:
  - source: {kind: Deployment, name: tak-replicated-manager, fieldPath: "spec.template.spec.containers.[name=manager].image"}
    targets:
      - select: {kind: Deployment, name: tak-replicated-manager}
        fieldPaths: ["spec.template.spec.containers.[name=manager].env.[name=WORKER_IMAGE].value"]
`

// Kubectl makes a kubectl command.
type Kubectl func(ctx context.Context, args ...string) *exec.Cmd

// Components of manifests/ that can be combined.
const (
	Registrar  = "registrar"   // needs no sidecar but the provisioner
	PodRuntime = "pod-runtime" // new volumes run in worker Pods
	StatusPage = "status-page" // the manager serves the status page
)

// Manifests applies manifests/ with an image and components.
func Manifests(ctx context.Context, kubectl Kubectl, image string, components ...string) error {
	return WithOverlay(image, components, func(dir string) error { return output(kubectl(ctx, "apply", "-k", dir)) })
}

// Uninstall deletes what Manifests applied.
func Uninstall(ctx context.Context, kubectl Kubectl, image string, components ...string) error {
	return WithOverlay(image, components, func(dir string) error {
		return output(kubectl(ctx, "delete", "-k", dir, "--ignore-not-found", "--timeout=3m"))
	})
}

// WithOverlay makes a folder that can be applied, for as long as do runs.
func WithOverlay(image string, components []string, do func(dir string) error) error {
	dir, err := os.MkdirTemp("", "tak-e2e-overlay")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := WriteOverlay(dir, image, components...); err != nil {
		return err
	}
	return do(dir)
}

// WriteOverlay makes a folder one that can be applied.
func WriteOverlay(dir, image string, components ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	// A base has to be named by a relative path.
	base, err := filepath.Rel(dir, filepath.Join(root, "manifests"))
	if err != nil {
		return err
	}
	var parts []string
	for _, c := range components {
		parts = append(parts, filepath.Join(base, "components", c))
	}
	name, tag, _ := strings.Cut(image, ":")
	text := fmt.Sprintf(overlay, base, strings.Join(parts, ", "), productImage, name, tag)
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644)
}

// Apply applies objects given as YAML.
func Apply(ctx context.Context, c *lab.Cluster, yaml string) error {
	cmd := c.Kubectl(ctx, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(yaml)
	return output(cmd)
}

func output(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Args[len(cmd.Args)-1]), err, out)
	}
	return nil
}
