package ctl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/ctl/bundle"
	"tak-os.org/tak-replicated/roles/ctl/cluster"
	"tak-os.org/tak-replicated/roles/dev"
)

// bundleFlags are the flags of `ctl support-bundle`.
type bundleFlags struct {
	dir, kubeconfig, namespace, output string
	inCluster                          bool
	logs, metrics                      []string
}

func (f *bundleFlags) run(ctx context.Context, out io.Writer) error {
	now := time.Now().UTC()
	folder := "tak-replicated-" + now.Format("20060102-150405")
	if f.output == "" {
		f.output = folder + ".tar.gz"
	}
	err := bundle.Create(f.output, folder, func(a *bundle.Archive) error {
		if err := a.Add("version.txt", version()); err != nil {
			return err
		}
		if f.kubeconfig == "" && !f.inCluster {
			if err := f.ofDev(ctx, a); err != nil {
				return err
			}
			return f.given(ctx, a)
		}
		k, err := cluster.Connect(f.kubeconfig, f.namespace)
		if err != nil {
			return err
		}
		if err := bundle.Cluster(ctx, a, k); err != nil {
			return err
		}
		return f.given(ctx, a)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: look through it before you give it away; it has names of nodes, claims and folders, no names of files in volumes and no secrets\n", f.output)
	return nil
}

// ofDev adds what a dev says, and what its journals hold.
func (f *bundleFlags) ofDev(ctx context.Context, a *bundle.Archive) error {
	rt, err := dev.ReadRuntime(f.dir)
	if err != nil {
		return fmt.Errorf("nothing has run in %s: %w", f.dir, err)
	}
	if err := a.AddJSON("runtime.json", rt); err != nil {
		return err
	}
	if err := a.TryJSON("status.json", func() (any, error) { return status(ctx, f.dir) }); err != nil {
		return err
	}
	for _, r := range rt.Replicas {
		err := a.Try("journal/"+r.Replica+".txt", func() ([]byte, error) {
			var text bytes.Buffer
			err := verifyJournal(r.Dir, &text)
			if err != nil && text.Len() > 0 {
				fmt.Fprintf(&text, "%v\n", err)
				err = nil
			}
			return text.Bytes(), err // while it is served, status.json has its extent
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// given adds the logs and metrics that the command line names.
func (f *bundleFlags) given(ctx context.Context, a *bundle.Archive) error {
	for _, path := range f.logs {
		if err := a.Try("logs/"+filepath.Base(path), func() ([]byte, error) { return os.ReadFile(path) }); err != nil {
			return err
		}
	}
	for i, url := range f.metrics {
		if err := a.Try(fmt.Sprintf("metrics/%d.txt", i+1), func() ([]byte, error) { return fetch(ctx, url) }); err != nil {
			return err
		}
	}
	return nil
}

// fetchMost bounds what is read of a page of metrics.
const fetchMost = 8 << 20

func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, fetchMost))
}

func version() []byte {
	text := fmt.Appendf(nil, "%s, %s, %s/%s\n", boot.Name, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if info, ok := debug.ReadBuildInfo(); ok {
		text = fmt.Appendf(text, "%s %s\n", info.Main.Path, info.Main.Version)
		for _, s := range info.Settings {
			text = fmt.Appendf(text, "%s=%s\n", s.Key, s.Value)
		}
	}
	return text
}
