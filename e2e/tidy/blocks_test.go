package tidy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// typedBy says which test types a document's blocks of commands and objects. A block that none types begins with
// "# example".
var typedBy = map[string]struct{ test, pkg string }{
	"README.md":                   {"TestReadme", "e2e/dev"},
	"docs/user-guide.md":          {"TestGuides", "e2e/dev"},
	"docs/troubleshooting.md":     {"TestGuides", "e2e/dev"},
	"docs/replication.md":         {"TestGuides", "e2e/dev"},
	"docs/getting-started.md":     {"TestGettingStarted", "e2e/cluster"},
	"docs/administrator-guide.md": {"TestAdministratorGuide", "e2e/cluster"},
}

var (
	block = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	// command begins a line that somebody may want to type, or an object to apply.
	command = regexp.MustCompile(`(?m)^    (?:[A-Z_]+=\S+ )*(?:go|tak-replicated|kubectl|apt-get|sudo|\./?\S*|\$|apiVersion:)\s.*$`)
)

// TestBlocksAreTyped asks of each block of commands or objects in the documents that a test types it, or that it says that it
// is an example.
func TestBlocksAreTyped(t *testing.T) {
	typed := map[string]int{}
	for _, doc := range documents(t) {
		text := read(t, doc)
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			lang, body := m[1], m[2]
			switch {
			case lang == "": // a figure
				if command.MatchString("    " + strings.ReplaceAll(body, "\n", "\n    ")) {
					t.Errorf("%s has commands in a block without a language:\n%s", doc, body)
				}
			case lang != "sh" && lang != "yaml":
				t.Errorf("%s has a block of %s: only sh and yaml are known", doc, lang)
			case strings.HasPrefix(body, "# example"):
			case typedBy[doc].test == "":
				t.Errorf("%s has a block that no test types, and that does not begin with \"# example\":\n%s", doc, body)
			default:
				typed[doc]++
			}
		}
		for _, line := range command.FindAllString(block.ReplaceAllString(text, ""), -1) {
			t.Errorf("%s has a command outside a block: %s", doc, strings.TrimSpace(line))
		}
	}
	tests := testsByPackage(t)
	for doc, by := range typedBy {
		if typed[doc] == 0 {
			t.Errorf("%s has no block that %s could type", doc, by.test)
		}
		if !slices.Contains(tests[by.pkg], by.test) || !namesDocument(t, by.pkg, doc) {
			t.Errorf("%s: %s is not in %s, or nothing there names the document", doc, by.test, by.pkg)
		}
	}
}

// namesDocument reports whether tests of a package name a document.
func namesDocument(t *testing.T, pkg, doc string) bool {
	for _, s := range sources(t) {
		if s.test && s.pkg == pkg && strings.Contains(read(t, s.path), `"`+strings.TrimPrefix(doc, "docs/")+`"`) {
			return true
		}
	}
	return false
}

// TestAvailabilityNamesTests asks each cell of the tables of docs/availability.md for a test of what it says;
// TestDocumentsNameTestsThatExist asks that it is there.
func TestAvailabilityNamesTests(t *testing.T) {
	cells, inTable := 0, 0
	for line := range strings.Lines(read(t, "docs/availability.md")) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") {
			inTable = 0
			continue
		}
		if inTable++; inTable <= 2 { // heading and rule
			continue
		}
		claims := row[1:]
		if len(row) == 3 { // failure, what comes of it, test
			claims = row[2:]
		}
		for i, cell := range claims {
			cell = strings.TrimSpace(cell)
			if cell == "–" {
				continue
			}
			if cells++; !testName.MatchString(cell) {
				t.Errorf("%s: column %d names no test: %s", strings.TrimSpace(row[0]), i+2, cell)
			}
		}
	}
	if cells < 40 {
		t.Errorf("only %d cells were found", cells)
	}
}

// TestReplicationNamesTests asks each row of what docs/replication.md says is guaranteed, can be lost, or is uncertain for
// a test of it, or for the words that there is none.
func TestReplicationNamesTests(t *testing.T) {
	heading, rows := "", map[string]int{}
	inTable := 0
	for line := range strings.Lines(read(t, "docs/replication.md")) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.TrimSpace(name)
		}
		if !strings.HasPrefix(line, "|") {
			inTable = 0
			continue
		}
		if inTable++; inTable <= 2 { // heading and rule
			continue
		}
		rows[heading]++
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch claim := row[len(row)-1]; heading {
		case "What is guaranteed":
			if !testName.MatchString(claim) {
				t.Errorf("guaranteed without a test: %s", line)
			}
		case "What can be lost, and when", "Uncertain results":
			if !testName.MatchString(claim) && !strings.Contains(claim, "no test") {
				t.Errorf("%s: neither names a test nor says that there is none: %s", heading, line)
			}
		}
	}
	for heading, least := range map[string]int{"What is guaranteed": 10, "What can be lost, and when": 7, "Uncertain results": 5} {
		if rows[heading] < least {
			t.Errorf("%s: only %d rows were found", heading, rows[heading])
		}
	}
}
