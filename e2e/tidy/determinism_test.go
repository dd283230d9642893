package tidy

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// deterministic lists the packages that the simulation runs: their clock,
// disk, network and randomness come in from outside.
var deterministic = []struct {
	pkg    string
	except []string // packages below it that touch the machine
	pure   bool     // no goroutines and no select either
}{
	{pkg: "raftlog", except: []string{"raftlog/transport", "raftlog/wallclock"}},
	{pkg: "fusefs/tree", except: []string{"fusefs/tree/export", "fusefs/tree/store", "fusefs/tree/treetest"}, pure: true},
	{pkg: "fusefs/tree/store"},
	{pkg: "fusefs/coord"},
	{pkg: "fusefs/client"},
	{pkg: "fusefs/fsop", pure: true},
}

// machineFiles are the single files inside those packages that are a door to
// the machine.
var machineFiles = map[string]bool{
	"raftlog/disk/os.go": true,
}

// bannedImports may not be imported at all; bannedCalls names functions of
// packages that are otherwise allowed.
var (
	bannedImports = []string{"os", "os/exec", "net", "math/rand", "math/rand/v2", "crypto/rand", "syscall", "golang.org/x/sys/unix"}
	bannedCalls   = map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	}
	// constantsOnly may be imported for their constants and types.
	constantsOnly = []string{"syscall"}
)

func TestDeterminism(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || machineFiles[s.path] {
			continue
		}
		for _, d := range deterministic {
			if within(s.pkg, d.pkg) && !withinAny(s.pkg, d.except) {
				for _, fault := range faults(&s, d.pure) {
					t.Errorf("%s: %s", s.path, fault)
				}
			}
		}
	}
}

func faults(s *source, pure bool) []string {
	var found []string
	names := map[string]string{} // local name → import path
	for _, i := range s.file.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = p
		if slices.Contains(bannedImports, p) && !slices.Contains(constantsOnly, p) {
			found = append(found, "imports "+p)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(bannedCalls[names[x.Name]], n.Sel.Name) {
				found = append(found, "uses "+names[x.Name]+"."+n.Sel.Name)
			}
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(constantsOnly, names[x.Name]) && sel.Sel.Name != "Errno" {
				found = append(found, "calls "+names[x.Name]+"."+sel.Sel.Name)
			}
		case *ast.GoStmt:
			if pure {
				found = append(found, "starts a goroutine")
			}
		case *ast.SelectStmt:
			if pure {
				found = append(found, "selects")
			}
		}
		return true
	})
	return found
}

func TestFaults(t *testing.T) {
	src := `package p
import ("os"; clock "time"; "syscall")
var e = syscall.Errno(syscall.EIO)
func f() { clock.Now(); go f(); select {}; syscall.Getpid(); _ = clock.Second; _ = os.Args }`
	s := mustParse(t, src)
	want := []string{"imports os", "uses time.Now", "starts a goroutine", "selects", "calls syscall.Getpid"}
	if got := faults(s, true); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want = []string{"imports os", "uses time.Now", "calls syscall.Getpid"}
	if got := faults(s, false); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
