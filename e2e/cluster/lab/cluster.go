package lab

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tak-os.org/tak-replicated/e2e/cluster/programs"
)

//go:embed scripts/*.sh
var scripts embed.FS

// WorkloadImage is the image of the tests' Pods. The sandbox of every Pod is made from it too.
const WorkloadImage = "tak-os.org/e2e-workload:1"

// Options of a cluster.
type Options struct {
	Dir       string        // where it keeps everything; on a file system that overlayfs can use
	Nodes     int           // 1 to mostNodes
	NodeGrace time.Duration // after which a silent node counts as gone
	Images    []string      // archives that every node has at boot, one of them WorkloadImage
	Logf      programs.Logf
}

// mostNodes bounds a cluster. Each of them has its certificates from the start, whether it ever boots or not.
const mostNodes = 9

// Cluster is a running cluster.
type Cluster struct {
	dir     string
	nodes   int
	cgroups *cgroups
}

// Dir is the folder of the running cluster, from TAK_E2E_RUN.
func Dir() string {
	if d := os.Getenv("TAK_E2E_RUN"); d != "" {
		return d
	}
	return "/var/tmp/tak-replicated-e2e"
}

// Open returns the cluster that runs in dir.
func Open(dir string) (*Cluster, error) {
	b, err := os.ReadFile(filepath.Join(dir, "nodes", "count"))
	if err != nil {
		return nil, fmt.Errorf("no cluster is in %s: %w", dir, err)
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return nil, err
	}
	g, err := newCgroups()
	return &Cluster{dir: dir, nodes: n, cgroups: g}, err
}

// Up takes down what an earlier run left, builds what is missing, starts a cluster and returns when
// all nodes are Ready.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster needs root")
	}
	if err := Down(o.Dir); err != nil {
		return nil, fmt.Errorf("take down an earlier cluster: %w", err)
	}
	g, err := newCgroups()
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: o.Dir, nodes: o.Nodes, cgroups: g}
	steps := []struct {
		what string
		do   func() error
	}{
		{"kernel", prepareKernel},
		{"folders", func() error { return c.makeDirs(o) }},
		{"programs", func() error { return c.placePrograms(ctx, o.Logf) }},
		{"images", func() error { return placeFiles(filepath.Join(c.dir, "images"), o.Images) }},
		{"certificates", c.makePKI},
		{"network", c.makeNetwork},
		{"processes", c.startAll},
		{"API server", func() error { return c.waitReady(ctx) }},
		{"nodes", func() error { return c.waitNodes(ctx) }},
	}
	begin := time.Now()
	for _, s := range steps {
		if err := s.do(); err != nil {
			return c, fmt.Errorf("cluster's %s: %w", s.what, err)
		}
		o.Logf("%5.1f s %s", time.Since(begin).Seconds(), s.what)
	}
	return c, nil
}

func (c *Cluster) makeDirs(o Options) error {
	for _, d := range []string{"bin", "cni", "images", "pki", "kubeconfig", "pids", "logs", "nodes", "scripts"} {
		if err := os.MkdirAll(filepath.Join(c.dir, d), 0o755); err != nil {
			return err
		}
	}
	version := "1"
	if c.cgroups.v2 {
		version = "2"
	}
	env := fmt.Sprintf("HUB_IP=%s\nSERVICE_CIDR=%s\nDNS_IP=%s\nNODE_GRACE=%s\nCGROUP_VERSION=%s\nCGROUP_HIERARCHIES=%q\nWORKLOAD_IMAGE=%s\n",
		hubIP, serviceCIDR, dnsIP, o.NodeGrace, version, strings.Join(hierarchies, " "), WorkloadImage)
	if err := os.WriteFile(filepath.Join(c.dir, "cluster.env"), []byte(env), 0o644); err != nil {
		return err
	}
	if err := c.noteCount(); err != nil {
		return err
	}
	return fs.WalkDir(scripts, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := scripts.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(c.dir, p), b, 0o755)
	})
}

// noteCount notes how many nodes there are, for who opens the cluster.
func (c *Cluster) noteCount() error {
	return os.WriteFile(filepath.Join(c.dir, "nodes", "count"), []byte(strconv.Itoa(c.nodes)), 0o644)
}

func (c *Cluster) script(name string) string { return filepath.Join(c.dir, "scripts", name) }

// placePrograms builds what is missing and gives the nodes a folder with exactly what they need.
func (c *Cluster) placePrograms(ctx context.Context, logf programs.Logf) error {
	for dir, names := range map[string][]programs.Program{
		"bin": {programs.Kube, programs.Containerd, programs.Shim, programs.Ctr},
		"cni": {programs.Bridge, programs.Loopback, programs.Portmap, programs.HostLocal},
	} {
		var files []string
		for _, p := range names {
			file, err := programs.Path(ctx, p, logf)
			if err != nil {
				return err
			}
			files = append(files, file)
		}
		if err := placeFiles(filepath.Join(c.dir, dir), files); err != nil {
			return err
		}
	}
	return nil
}

