package golden

import (
	"bytes"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/e2e/volumetest"
	"tak-os.org/tak-replicated/fusefs/fsop"
)

var writeFlag = flag.String("golden.write", "", "write a directory of this name, as this program writes it")

// files are what every directory holds.
func files() map[string][]byte {
	all := map[string][]byte{"empty": {}}
	for i := range 20 {
		all[fmt.Sprint("small-", i)] = []byte(strings.Repeat("small ", i+1))
	}
	for i := range 4 {
		p := make([]byte, 60_000+i)
		for j := range p {
			p[j] = byte(j>>8) ^ byte(i)
		}
		all[fmt.Sprint("large-", i)] = p
	}
	return all
}

func volume(t *testing.T, name string) *volumetest.Volume {
	return volumetest.New(t, volumetest.Options{Name: "golden-" + name, CheckpointBytes: 256 << 10})
}

// TestWriteGolden writes a directory when it is asked to.
func TestWriteGolden(t *testing.T) {
	if *writeFlag == "" {
		t.Skip("nothing to write: -golden.write is not given")
	}
	v := volume(t, *writeFlag)
	v.StartAll()
	c := v.Client(20 * time.Second)
	for name, data := range files() {
		c.Write(name, data)
	}
	ino := c.File("small-3")
	c.Must(&fsop.SetXattr{Ino: ino, Name: []byte("user.golden"), Value: []byte("value")})
	c.Must(&fsop.Link{Ino: ino, Parent: fsop.Root, Name: []byte("linked")})
	c.Must(&fsop.Create{Parent: fsop.Root, Name: []byte("symbolic"), Mode: fsop.TypeLink | 0o777, Target: []byte("small-3")})
	for n := range v.Members {
		must(t, v.CaughtUp(n+1))
	}
	v.StopAll()
	pack(t, filepath.Join("testdata", *writeFlag+".tar.gz"), v.Dir, "replica-1", "replica-2", "replica-3", "records")
}

// TestGolden goes on with each directory: everything is there, the replicas
// agree, and serve a load with what they write themselves (C9).
func TestGolden(t *testing.T) {
	all, err := filepath.Glob("testdata/*.tar.gz")
	must(t, err)
	if len(all) == 0 {
		t.Fatal("no directories in testdata")
	}
	for _, archive := range all {
		name := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
		t.Run(name, func(t *testing.T) {
			v := volume(t, name)
			unpack(t, archive, v.Dir)
			for n := range v.Members {
				v.Known(n + 1)
			}
			v.StartAll()
			c := v.Client(20 * time.Second)
			check(t, c)
			for i := range 40 {
				c.Write(fmt.Sprint("new-", i%5), bytes.Repeat([]byte{byte(i)}, 50_000))
			}
			for n := range v.Members {
				must(t, v.CaughtUp(n+1))
				must(t, v.Scrubbed(n+1))
			}
			for n := range v.Members {
				if s := v.Running(n + 1).Report().Scrub; s.Differs+s.Found > 0 {
					t.Errorf("replica %d: %+v", n+1, s)
				}
			}
			// And once more from what the present program has written.
			v.StopAll()
			v.StartAll()
			check(t, c)
		})
	}
}

func check(t *testing.T, c *volumetest.Client) {
	t.Helper()
	for name, want := range files() {
		if got, err := c.Read(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
		}
	}
	ino := c.File("small-3")
	if r := c.Must(&fsop.GetXattr{Ino: ino, Name: []byte("user.golden")}); string(r.Data) != "value" {
		t.Errorf("xattr is %q", r.Data)
	}
	if r := c.Must(&fsop.Lookup{Parent: fsop.Root, Name: []byte("linked")}); r.Attrs[0].Ino != ino || r.Attrs[0].Nlink != 2 {
		t.Errorf("linked is %+v", r.Attrs[0])
	}
	r := c.Must(&fsop.Lookup{Parent: fsop.Root, Name: []byte("symbolic")})
	if r := c.Must(&fsop.ReadLink{Ino: r.Attrs[0].Ino}); string(r.Data) != "small-3" {
		t.Errorf("target is %q", r.Data)
	}
}
