// Package house_test compares the documented packages and imports with the real ones.
package house_test

import (
	"cmp"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	root   = "../.."
	module = "github.com/resqued/resqued"
)

// imports returns the imports of each package of the module outside its tests; module paths are
// relative, and the root is ".".
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string]map[string]bool{}
	files := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || exists(filepath.Join(path, "go.mod"))):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if found[dir] == nil {
			found[dir] = map[string]bool{}
		}
		for _, i := range f.Imports {
			found[dir][relative(strings.Trim(i.Path.Value, `"`))] = true
		}
		return nil
	}))
	sorted := map[string][]string{}
	for dir, paths := range found {
		sorted[dir] = slices.Sorted(maps.Keys(paths))
	}
	return sorted
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// relative returns the path of a package within the module, or the whole path.
func relative(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func ours(path string) bool { return path == "." || exists(filepath.Join(root, path)) }

// free reports whether a package may import anything: tests, their helpers, and the wiring.
func free(dir string) bool {
	for _, at := range []string{"test", "examples", "deploy", "internal/testkit"} {
		if dir == at || strings.HasPrefix(dir, at+"/") {
			return true
		}
	}
	return false
}

var (
	row      = regexp.MustCompile("^\\| (`[^|]*`[^|]*) \\| [^|]* \\|$")
	packages = regexp.MustCompile("`([^`]+)`")
)

// TestMap: the table of packages in docs/architecture.md has every package except the tests'.
func TestMap(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "| package | what it is |\n")
	require.True(t, ok, "docs/architecture.md has no table of packages")
	drawn := map[string]bool{}
	for line := range strings.Lines(table) {
		if found := row.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			for _, name := range packages.FindAllStringSubmatch(found[1], -1) {
				drawn[cmp.Or(map[string]string{"resqued": "."}[name[1]], name[1])] = true
			}
		}
	}
	all := imports(t)
	for dir := range all {
		assert.True(t, free(dir) || drawn[dir], "docs/architecture.md has no row for %s", dir)
	}
	folders, err := filepath.Glob(filepath.Join(root, "internal/*"))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(folders), 25, "internal has more folders than a newcomer can see at a glance")
	for dir := range drawn {
		assert.True(t, all[dir] != nil || exists(filepath.Join(root, dir)), "docs/architecture.md has a row for %s, which is not there", dir)
	}
}

// TestFloors: each package is drawn once in docs/architecture.md, above all its imports.
func TestFloors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	require.NoError(t, err)
	_, drawing, ok := strings.Cut(string(text), "\n```\n program ")
	require.True(t, ok, "docs/architecture.md has no drawing that begins with the floor of the program")
	drawing, _, _ = strings.Cut(drawing, "```")
	all := imports(t)
	floor := map[string]int{}
	n := 0
	for line := range strings.Lines(drawing) {
		if n > 0 && !strings.HasPrefix(line, "      ") {
			n--
		} else if n == 0 {
			n = 100 // the top
		}
		for name := range strings.FieldsSeq(line) {
			dir := cmp.Or(map[string]string{"resqued": "."}[name], name)
			if all[dir] == nil {
				continue // a word of the floor's name
			}
			require.NotContains(t, floor, dir, "%s is drawn twice", name)
			floor[dir] = n
		}
	}
	for dir, paths := range all {
		if free(dir) {
			continue
		}
		if !assert.Contains(t, floor, dir, "docs/architecture.md does not draw %s", dir) {
			continue
		}
		for _, path := range paths {
			if ours(path) {
				assert.Less(t, floor[path], floor[dir], "%s imports %s, which is drawn on its own floor or above", dir, path)
			}
		}
	}
}
