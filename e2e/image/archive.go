package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Image is what goes into an archive.
type Image struct {
	Name       string // full name with tag
	Entrypoint []string
	Cmd        []string
	Labels     map[string]string // another label makes another digest
	Files      map[string]string // path in the image → file, or folder with all that is in it
}

// descriptor names a blob of the archive.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

const mediaTypes = "application/vnd.oci.image."

// Write writes the image's archive to file and returns its digest.
func (i Image) Write(file string) (digest string, err error) {
	layer, err := i.layer()
	if err != nil {
		return "", err
	}
	var zipped bytes.Buffer
	z, _ := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	if _, err := z.Write(layer); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	blobs := map[string][]byte{}
	add := func(kind string, b []byte) descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(b))
		blobs["blobs/sha256/"+sum] = b
		return descriptor{MediaType: mediaTypes + kind, Digest: "sha256:" + sum, Size: len(b)}
	}
	config := add("config.v1+json", mustJSON(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Entrypoint": i.Entrypoint, "Cmd": i.Cmd, "Labels": i.Labels,
			"Env": []string{"PATH=/usr/bin:/bin"}, "WorkingDir": "/",
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	}))
	manifest := add("manifest.v1+json", mustJSON(map[string]any{
		"schemaVersion": 2, "mediaType": mediaTypes + "manifest.v1+json",
		"config": config, "layers": []descriptor{add("layer.v1.tar+gzip", zipped.Bytes())},
	}))
	_, tag, _ := strings.Cut(path.Base(i.Name), ":")
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": tag}
	manifest.Platform = &platform{runtime.GOARCH, "linux"}
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	blobs["index.json"] = mustJSON(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	return manifest.Digest, writeArchive(file, blobs)
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func writeArchive(file string, blobs map[string][]byte) error {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range sorted(blobs) {
		if err := addFile(w, name, 0o644, blobs[name]); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", out.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func addFile(w *tar.Writer, name string, mode int64, b []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// layer is the image's one layer: equal files give equal bytes.
func (i Image) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{"/": true}
	var parents func(dir string) error
	parents = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := parents(path.Dir(dir)); err != nil {
			return err
		}
		mode := int64(0o755)
		if dir == "/tmp" {
			mode = 0o1777
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: mode})
	}
	if err := parents("/tmp"); err != nil {
		return nil, err
	}
	for _, to := range sorted(i.Files) {
		from := i.Files[to]
		err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(from, p)
			if err != nil {
				return err
			}
			at := path.Join("/", to, filepath.ToSlash(rel))
			if err := parents(path.Dir(at)); err != nil {
				return err
			}
			if d.Type()&fs.ModeSymlink != 0 {
				link, err := os.Readlink(p)
				if err != nil {
					return err
				}
				return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: at[1:], Linkname: link, Mode: 0o777})
			}
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			return addFile(w, at[1:], 0o755, b)
		})
		if err != nil {
			return nil, fmt.Errorf("image %s, %s: %w", i.Name, to, err)
		}
	}
	return out.Bytes(), w.Close()
}
