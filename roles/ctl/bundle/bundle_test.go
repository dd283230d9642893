package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/raftlog/transport/pki"
)

// contents reads an archive.
func contents(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
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
		parts[h.Name] = string(text)
	}
}

// TestRedact plants credentials in a log.
func TestRedact(t *testing.T) {
	ca, err := pki.NewCA("pvc-0d4f4c2e-8f6b-4a51-9d6e-3c9d9c3f1c11", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	token, err := ca.IssueToken()
	if err != nil {
		t.Fatal(err)
	}
	key := "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBkg4LVWM9nuwNSk3yByxZpYRTBnVJk8\n-----END EC PRIVATE KEY-----"
	for name, c := range map[string]struct{ line, secret string }{
		"key":          {"before " + key + " after", "MHcCAQEEIBkg"},
		"half a key":   {"before " + key[:60], "MHcCAQEEIBkg"},
		"encoded key":  {`tls.key: LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0t`, "FQyBQUklW"},
		"API token":    {"Authorization eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl end", "c2lnbmF0dXJl"},
		"volume token": {`msg="refused" what=` + token, token[len(token)-40:]},
		"password":     {`password: hunter2hunter2hunter2`, "hunter2"},
	} {
		if got := string(Redact([]byte(c.line))); strings.Contains(got, c.secret) || !strings.Contains(got, removed) {
			t.Errorf("%s: left %q", name, got)
		}
	}
	for _, fine := range []string{
		`{"volume":"pvc-0d4f4c2e-8f6b-4a51-9d6e-3c9d9c3f1c11","replica":"pvc-0d4f4c2e-8f6b-4a51-9d6e-3c9d9c3f1c11-r1","term":7}`,
		"/var/lib/kubelet/pods/0d4f4c2e-8f6b-4a51-9d6e-3c9d9c3f1c11/volumes/kubernetes.io~csi/data/mount is busy",
		"tak_replicated_replica_journal_write_duration_seconds_bucket{le=\"0.001\"} 12",
	} {
		if got := string(Redact([]byte(fine))); got != fine {
			t.Errorf("%q became %q", fine, got)
		}
	}
}

func TestArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	err := Create(path, "f", func(a *Archive) error {
		return errors.Join(
			a.AddJSON("a.json", map[string]int{"n": 1}), a.Add("long", bytes.Repeat([]byte("line\n"), partMost/4)),
			a.Try("gone", func() ([]byte, error) { return nil, errors.New("not there") }))
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if fi, _ := f.Stat(); fi.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v", fi.Mode())
	}
	parts := contents(t, f)
	if len(parts) != 3 || parts["f/errors.txt"] != "gone: not there\n" || !strings.Contains(parts["f/a.json"], `"n": 1`) {
		t.Errorf("parts %v, %q", len(parts), parts["f/errors.txt"])
	}
	if long := parts["f/long"]; len(long) > partMost+100 || !strings.HasPrefix(long, "[") {
		t.Errorf("the long part has %d bytes", len(long))
	}
	if err := Create(path, "f", func(*Archive) error { return nil }); !errors.Is(err, os.ErrExist) {
		t.Errorf("over another file: %v", err)
	}
	bad := errors.New("bad")
	if err := Create(path+"2", "f", func(*Archive) error { return bad }); !errors.Is(err, bad) {
		t.Error(err)
	}
	if _, err := os.Stat(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Error("what failed is left behind")
	}
}
