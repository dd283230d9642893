package explain

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
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

// TestEveryReasonIsExplained compares the tables with the names that the
// resource's status uses.
func TestEveryReasonIsExplained(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../kube/api/reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]Where{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		lit, ok := v.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		switch name := v.Names[0].Name; {
		case strings.HasPrefix(name, "Condition"):
			wanted[string(Condition)+value] = Condition
		case strings.HasPrefix(name, "Reason"):
			wanted[string(Reason)+value] = Reason
		case strings.HasPrefix(name, "HostReason"):
			wanted[string(Host)+value] = Host
		}
		return true
	})
	if len(wanted) < 40 {
		t.Fatalf("only %d names found", len(wanted))
	}
	for _, e := range Entries() {
		if e.Where == Condition || e.Where == Reason || e.Where == Host {
			if _, ok := wanted[string(e.Where)+e.Name]; !ok {
				t.Errorf("%s (%s) is explained and nobody says it", e.Name, e.Where)
			}
		}
		delete(wanted, string(e.Where)+e.Name)
		if e.Meaning == "" {
			t.Errorf("%s has no meaning", e.Name)
		}
	}
	for name, where := range wanted {
		t.Errorf("%s is not explained", strings.Replace(name, string(where), string(where)+": ", 1))
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
