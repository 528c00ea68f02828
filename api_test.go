package resqued_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

const module = "github.com/resqued/resqued"

// publicPackage is a package that programs may import.
type publicPackage struct {
	path, dir string
	files     []string
}

// Exports cannot be taken back after v1. So no exported declaration mentions a type of an
// internal package, and errors are the only exported variables, because a program could change
// others.
func TestPublicAPI(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	public, exports := listPackages(t)
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, p := range public {
		pkg, err := imports.Import(p.path)
		require.NoError(t, err)
		require.Empty(t, apiLeaks(pkg), "exported by %s", p.path)
		for _, name := range p.files {
			file, err := parser.ParseFile(fset, filepath.Join(p.dir, name), nil, 0)
			require.NoError(t, err)
			require.Empty(t, internalValues(file), "exported by %s", filepath.Join(p.dir, name))
		}
	}
}

// listPackages returns the packages of the module that programs may import, and the files
// with the export data of these and of all that they import.
func listPackages(t *testing.T) (public []publicPackage, exports map[string]string) {
	t.Helper()
	const format = "{{.ImportPath}}\t{{.Export}}\t{{.Name}}\t{{.Dir}}\t{{join .GoFiles \",\"}}"
	var stderr bytes.Buffer
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", format, "./...")
	list.Stderr = &stderr
	out, err := list.Output()
	require.NoError(t, err, "%s", &stderr)
	exports = map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		path, name := f[0], f[2]
		exports[path] = f[1]
		ours := path == module || strings.HasPrefix(path, module+"/")
		if !ours || isInternal(path) || name == "main" || strings.HasPrefix(path, module+"/test/") || f[4] == "" {
			continue
		}
		public = append(public, publicPackage{path: path, dir: f[3], files: strings.Split(f[4], ",")})
	}
	for _, known := range []string{"", "/client", "/client/fromfile", "/daemon", "/locker", "/longjob", "/longjob/sqlscan"} {
		require.True(t, slices.ContainsFunc(public, func(p publicPackage) bool { return p.path == module+known }), known)
	}
	return public, exports
}

func isInternal(path string) bool {
	return slices.Contains(strings.Split(path, "/"), "internal") && strings.HasPrefix(path, module)
}

// apiLeaks returns what a package exports and should not.
func apiLeaks(pkg *types.Package) []string {
	w := &apiWalk{pkg: pkg, seen: map[types.Type]bool{}}
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		w.at = name
		if v, ok := object.(*types.Var); ok && !types.Identical(v.Type(), types.Universe.Lookup("error").Type()) {
			w.leaks = append(w.leaks, fmt.Sprintf("%s: a variable that is not an error; use a constant, a function or an option", name))
		}
		if _, ok := object.(*types.TypeName); ok {
			w.declared(object.Type())
			continue
		}
		w.walk(object.Type())
	}
	return w.leaks
}

// apiWalk looks for types of internal packages in the types that a program can reach.
type apiWalk struct {
	pkg   *types.Package
	seen  map[types.Type]bool
	at    string
	leaks []string
}

// declared walks the exports of a type's declaration: its underlying type and its methods.
func (w *apiWalk) declared(t types.Type) {
	if alias, ok := t.(*types.Alias); ok {
		w.walk(alias.Rhs())
		return
	}
	named, ok := t.(*types.Named)
	if !ok || w.seen[t] {
		return
	}
	w.seen[t] = true
	w.walk(named.Underlying())
	for param := range named.TypeParams().TypeParams() {
		w.walk(param.Constraint())
	}
	for method := range named.Methods() {
		if method.Exported() {
			w.walk(method.Type())
		}
	}
}

func (w *apiWalk) walk(t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		if w.leaked(t.Obj()) {
			return
		}
		w.walk(t.Rhs())
	case *types.Named:
		for arg := range t.TypeArgs().Types() {
			w.walk(arg)
		}
		if !w.leaked(t.Obj()) && t.Obj().Pkg() == w.pkg && !t.Obj().Exported() {
			w.declared(t.Origin()) // it has no name for a program, but has fields and methods
		}
	case *types.Pointer:
		w.walk(t.Elem())
	case *types.Slice:
		w.walk(t.Elem())
	case *types.Array:
		w.walk(t.Elem())
	case *types.Chan:
		w.walk(t.Elem())
	case *types.Map:
		w.walk(t.Key())
		w.walk(t.Elem())
	case *types.Tuple:
		for v := range t.Variables() {
			w.walk(v.Type())
		}
	case *types.Signature:
		for param := range t.TypeParams().TypeParams() {
			w.walk(param.Constraint())
		}
		w.walk(t.Params())
		w.walk(t.Results())
	case *types.Struct:
		for field := range t.Fields() {
			if field.Exported() || field.Embedded() {
				w.walk(field.Type())
			}
		}
	case *types.Interface:
		for method := range t.ExplicitMethods() {
			if method.Exported() {
				w.walk(method.Type())
			}
		}
		for embedded := range t.EmbeddedTypes() {
			w.walk(embedded)
		}
	case *types.Union:
		for term := range t.Terms() {
			w.walk(term.Type())
		}
	}
}

