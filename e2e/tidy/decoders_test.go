package tidy

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A decoder is a function whose name begins with decode, parse or unmarshal and
// that takes bytes, text or a reader; or whose name begins with read, goes on
// with what is read, and that takes bytes or a reader. (Read and ReadAt are
// what readers have.) The registry says for each one in the packages that touch
// disks and sockets which fuzz target feeds it; or, after "not:", why nothing
// foreign reaches it.
var (
	decoderName = regexp.MustCompile(`^(?i:decode|parse|unmarshal)([A-Z_].*)?$`)
	readerName  = regexp.MustCompile(`^[Rr]ead[A-Z]\w*$`)
)

var decoderPackages = []string{"raftlog", "fusefs", "csi", "roles"}

// decoders finds the decoders of one file: "pkg.Func" or "pkg.Type.Method".
func decoders(s *source) []string {
	var found []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && isDecoder(f) {
			found = append(found, s.pkg+"."+qualified(f))
		}
	}
	return found
}

func isDecoder(f *ast.FuncDecl) bool {
	name := f.Name.Name
	if decoderName.MatchString(name) {
		return takesInput(f, true)
	}
	return readerName.MatchString(name) && !strings.EqualFold(name, "readAt") && takesInput(f, false)
}

// qualified is a function's name, with its receiver's type before it.
func qualified(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
			continue
		case *ast.IndexExpr:
			typ = x.X
			continue
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		}
		return f.Name.Name
	}
}

// functions lists a file's functions and methods by qualified name.
func functions(s *source) []string {
	var names []string
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names = append(names, qualified(f))
		}
	}
	return names
}

func takesInput(f *ast.FuncDecl, text bool) bool {
	for _, p := range f.Type.Params.List {
		switch x := p.Type.(type) {
		case *ast.ArrayType:
			if id, ok := x.Elt.(*ast.Ident); ok && x.Len == nil && id.Name == "byte" {
				return true
			}
		case *ast.Ident:
			if text && x.Name == "string" {
				return true
			}
		case *ast.SelectorExpr:
			if strings.HasPrefix(x.Sel.Name, "Reader") || x.Sel.Name == "File" || x.Sel.Name == "Conn" {
				return true
			}
		case *ast.StarExpr:
			if sel, ok := x.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "Reader" {
				return true
			}
		}
	}
	return false
}

func TestEveryDecoderIsFuzzed(t *testing.T) {
	tests := testsByPackage(t)
	have := map[string]bool{}
	for _, s := range sources(t) {
		if s.test || !withinAny(s.pkg, decoderPackages) {
			continue
		}
		for _, d := range decoders(&s) {
			have[d] = true
			if decoderRegistry[d] == "" {
				t.Errorf("%s: decoder %s is not in the registry", s.path, d)
			}
		}
	}
	for _, d := range slices.Sorted(maps.Keys(decoderRegistry)) {
		how := decoderRegistry[d]
		if !have[d] {
			t.Errorf("registry: there is no decoder %s", d)
		}
		if strings.HasPrefix(how, "not: ") {
			continue
		}
		pkg, _, _ := strings.Cut(d, ".")
		if !strings.HasPrefix(how, "Fuzz") || !slices.Contains(tests[pkg], how) {
			t.Errorf("registry: %s is said to be fuzzed by %s, which does not exist there", d, how)
		}
	}
}

func TestDecodersFound(t *testing.T) {
	s := mustParse(t, `package p
import ("io"; "bufio")
func DecodeX(b []byte) error
func parse(s string)
func (t *T[A]) readHead(r *bufio.Reader)
func readBody(r io.ReaderAt)
func readable(b []byte)
func decode(n int)
func (T) ReadAt(b []byte, off int64) (int, error)
func readFile(name string)
func (T) ReadAll()`)
	want := []string{"p.DecodeX", "p.parse", "p.T.readHead", "p.readBody"}
	if got := decoders(s); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
