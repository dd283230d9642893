package api_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/deepcopy"
	"sigs.k8s.io/controller-tools/pkg/genall"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
)

var update = flag.Bool("update", false, "write the generated files anew")

const crdFolder = "../../manifests/crd"

// memory is where a generator's files go.
type memory map[string]*bytes.Buffer

func (m memory) Open(_ *loader.Package, path string) (io.WriteCloser, error) {
	m[path] = new(bytes.Buffer)
	return nopCloser{m[path]}, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func generate(t *testing.T, g genall.Generator) memory {
	t.Helper()
	roots, err := loader.LoadRoots(".")
	if err != nil {
		t.Fatal(err)
	}
	reg := &markers.Registry{}
	if err := g.RegisterMarkers(reg); err != nil {
		t.Fatal(err)
	}
	if err := crdmarkers.Register(reg); err != nil {
		t.Fatal(err)
	}
	out := memory{}
	ctx := &genall.GenerationContext{
		Collector:  &markers.Collector{Registry: reg},
		Roots:      roots,
		Checker:    &loader.TypeChecker{NodeFilters: []loader.NodeFilter{g.(genall.NeedsTypeChecking).CheckFilter()}},
		OutputRule: out,
	}
	if err := g.Generate(ctx); err != nil {
		t.Fatal(err)
	}
	// Types of other modules are not loaded, so they are missed in passing.
	if loader.PrintErrors(roots, packages.TypeError) {
		t.Fatal("the types do not parse")
	}
	return out
}

// TestGeneratedFilesAreCurrent keeps the CRD and the copying code equal to the
// types.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	no := false
	for folder, g := range map[string]genall.Generator{
		crdFolder: &crd.Generator{CRDVersions: []string{"v1"}, GenerateEmbeddedObjectMeta: &no},
		".":       &deepcopy.Generator{},
	} {
		files := generate(t, g)
		if len(files) != 1 {
			t.Errorf("%d files for %s, want 1", len(files), folder)
		}
		for name, b := range files {
			path := filepath.Join(folder, filepath.Base(name))
			if *update {
				if err := os.MkdirAll(folder, 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			have, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			} else if !bytes.Equal(have, b.Bytes()) {
				t.Errorf("%s is not what the types say; write it anew with: go test ./kube/api -update", path)
			}
		}
	}
}