func (w *apiWalk) leaked(name *types.TypeName) bool {
	if name.Pkg() == nil || name.Pkg() == w.pkg || !isInternal(name.Pkg().Path()) {
		return false
	}
	w.leaks = append(w.leaks, fmt.Sprintf("%s: mentions %s.%s", w.at, name.Pkg().Path(), name.Name()))
	return true
}

// internalValues returns the exported variables and constants whose documentation mentions an
// internal package.
func internalValues(file *ast.File) (leaks []string) {
	internal := map[string]bool{}
	for _, spec := range file.Imports {
		if path, _ := strconv.Unquote(spec.Path.Value); isInternal(path) {
			name := path[strings.LastIndexByte(path, '/')+1:]
			if spec.Name != nil {
				name = spec.Name.Name
			}
			internal[name] = true
		}
	}
	for _, decl := range file.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.VAR && d.Tok != token.CONST {
			continue
		}
		for _, spec := range d.Specs {
			values := spec.(*ast.ValueSpec)
			if !slices.ContainsFunc(values.Names, (*ast.Ident).IsExported) {
				continue
			}
			for _, value := range values.Values {
				ast.Inspect(value, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := s.X.(*ast.Ident); ok && internal[x.Name] {
							leaks = append(leaks, fmt.Sprintf("%s: is %s.%s", values.Names[0].Name, x.Name, s.Sel.Name))
						}
					}
					return true
				})
			}
		}
	}
	return leaks
}

// The check finds leaks.
func TestPublicAPIFindsLeaks(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	check := func(path, text string, deps types.Importer) (*types.Package, *ast.File) {
		file, err := parser.ParseFile(fset, "x.go", text, 0)
		require.NoError(t, err)
		config := types.Config{Importer: deps}
		pkg, err := config.Check(path, fset, []*ast.File{file}, nil)
		require.NoError(t, err)
		return pkg, file
	}
	store, _ := check(module+"/internal/store", "package store\ntype Run struct{}\ntype G[T any] struct{}\nvar Err error\nconst N = 1", nil)
	for _, tt := range []struct{ text, leak string }{
		{"func F(s *store.Run) {}", "F: mentions"},
		{"func F() (r map[string][]store.Run) { return }", "F: mentions"},
		{"type O func(*store.Run)", "O: mentions"},
		{"type O = store.Run", "O: mentions"},
		{"type O struct{ R store.Run }", "O: mentions"},
		{"type O struct{ *store.Run }", "O: mentions"},
		{"type O struct{}\nfunc (O) M(chan store.Run) {}", "O: mentions"},
		{"type O interface{ M(store.Run) }", "O: mentions"},
		{"type hidden struct{ R store.Run }\nfunc F() (h hidden) { return }", "F: mentions"},
		{"type hidden struct{}\nfunc (hidden) M(store.Run) {}\ntype O struct{ hidden }", "O: mentions"},
		{"func F[T interface{ M(store.Run) }](t T) {}", "F: mentions"},
		{"func F(s store.G[int]) {}", "F: mentions"},
		{"type G[T any] struct{}\nfunc F(s G[store.Run]) {}", "F: mentions"},
		{"var V = 5", "V: a variable"},
		{"var Err = store.Err", "Err: is store.Err"},
		{"const N = store.N + 1", "N: is store.N"},

		{"type O struct{ r store.Run }", ""},
		{"type O interface{ apply(*store.Run) }", ""},
		{"type o struct{ R store.Run }\nvar v store.Run\nfunc f(store.Run) {}", ""},
		{"type O struct{}\nfunc (O) m(store.Run) {}", ""},
		{"var Err error", ""},
	} {
		text := "package x\nimport \"" + module + "/internal/store\"\nvar _ store.Run\n" + tt.text
		pkg, file := check(module+"/x", text, importerFunc(func(string) (*types.Package, error) { return store, nil }))
		leaks := append(apiLeaks(pkg), internalValues(file)...)
		if tt.leak == "" {
			require.Empty(t, leaks, tt.text)
			continue
		}
		require.Len(t, leaks, 1, tt.text)
		require.True(t, strings.HasPrefix(leaks[0], tt.leak), "%s: %s", tt.text, leaks[0])
	}
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
