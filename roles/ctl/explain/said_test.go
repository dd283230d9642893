package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// saying is one name that the code shows, and the place where it has to be
// explained.
type saying struct {
	name, where string
	place       Where
}

// said reads the source of whatever speaks to a cluster, and finds each text that
// becomes a condition's type, or the reason of a condition, an Event or a replica:
// constants that are named for it, what is given as a parameter named reason, what
// is put into a field or variable of that name, and returned as such a result.
func said(t *testing.T) (all []saying) {
	t.Helper()
	s := source{consts: map[string]string{}, takes: map[string][]int{}}
	for _, root := range []string{"roles", "csi", "kube"} {
		s.read(t, filepath.Join("../../..", root))
	}
	for _, f := range s.files {
		ast.Inspect(f.File, s.learn(f))
	}
	for _, f := range s.files {
		ast.Inspect(f.File, s.find(f, func(name string, at token.Pos, place Where) {
			where := s.set.Position(at)
			all = append(all, saying{name, where.String(), place})
		}))
	}
	return all
}

type file struct {
	*ast.File
	host bool // of a replica's host: it says how a replica is
}

// source is the files, the texts of their constants by package and name, and which
// parameters of which functions are reasons.
type source struct {
	set    token.FileSet
	files  []file
	consts map[string]string
	takes  map[string][]int
}

func (s *source) read(t *testing.T, root string) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		slash := filepath.ToSlash(path)
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(slash, "/ctl/explain/") || strings.Contains(slash, "/kubetest/") {
			return err
		}
		f, err := parser.ParseFile(&s.set, path, nil, parser.SkipObjectResolution)
		s.files = append(s.files, file{f, strings.Contains(slash, "/replicahost/")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isReason(name string) bool { return strings.EqualFold(name, "reason") }

// positions are those of the names that are reasons.
func positions(list *ast.FieldList) (at []int) {
	i := 0
	if list == nil {
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			if isReason(name.Name) {
				at = append(at, i)
			}
			i++
		}
		if len(field.Names) == 0 {
			i++
		}
	}
	return at
}

// learn notes constants, and functions that take a reason.
func (s *source) learn(f file) func(ast.Node) bool {
	take := func(name string, typ *ast.FuncType) {
		for _, i := range positions(typ.Params) {
			if !slices.Contains(s.takes[name], i) {
				s.takes[name] = append(s.takes[name], i)
			}
		}
	}
	return func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			take(n.Name.Name, n.Type)
		case *ast.Field: // of an interface, or a parameter that is a function
			if typ, ok := n.Type.(*ast.FuncType); ok && len(n.Names) == 1 {
				take(n.Names[0].Name, typ)
			}
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if lit, ok := right.(*ast.FuncLit); ok && i < len(n.Lhs) {
					if name, ok := n.Lhs[i].(*ast.Ident); ok {
						take(name.Name, lit.Type)
					}
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) && n.Type == nil {
					if text, ok := s.text(f, n.Values[i]); ok {
						s.consts[f.Name.Name+"."+name.Name] = text
					}
				}
			}
		}
		return true
	}
}

// named is how reasons and conditions are written.
var named = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// text is what an expression says, if that is fixed.
func (s *source) text(f file, e ast.Expr) (string, bool) {
	text := ""
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ = strconv.Unquote(e.Value)
	case *ast.Ident:
		text = s.consts[f.Name.Name+"."+e.Name]
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			text = s.consts[pkg.Name+"."+e.Sel.Name]
		}
	}
	return text, named.MatchString(text)
}

var (
	reasonConst    = regexp.MustCompile(`^[rR]eason[A-Z]`)
	hostConst      = regexp.MustCompile(`^[hH]ostReason[A-Z]`)
	conditionConst = regexp.MustCompile(`^[cC]ondition[A-Z]`)
)

// find tells what is said.
func (s *source) find(f file, tell func(string, token.Pos, Where)) func(ast.Node) bool {
	place := Reason
	if f.host {
		place = Host
	}
	say := func(e ast.Expr) {
		if text, ok := s.text(f, e); ok {
			tell(text, e.Pos(), place)
		}
	}
	return func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if isReason(name.Name) && i < len(n.Values) {
					say(n.Values[i])
				}
				text := s.consts[f.Name.Name+"."+name.Name]
				switch {
				case text == "":
				case hostConst.MatchString(name.Name):
					tell(text, name.Pos(), Host)
				case reasonConst.MatchString(name.Name):
					tell(text, name.Pos(), Reason)
				case conditionConst.MatchString(name.Name):
					tell(text, name.Pos(), Condition)
				}
			}
		case *ast.CallExpr:
			for _, i := range s.takes[last(n.Fun)] {
				if i < len(n.Args) {
					say(n.Args[i])
				}
			}
		case *ast.KeyValueExpr:
			if isReason(last(n.Key)) {
				say(n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if isReason(last(left)) && i < len(n.Rhs) {
					say(n.Rhs[i])
				}
			}
		case *ast.FuncDecl:
			if n.Body != nil {
				s.returns(n.Body, positions(n.Type.Results), say)
			}
		}
		return true
	}
}

// returns finds what a function returns as a reason.
func (s *source) returns(body ast.Node, at []int, say func(ast.Expr)) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			for _, i := range at {
				if i < len(n.Results) {
					say(n.Results[i])
				}
			}
		}
		return true
	})
}

// last is the name at an expression's end.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
