package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestArchive reads back what was written, as a container runtime would.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree", "usr", "bin")
	if err := errors.Join(os.MkdirAll(tree, 0o755), os.WriteFile(filepath.Join(tree, "tool"), []byte("program"), 0o600),
		os.Symlink("tool", filepath.Join(tree, "alias"))); err != nil {
		t.Fatal(err)
	}
	i := Image{Name: "example.org/a:1", Entrypoint: []string{"/usr/bin/tool"}, Labels: map[string]string{"build": "a"}, Files: map[string]string{"/": filepath.Join(dir, "tree")}}
	file := filepath.Join(dir, "a.tar")
	digest, err := i.Write(file)
	if err != nil {
		t.Fatal(err)
	}
	blobs := untar(t, file)
	var index struct{ Manifests []descriptor }
	mustParse(t, blobs["index.json"], &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Digest != digest || index.Manifests[0].Annotations["io.containerd.image.name"] != i.Name {
		t.Fatalf("index %s", blobs["index.json"])
	}
	blob := func(digest string) []byte { return blobs["blobs/sha256/"+digest[len("sha256:"):]] }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	mustParse(t, blob(digest), &manifest)
	var config struct{ Config struct{ Entrypoint []string } }
	mustParse(t, blob(manifest.Config.Digest), &config)
	if len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/usr/bin/tool" {
		t.Errorf("entrypoint %v", config.Config.Entrypoint)
	}
	z, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0].Digest)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(b) + h.Linkname
	}
	if found["usr/bin/tool"] != "program" || found["usr/bin/alias"] != "tool" || len(found) != 5 {
		t.Errorf("layer has %v", found)
	}

	again, err := i.Write(file)
	if err != nil || again != digest {
		t.Errorf("equal files: digests %s and %s, %v", digest, again, err)
	}
	i.Labels["build"] = "b"
	if other, err := i.Write(file); err != nil || other == digest {
		t.Errorf("another label: digest %s, %v", other, err)
	}
}

func mustParse(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v: %q", err, b)
	}
}

func untar(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
