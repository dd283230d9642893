package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Names in a trust directory. A certificate is ROLE.crt, its key ROLE.key.
const (
	fileCACert = "ca.crt"
	fileCAKey  = "ca.key"
	fileToken  = "token"
)

// Files is what a trust directory needs of a file system.
type Files interface {
	// Read returns a file's content, or an error that is fs.ErrNotExist.
	Read(name string) ([]byte, error)
	// Write replaces a file atomically and durably, readable by its owner only.
	Write(name string, data []byte) error
}

// Dir is a trust directory: the credentials of the holders that read it, and
// with ca.key those of the authority too. It keeps nothing in memory.
type Dir struct {
	files Files
	now   func() time.Time
}

// OpenDir returns the trust directory in files. It reads nothing yet.
func OpenDir(files Files, now func() time.Time) *Dir {
	return &Dir{files: files, now: now}
}

// Load returns a function that reads the bundle of the given role, as
// NewCredentials wants it.
func (d *Dir) Load(role Role) func() (Bundle, error) {
	return func() (Bundle, error) {
		var b Bundle
		var err error
		if b.CA, err = d.files.Read(fileCACert); err != nil {
			return b, err
		}
		if b.Pair, err = d.readPair(string(role)+".crt", string(role)+".key"); err != nil {
			return b, err
		}
		token, err := d.files.Read(fileToken)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return b, err
		}
		b.Token = string(token)
		return b, nil
	}
}

// CA opens the authority, if the directory holds its key.
func (d *Dir) CA() (*CA, error) {
	pair, err := d.readPair(fileCACert, fileCAKey)
	if err != nil {
		return nil, err
	}
	return LoadCA(pair, d.now)
}

// EnsureCA opens the volume's authority, or makes one where there is none.
func (d *Dir) EnsureCA(volume string) (*CA, error) {
	ca, err := d.CA()
	if errors.Is(err, fs.ErrNotExist) {
		if ca, err = NewCA(volume, d.now); err != nil {
			return nil, err
		}
		pair := ca.KeyPair()
		// The key goes last: with a certificate alone the authority does not
		// exist yet, and is made again.
		return ca, d.writePair(fileCACert, fileCAKey, pair)
	}
	if err != nil {
		return nil, err
	}
	if ca.Volume() != volume {
		return nil, fmt.Errorf("open authority of %s: %w: found %s", volume, ErrOtherVolume, ca.Volume())
	}
	return ca, nil
}

// Holder says which credentials a trust directory should hold.
type Holder struct {
	Role Role
	Name string
	// Hosts are the names of a server; no other role has any.
	Hosts []string
	// Token asks for a bearer token too.
	Token bool
}

// Renew makes sure that the directory holds usable credentials for h, signed
// by ca, and replaces those that are past half of their life, damaged, or of
// another identity. It reports whether it wrote anything.
func (d *Dir) Renew(ca *CA, h Holder) (bool, error) {
	wroteCA, err := d.putCA(ca)
	if err != nil {
		return false, err
	}
	wroteLeaf, err := d.renewLeaf(ca, h)
	if err != nil || !h.Token {
		return wroteCA || wroteLeaf, err
	}
	wroteToken, err := d.renewToken(ca)
	return wroteCA || wroteLeaf || wroteToken, err
}

func (d *Dir) putCA(ca *CA) (bool, error) {
	have, err := d.files.Read(fileCACert)
	if err == nil && string(have) == string(ca.pair.Cert) {
		return false, nil
	}
	return true, d.files.Write(fileCACert, ca.pair.Cert)
}

func (d *Dir) renewLeaf(ca *CA, h Holder) (bool, error) {
	want := Identity{Volume: ca.volume, Role: h.Role, Name: h.Name}
	if b, err := d.Load(h.Role)(); err == nil && d.leafFresh(b, want, h.Hosts) {
		return false, nil
	}
	pair, err := ca.issue(h.Role, h.Name, h.Hosts)
	if err != nil {
		return false, err
	}
	return true, d.writePair(string(h.Role)+".crt", string(h.Role)+".key", pair)
}

func (d *Dir) leafFresh(b Bundle, want Identity, hosts []string) bool {
	b.Token = ""
	m, err := newMaterial(b, d.now())
	if err != nil || m.identity != want || d.now().After(halfLife(m.leaf.NotBefore, m.leaf.NotAfter)) {
		return false
	}
	for _, h := range hosts {
		if m.leaf.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

func (d *Dir) renewToken(ca *CA) (bool, error) {
	have, err := d.files.Read(fileToken)
	if err == nil {
		authorities, _ := parseCerts(ca.pair.Cert)
		tok, err := verifyToken(string(have), ca.volume, authorities, d.now())
		if err == nil && d.now().Before(tok.RenewAt()) {
			return false, nil
		}
	}
	text, err := ca.IssueToken()
	if err != nil {
		return false, err
	}
	return true, d.files.Write(fileToken, []byte(text))
}

func (d *Dir) readPair(cert, key string) (KeyPair, error) {
	var p KeyPair
	var err error
	if p.Cert, err = d.files.Read(cert); err != nil {
		return p, err
	}
	p.Key, err = d.files.Read(key)
	return p, err
}

func (d *Dir) writePair(cert, key string, p KeyPair) error {
	if err := d.files.Write(cert, p.Cert); err != nil {
		return err
	}
	return d.files.Write(key, p.Key)
}

// OSFiles are the files in one directory of the machine. The directory is
// made, for its owner only, by the first Write.
type OSFiles string

var _ Files = OSFiles("")

// Read implements Files.
func (dir OSFiles) Read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(dir), name))
}

// Write implements Files: a temporary file, synced, then renamed.
func (dir OSFiles) Write(name string, data []byte) error {
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return err
	}
	// CreateTemp makes the file with mode 0600.
	f, err := os.CreateTemp(string(dir), ".new-"+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the rename there is nothing left of it
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(string(dir), name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return syncDir(string(dir))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
