package tidy

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func mustParse(t *testing.T, text string) *source {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return &source{path: "p/p.go", pkg: "p", text: text, file: f, fset: fset}
}

const linesMost = 600

func TestFileSizes(t *testing.T) {
	for _, s := range sources(t) {
		if n := strings.Count(s.text, "\n"); n > linesMost && !s.test && !s.gen {
			t.Errorf("%s has %d lines, more than %d", s.path, n, linesMost)
		}
	}
}

// TestPackageDocs asks for a package comment, and for a doc.go in packages of
// more than two files.
func TestPackageDocs(t *testing.T) {
	files, comment, docGo := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		files[s.pkg]++
		comment[s.pkg] = comment[s.pkg] || s.file.Doc != nil
		docGo[s.pkg] = docGo[s.pkg] || s.file.Doc != nil && path.Base(s.path) == "doc.go"
	}
	for pkg, n := range files {
		switch {
		case !comment[pkg]:
			t.Errorf("package %s has no package comment", pkg)
		case n > 2 && !docGo[pkg]:
			t.Errorf("package %s has %d files and no doc.go", pkg, n)
		}
	}
}

// Places of somebody's machine have no business in a repository. The patterns
// are written so that they do not match themselves.
var machinePaths = regexp.MustCompile(`(^|[^\w.])(/` + `work/|/` + `home/\w|/` + `Users/\w|/` + `root/\w|/tmp/` + `brief)`)

func TestNoMachinePathsOrHosts(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	hostWord := regexp.MustCompile(`\b` + regexp.QuoteMeta(host) + `\b`)
	checkHost := len(host) >= 6 && host != "localhost"
	for _, name := range allFiles(t) {
		text := read(t, name)
		if !utf8.ValidString(text) || strings.HasPrefix(text, "\x7fELF") {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if m := machinePaths.FindString(line); m != "" {
				t.Errorf("%s:%d has a path of one machine: %q", name, i+1, m)
			}
			if checkHost && hostWord.MatchString(line) {
				t.Errorf("%s:%d has the name of this machine", name, i+1)
			}
		}
	}
}

// TestNoLeftovers refuses what was meant to be finished later.
func TestNoLeftovers(t *testing.T) {
	leftover := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	for _, s := range sources(t) {
		for _, g := range s.file.Comments {
			if m := leftover.FindString(g.Text()); m != "" {
				t.Errorf("%s: a comment has %s", s.fset.Position(g.Pos()), m)
			}
		}
	}
}
