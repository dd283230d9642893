package explain

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"tak-os.org/tak-replicated/fusefs/fsop"
)

var update = flag.Bool("update", false, "write docs/runbook.md anew")

// TestRunbook holds docs/runbook.md to the tables.
func TestRunbook(t *testing.T) {
	const path = "../../../docs/runbook.md"
	var out bytes.Buffer
	Runbook(&out)
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, out.Bytes()) {
		t.Error("docs/runbook.md is not what the tables say; run go test ./roles/ctl/explain -update")
	}
}

// TestEveryReasonIsExplained compares the tables with the names that the code says.
func TestEveryReasonIsExplained(t *testing.T) {
	wanted := map[string]string{} // place and name: where it is said
	for _, s := range said(t) {
		wanted[string(s.place)+": "+s.name] = s.where
	}
	if len(wanted) < 80 {
		t.Fatalf("only %d names found", len(wanted))
	}
	for _, e := range Entries() {
		name := string(e.Where) + ": " + e.Name
		if e.Where == Condition || e.Where == Reason || e.Where == Host {
			if wanted[name] == "" {
				t.Errorf("%s is explained and nobody says it", name)
			}
		}
		delete(wanted, name)
		if e.Meaning == "" {
			t.Errorf("%s has no meaning", name)
		}
	}
	for name, where := range wanted {
		t.Errorf("%s is not explained, and said in %s", name, where)
	}
}

// ordinary are the outcomes that are the application's own doing on any filesystem,
// or that no application sees.
var ordinary = strings.Fields("EPERM ENOENT ENXIO EAGAIN EBADF EACCES EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL EFBIG EROFS EMLINK ERANGE EDEADLK " +
	"ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP ENODATA EOVERFLOW E2BIG ENOTTY")

// TestEveryErrnoIsExplained: whoever adds an outcome says whether it needs a word.
func TestEveryErrnoIsExplained(t *testing.T) {
	known := slices.Clone(ordinary)
	for _, e := range Entries() {
		if e.Where == Errno {
			known = append(known, e.Name)
		}
	}
	found := 0
	for _, path := range []string{"../../../fusefs/fsop/errno.go", "../../../fusefs/kernel/errno.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !strings.HasPrefix(sel.Sel.Name, "E") || sel.Sel.Name != strings.ToUpper(sel.Sel.Name) {
				return true
			}
			found++
			if !slices.Contains(known, sel.Sel.Name) {
				t.Errorf("%s is neither explained nor ordinary", sel.Sel.Name)
			}
			return true
		})
	}
	if found < 30 {
		t.Errorf("only %d outcomes found", found)
	}
}

// TestEveryFailureIsExplained goes through the failures that cross the wire.
func TestEveryFailureIsExplained(t *testing.T) {
	for c := fsop.Code(1); !strings.HasPrefix(c.String(), "failure "); c++ {
		if !slices.ContainsFunc(Find(c.String()), func(e Entry) bool { return e.Where == Failure }) {
			t.Errorf("%q is not explained", c)
		}
	}
}

func TestFind(t *testing.T) {
	if got := Find("noquorum"); len(got) != 1 || got[0].Name != "NoQuorum" {
		t.Errorf("%+v", got)
	}
	if got := Find("ReplicaStateLost"); len(got) != 2 {
		t.Errorf("%d entries for what is said in two places", len(got))
	}
	if got := Near("quorum"); len(got) < 2 {
		t.Errorf("%q", got)
	}
}