// placeFiles links files into a folder, or copies them if they are on another file system.
func placeFiles(dir string, files []string) error {
	for _, f := range files {
		to := filepath.Join(dir, filepath.Base(f))
		if os.Link(f, to) == nil {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startAll() error {
	if err := c.start(c.controlPlane()); err != nil {
		return err
	}
	for i := 1; i <= c.nodes; i++ {
		if err := c.start(c.node(i)); err != nil {
			return err
		}
	}
	return nil
}

// Nodes is how many nodes there are.
func (c *Cluster) Nodes() int { return c.nodes }

// Kubectl returns a kubectl command of the administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	words := []string{c.Program(string(programs.Kube)), "kubectl", "--kubeconfig", c.Kubeconfig()}
	return c.InHub(ctx, append(words, args...)...)
}

// Kubeconfig is the administrator's file; it works in the hub.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig", "admin.conf") }

// AuditLog is the API server's: what ServiceAccounts of kube-system asked for, a JSON object a line.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "logs", "audit.log") }

// Program is the file of one of the cluster's programs.
func (c *Cluster) Program(name string) string { return filepath.Join(c.dir, "bin", name) }

// InHub returns a command in the network that API server, nodes, Pods and Services are reachable from.
func (c *Cluster) InHub(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + hub}, args...)...)
}

const (
	readyWithin = 6 * time.Minute
	readyPause  = 200 * time.Millisecond
)

func poll(ctx context.Context, done func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", readyWithin, err)
		case <-time.After(readyPause):
		}
	}
}

func (c *Cluster) waitReady(ctx context.Context) error {
	return poll(ctx, func() error {
		if _, err := c.initPid("cp"); err != nil {
			return err
		}
		out, err := c.Kubectl(ctx, "get", "--raw", "/readyz").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	})
}

func (c *Cluster) waitNodes(ctx context.Context) error {
	return poll(ctx, func() error {
		out, err := c.Kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`).Output()
		if err != nil {
			return err
		}
		if n := strings.Count(string(out), "True"); n != c.nodes {
			return fmt.Errorf("%d of %d nodes are Ready", n, c.nodes)
		}
		return nil
	})
}

// Load imports an image archive into all running nodes.
func (c *Cluster) Load(ctx context.Context, archive string) error {
	for i := 1; i <= c.nodes; i++ {
		cmd, err := c.Exec(ctx, i, "ctr", "-n", "k8s.io", "images", "import", "--local", "-")
		if err != nil {
			return err
		}
		f, err := os.Open(archive)
		if err != nil {
			return err
		}
		cmd.Stdin = f
		out, err := cmd.CombinedOutput()
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("load %s into %s: %w: %s", filepath.Base(archive), NodeName(i), err, out)
		}
	}
	return nil
}

// CopyImage gives an image that one node has to another. What comes of a busy containerd
// may be cut: it is asked again.
func (c *Cluster) CopyImage(ctx context.Context, image string, from, to int) (err error) {
	for range 3 {
		if err = c.copyImage(ctx, image, from, to); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (c *Cluster) copyImage(ctx context.Context, image string, from, to int) error {
	give, err := c.Exec(ctx, from, "ctr", "-n", "k8s.io", "images", "export", "-", image)
	if err != nil {
		return err
	}
	take, err := c.Exec(ctx, to, "ctr", "-n", "k8s.io", "images", "import", "--local", "-")
	if err != nil {
		return err
	}
	var said bytes.Buffer
	give.Stderr, take.Stdout, take.Stderr = &said, &said, &said
	if take.Stdin, err = give.StdoutPipe(); err != nil {
		return err
	}
	if err := take.Start(); err != nil {
		return err
	}
	if err := errors.Join(give.Run(), take.Wait()); err != nil {
		return fmt.Errorf("copy %s from %s to %s: %w: %s", image, NodeName(from), NodeName(to), err, said.Bytes())
	}
	return nil
}

// Down ends and removes the cluster in dir, if there is one, and reports what it could not remove.
func Down(dir string) error {
	c := &Cluster{dir: dir}
	g, err := newCgroups()
	if err != nil {
		return err
	}
	pids, err := os.ReadDir(filepath.Join(dir, "pids"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, p := range pids {
		if err := c.end(p.Name()); err != nil {
			return err
		}
	}
	if err := errors.Join(removeNetwork(), g.remove("")); err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), " "+dir+"/") {
		return fmt.Errorf("something is still mounted below %s: it is kept", dir)
	}
	return os.RemoveAll(dir)
}
