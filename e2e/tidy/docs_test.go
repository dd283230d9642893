package tidy

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var testName = regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w*\b`)

// testsByPackage lists test, fuzz and benchmark functions by folder.
func testsByPackage(t *testing.T) map[string][]string {
	tests := map[string][]string{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for _, name := range functions(&s) {
			if testName.MatchString(name) {
				tests[s.pkg] = append(tests[s.pkg], name)
			}
		}
	}
	return tests
}

func documents(t *testing.T) []string {
	var docs []string
	for _, name := range allFiles(t) {
		if strings.HasSuffix(name, ".md") && !strings.Contains(name, "testdata/") {
			docs = append(docs, name)
		}
	}
	for _, want := range []string{"README.md", "docs/architecture.md", "docs/dependencies.md"} {
		if !slices.Contains(docs, want) {
			t.Errorf("%s is missing", want)
		}
	}
	return docs
}

// TestDocumentsNameTestsThatExist keeps claims about tests true.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	exists := map[string]bool{}
	for _, names := range testsByPackage(t) {
		for _, n := range names {
			exists[n] = true
		}
	}
	for _, doc := range documents(t) {
		for _, n := range testName.FindAllString(read(t, doc), -1) {
			if !exists[n] {
				t.Errorf("%s names %s, which does not exist", doc, n)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// TestDocumentsLinkToFilesThatExist follows links inside the repository.
func TestDocumentsLinkToFilesThatExist(t *testing.T) {
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, m[1])
			}
		}
	}
}

var required = regexp.MustCompile(`(?m)^\s*(?:require )?([a-z0-9.]+\.[a-z]+/\S+) (v\S+)`)

// TestDependenciesAreExplained asks for one row of docs/dependencies.md for
// each module whose packages this module imports, at the version in use.
func TestDependenciesAreExplained(t *testing.T) {
	versions := map[string]string{}
	for _, m := range required.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		versions[m[1]] = m[2]
	}
	direct := map[string]bool{}
	for _, s := range sources(t) {
		for _, imp := range s.imports() {
			if mod := moduleOf(imp, versions); mod != "" {
				direct[mod] = true
			}
		}
	}
	rows := map[string][]string{}
	for line := range strings.Lines(read(t, "docs/dependencies.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		if _, ok := versions[cells[0]]; ok {
			rows[cells[0]] = cells
		}
	}
	for mod := range direct {
		if fault := rowFault(rows[mod], versions[mod]); fault != "" {
			t.Errorf("docs/dependencies.md, %s: %s", mod, fault)
		}
	}
	for mod := range rows {
		if !direct[mod] {
			t.Errorf("docs/dependencies.md explains %s, which nothing imports", mod)
		}
	}
}

var date = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}`)

// rowFault checks a row: module, version, released, licence, why.
func rowFault(row []string, version string) string {
	switch {
	case row == nil:
		return "no row"
	case len(row) != 5:
		return fmt.Sprintf("has %d columns, not 5", len(row))
	case row[1] != version:
		return fmt.Sprintf("has version %s, in use is %s", row[1], version)
	case !date.MatchString(row[2]):
		return fmt.Sprintf("release %q does not begin with a date", row[2])
	case row[3] == "" || row[4] == "":
		return "licence or reason is empty"
	}
	return ""
}

// moduleOf returns the module that has the package, "" for the standard
// library and this module.
func moduleOf(pkg string, versions map[string]string) string {
	best := ""
	for mod := range versions {
		if within(pkg, mod) && len(mod) > len(best) {
			best = mod
		}
	}
	return best
}
