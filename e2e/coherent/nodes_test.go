package coherent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"tak-os.org/tak-replicated/e2e/devtest"
)

// TestNodes holds two mounts to what programs on different nodes count on.
func TestNodes(t *testing.T) {
	d := devtest.Start(t, devtest.Options{Mounts: 2, Processes: true})
	for name, test := range map[string]func(t *testing.T, here, there string){
		"a file that grows beside writes to it": grows,
		"appends from both":                     appends,
		"size after the other's close":          sizes,
		"replaced while it is opened":           replaced,
		"one winner":                            oneWinner,
	} {
		t.Run(name, func(t *testing.T) { test(t, d.Mounts[0], d.Mounts[1]) })
	}
}

// grows extends a file here record by record. There, one client keeps writing to
// the file's first page; others must see at least what was written before they
// began to read.
func grows(t *testing.T, here, there string) {
	const start = 8192
	if err := os.WriteFile(filepath.Join(here, "grows"), make([]byte, start), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var written atomic.Uint64
	group, ctx := errgroup.WithContext(ctx)
	with := func(mount string, work func(f *os.File) error) {
		group.Go(func() error {
			f, err := os.OpenFile(filepath.Join(mount, "grows"), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			for ctx.Err() == nil {
				if err := work(f); err != nil {
					return err
				}
			}
			return nil
		})
	}
	with(here, func(f *os.File) error {
		n := written.Load()
		_, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, n), start+int64(8*n))
		written.Add(1)
		return err
	})
	with(there, func(f *os.File) error {
		_, err := f.WriteAt([]byte("beside"), 100)
		return err
	})
	for range 2 {
		with(there, func(f *os.File) error {
			from := written.Load()
			from -= min(from, 8)
			before := written.Load()
			got, err := io.ReadAll(io.NewSectionReader(f, start+int64(8*from), 4096))
			if err != nil {
				return err
			}
			if n := from + uint64(len(got)/8); n < before {
				return fmt.Errorf("%d records seen after %d were written", n, before)
			}
			for i := 0; i+8 <= len(got); i += 8 {
				if v := binary.NativeEndian.Uint64(got[i:]); v != from+uint64(i/8) {
					return fmt.Errorf("record %d is %d", from+uint64(i/8), v)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d records", written.Load())
}

// appends lets four writers on each mount append records of their own to one file.
func appends(t *testing.T, here, there string) {
	const writers, records, size = 8, 60, 100
	record := func(w, i int) []byte {
		b := bytes.Repeat([]byte{'.'}, size)
		copy(b, fmt.Sprintf("%d:%d;", w, i))
		b[size-1] = '\n'
		return b
	}
	var group errgroup.Group
	for w := range writers {
		group.Go(func() error {
			f, err := os.OpenFile(filepath.Join([]string{here, there}[w%2], "appends"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			defer f.Close()
			for i := range records {
				if _, err := f.Write(record(w, i)); err != nil {
					return err
				}
			}
			return f.Sync()
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{here, there} {
		got, err := os.ReadFile(filepath.Join(m, "appends"))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != writers*records*size {
			t.Fatalf("%d bytes of %d records", len(got), writers*records)
		}
		var next [writers]int
		for ; len(got) > 0; got = got[size:] {
			var w, i int
			if _, err := fmt.Sscanf(string(got[:size]), "%d:%d;", &w, &i); err != nil || w >= writers || !bytes.Equal(got[:size], record(w, next[w])) {
				t.Fatalf("a record is %q", got[:size])
			}
			next[w]++
		}
	}
}

// sizes looks at a file's size there after each append and close here, by name and
// through a descriptor that stays open.
func sizes(t *testing.T, here, there string) {
	path := filepath.Join(here, "sizes")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(there, "sizes"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for i := range 1000 {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(there, "sizes"))
		if err != nil || st.Size() != int64(i+1) {
			t.Fatalf("round %d: stat: %d bytes, %v", i, st.Size(), err)
		}
		var b [1]byte
		if _, err := open.ReadAt(b[:], int64(i)); err != nil || b[0] != byte(i) {
			t.Fatalf("round %d: read %d, %v", i, b[0], err)
		}
	}
}

// replaced renames new contents over a file here, which is opened and read there
// all the time: it is always one of them, whole, and never older than one seen.
func replaced(t *testing.T, here, there string) {
	name, tmp := filepath.Join(here, "replaced"), filepath.Join(here, "replaced.tmp")
	content := func(n uint64) []byte { return bytes.Repeat(binary.NativeEndian.AppendUint64(nil, n), 1500) }
	if err := os.WriteFile(name, content(0), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	var done atomic.Uint64
	group.Go(func() error {
		for n := uint64(1); ctx.Err() == nil; n++ {
			if err := os.WriteFile(tmp, content(n), 0o644); err != nil {
				return err
			}
			if err := os.Rename(tmp, name); err != nil {
				return err
			}
			done.Store(n)
		}
		return nil
	})
	for range 3 {
		group.Go(func() error {
			for ctx.Err() == nil {
				before := done.Load()
				got, err := os.ReadFile(filepath.Join(there, "replaced"))
				if err != nil {
					return err
				}
				if len(got) < 8 {
					return fmt.Errorf("%d bytes read after version %d", len(got), before)
				}
				if n := binary.NativeEndian.Uint64(got); n < before || !bytes.Equal(got, content(n)) {
					return fmt.Errorf("version %d, %d bytes, whole %v, read after version %d", n, len(got), bytes.Equal(got, content(n)), before)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d versions", done.Load())
}

// oneWinner lets clients on both mounts create the same file and make the same
// directory.
func oneWinner(t *testing.T, here, there string) {
	for i := range 100 {
		for kind, create := range map[string]func(path string) error{
			"file": func(path string) error {
				f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
				if err != nil {
					return err
				}
				return f.Close()
			},
			"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		} {
			var won, lost atomic.Int32
			var wg sync.WaitGroup
			for c := range 4 {
				path := filepath.Join([]string{here, there}[c%2], fmt.Sprintf("%s%d", kind, i))
				wg.Go(func() {
					switch err := create(path); {
					case err == nil:
						won.Add(1)
					case errors.Is(err, fs.ErrExist):
						lost.Add(1)
					default:
						t.Errorf("%s %d: %v", kind, i, err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 || lost.Load() != 3 {
				t.Fatalf("%s %d: %d won, %d lost", kind, i, won.Load(), lost.Load())
			}
		}
	}
}
