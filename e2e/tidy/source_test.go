package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

const module = "tak-os.org/tak-replicated"

// source is one Go file of the repository.
type source struct {
	path string // from the repository's root
	pkg  string // its folder; "." is the root
	test bool
	gen  bool
	text string
	file *ast.File
	fset *token.FileSet
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// root is the repository's root as seen from this package.
const root = "../.."

// files lists the repository's files, without what Git keeps for itself.
var files = sync.OnceValues(func() ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || nestedModule(p)) {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() && d.Name() != ".git" { // a worktree has a file of that name
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
})

// nestedModule tells of a folder of other people's programs: it has a go.mod of its own and
// answers to no rule of ours.
func nestedModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil && filepath.Clean(dir) != filepath.Clean(root)
}

var parsed = sync.OnceValues(func() ([]source, error) {
	names, err := files()
	if err != nil {
		return nil, err
	}
	var all []source
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, source{
			path: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			gen: generated.Match(text), text: string(text), file: f, fset: fset,
		})
	}
	return all, nil
})

// sources returns every Go file, parsed.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d Go files; is %s the repository?", len(all), root)
	}
	return all
}

func allFiles(t *testing.T) []string {
	t.Helper()
	names, err := files()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// imports returns the paths that the file imports.
func (s *source) imports() []string {
	var paths []string
	for _, i := range s.file.Imports {
		paths = append(paths, strings.Trim(i.Path.Value, `"`))
	}
	return paths
}

// within reports whether p is pkg or lies below it.
func within(p, pkg string) bool { return p == pkg || strings.HasPrefix(p, pkg+"/") }

func withinAny(p string, pkgs []string) bool {
	for _, pkg := range pkgs {
		if within(p, pkg) {
			return true
		}
	}
	return false
}
