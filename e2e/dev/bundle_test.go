package dev

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// TestSupportBundle plants names, contents and a key in a log, and looks for them,
// and for the credentials of the volume, in the archive.
func TestSupportBundle(t *testing.T) {
	addr := devtest.FreeAddr(t)
	d := devtest.Start(t, devtest.Options{Replicas: 2, Args: []string{"--metrics-addr", addr, "--log-level", "debug"}})
	const name, content, attr = "quarterly-figures-zebra", "contents-of-walrus", "user.okapi"
	mnt := d.Mounts[0]
	if err := os.Mkdir(filepath.Join(mnt, name+"-folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mnt, name+"-folder", name), content)
	if err := os.Symlink(name+"-target", filepath.Join(mnt, name+"-link")); err != nil {
		t.Fatal(err)
	}
	hidden := [][]byte{[]byte(name), []byte(content), []byte(attr), []byte("PRIVATE KEY")}
	var planted []byte
	err := filepath.WalkDir(filepath.Join(d.Dir, "trust"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		switch {
		case strings.HasSuffix(p, ".key"):
			block, _ := pem.Decode(text)
			if block == nil {
				return errors.New(p + " is not PEM")
			}
			hidden = append(hidden, []byte(base64.StdEncoding.EncodeToString(block.Bytes)[:40]))
			planted = append(planted, text...)
		case strings.Contains(filepath.Base(p), "token"):
			hidden = append(hidden, text[len(text)-40:len(text)-4])
			planted = append(append(planted, text...), '\n')
		}
		return nil
	})
	if err != nil || len(hidden) < 6 {
		t.Fatalf("%d secrets found, %v", len(hidden), err)
	}
	log := filepath.Join(t.TempDir(), "planted.log")
	write(t, log, d.Stderr()+"\n"+string(planted)+"the end\n")
	out := filepath.Join(t.TempDir(), "b.tar.gz")
	bundle := func() map[string][]byte {
		t.Helper()
		os.Remove(out)
		if code, said := run(t, "ctl", "support-bundle", "--dir", d.Dir, "--output", out, "--log", log, "--metrics", "http://"+addr+"/metrics"); code != 0 {
			t.Fatalf("exit code %d: %s", code, said)
		}
		return unpack(t, out)
	}
	running := bundle()
	d.Stop(t)
	ended := bundle()
	for _, parts := range []map[string][]byte{running, ended} {
		for part, text := range parts {
			for _, h := range hidden {
				if bytes.Contains(text, h) {
					t.Errorf("%s has %q", part, h)
				}
			}
		}
		if !bytes.Contains(parts["logs/planted.log"], []byte("the end")) || len(parts["version.txt"]) == 0 {
			t.Errorf("parts are missing: %s", parts["errors.txt"])
		}
	}
	if !bytes.Contains(running["status.json"], []byte(`"health": "healthy"`)) || !bytes.Contains(running["metrics/1.txt"], []byte("tak_replicated_replica_term")) {
		t.Errorf("status and metrics are missing: %s", running["errors.txt"])
	}
	if !bytes.Contains(ended["journal/replica-1.txt"], []byte("nothing is lost")) {
		t.Errorf("the journal's summary is missing: %s", ended["errors.txt"])
	}
}

// unpack reads an archive; names are without the folder.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string][]byte{}
	for tr := tar.NewReader(zip); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		parts[name] = text
	}
}
