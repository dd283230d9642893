package reference

import (
	"bytes"
	"flag"
	"io"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the documents anew")

// TestDocuments holds the generated documents to the code.
func TestDocuments(t *testing.T) {
	for path, write := range map[string]func(io.Writer){
		"../../docs/metrics.md": Metrics,
	} {
		var out bytes.Buffer
		write(&out)
		if *update {
			if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, out.Bytes()) {
			t.Errorf("%s is not what the code says; write it anew with: go test ./roles/reference -update", path)
		}
	}
}

// TestConventions holds every table to Prometheus' conventions, and names to one
// meaning.
func TestConventions(t *testing.T) {
	seen := map[string]string{}
	for _, s := range Sections {
		for _, fault := range s.Table.Faults() {
			t.Errorf("%s: %s", s.Title, fault)
		}
		for _, d := range s.Table.Defs {
			if other := seen[d.Name]; other != "" {
				t.Errorf("%s is in %s and in %s", d.Name, other, s.Title)
			}
			seen[d.Name] = s.Title
		}
	}
}
