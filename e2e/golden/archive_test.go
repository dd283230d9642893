package golden

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// pack writes folders below dir to an archive.
func pack(t *testing.T, archive, dir string, folders ...string) {
	t.Helper()
	f, err := os.Create(archive)
	must(t, err)
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	must(t, err)
	w := tar.NewWriter(z)
	for _, folder := range folders {
		must(t, filepath.WalkDir(filepath.Join(dir, folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			return packFile(w, dir, path)
		}))
	}
	must(t, errors.Join(w.Close(), z.Close(), f.Close()))
}

func packFile(w *tar.Writer, dir, path string) error {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: rel, Mode: 0o600, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// unpack writes an archive's files below dir.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		if !filepath.IsLocal(h.Name) {
			t.Fatalf("archive has %q", h.Name)
		}
		path := filepath.Join(dir, h.Name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		must(t, err)
		n, err := io.Copy(out, r)
		must(t, errors.Join(err, out.Close()))
		if n != h.Size {
			must(t, fmt.Errorf("%s has %d bytes, not %d", h.Name, n, h.Size))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
