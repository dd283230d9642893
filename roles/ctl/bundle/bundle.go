package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// partMost bounds one part of an archive, in bytes. Of a log the end is kept.
const partMost = 8 << 20

// Archive is an archive being written.
type Archive struct {
	folder string
	tar    *tar.Writer
	zip    *gzip.Writer
	now    time.Time
	failed bytes.Buffer
}

// New begins an archive whose parts are in one folder.
func New(w io.Writer, folder string, now time.Time) *Archive {
	zip := gzip.NewWriter(w)
	return &Archive{folder: folder, zip: zip, tar: tar.NewWriter(zip), now: now}
}

// Add adds a part, with whatever looks like a secret taken out.
func (a *Archive) Add(name string, text []byte) error {
	if n := len(text); n > partMost {
		text = append(fmt.Appendf(nil, "[%d bytes left out]\n", n-partMost), text[n-partMost:]...)
	}
	text = Redact(text)
	h := &tar.Header{Name: a.folder + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: a.now, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := a.tar.Write(text)
	return err
}

// AddJSON adds a part as JSON.
func (a *Archive) AddJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return a.Add(name, text)
}

// Try adds what get returns; that it can't be had is noted.
func (a *Archive) Try(name string, get func() ([]byte, error)) error {
	text, err := get()
	if err != nil {
		fmt.Fprintf(&a.failed, "%s: %v\n", name, err)
		return nil
	}
	return a.Add(name, text)
}

// TryJSON is Try for what becomes JSON.
func (a *Archive) TryJSON(name string, get func() (any, error)) error {
	return a.Try(name, func() ([]byte, error) {
		v, err := get()
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(v, "", "  ")
	})
}

// Close writes errors.txt and ends the archive.
func (a *Archive) Close() error {
	if a.failed.Len() == 0 {
		a.failed.WriteString("everything could be had\n")
	}
	return errors.Join(a.Add("errors.txt", a.failed.Bytes()), a.tar.Close(), a.zip.Close())
}

// Create writes an archive to a new file, readable by its owner only. What fill
// returns removes it again.
func Create(path, folder string, fill func(*Archive) error) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(path)
		}
	}()
	a := New(f, folder, time.Now())
	if err := fill(a); err != nil {
		return err
	}
	return a.Close()
}
