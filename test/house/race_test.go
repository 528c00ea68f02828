package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notRaced start goroutines, but make test does not use the race detector for them.
var notRaced = map[string]string{
	"internal/store": "the tests of client run its goroutines; its own take minutes with the detector, so make race runs them",
}

// TestRace: packages whose code starts goroutines are tested with the race detector.
func TestRace(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile(`(?m)^RACE +:= (.*)$`).FindStringSubmatch(read(t, filepath.Join(root, "Makefile")))
	require.NotNil(t, list)
	raced := map[string]bool{}
	for path := range strings.FieldsSeq(list[1]) {
		raced[strings.TrimPrefix(path, "./")] = true
	}
	for dir := range imports(t) {
		tests, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		require.NoError(t, err)
		if strings.HasPrefix(dir, "test/") || strings.HasPrefix(dir, "examples/") || strings.HasPrefix(dir, "internal/testkit/") || len(tests) == 0 || notRaced[dir] != "" || raced[dir] {
			continue
		}
		assert.Empty(t, goroutine(t, dir), "%s starts goroutines: add ./%s to RACE in the Makefile", dir, dir)
	}
	for dir := range raced {
		assert.True(t, exists(filepath.Join(root, dir)), "RACE in the Makefile names %s, which is not there", dir)
	}
}

// goroutine returns where a package's code starts one.
func goroutine(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	at := ""
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				at = set.Position(n.Pos()).String()
			case *ast.CallExpr: // of a sync.WaitGroup
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Go" && len(n.Args) == 1 {
					at = set.Position(n.Pos()).String()
				}
			}
			return true
		})
	}
	return at
}
