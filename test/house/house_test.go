// Package house_test compares the rooms as they are drawn with those that are there.
package house_test

import (
	"cmp"
	"fmt"
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
	"go.yaml.in/yaml/v3"
)

const (
	root   = "../.."
	module = "github.com/resqued/resqued"
)

// imports returns what each package of the module imports outside of its tests, itself and
// what it imports relative to the module where they belong to it; the root is ".".
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

// rule is a rule of depguard.
type rule struct {
	Mode  string   `yaml:"list-mode"`
	Files []string `yaml:"files"`
	Allow []string `yaml:"allow"`
}

// rules returns the strict rules, by name.
func rules(t *testing.T) map[string]rule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	require.NoError(t, err)
	var file struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]rule
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	strict := file.Linters.Settings.Depguard.Rules
	maps.DeleteFunc(strict, func(_ string, r rule) bool { return r.Mode != "strict" })
	require.NotEmpty(t, strict)
	return strict
}

// packages returns those that a rule is about.
func (r rule) packages(all map[string][]string) []string {
	var found []string
	for dir := range all {
		about := false
		for _, glob := range r.Files {
			not := strings.HasPrefix(glob, "!")
			glob = strings.TrimPrefix(strings.TrimPrefix(glob, "!"), "${base-path}/")
			switch {
			case glob == "$test":
			case matches(glob, dir):
				about = !not
			}
		}
		if about {
			found = append(found, dir)
		}
	}
	return found
}

// matches reports whether the files of a folder match a glob of depguard.
func matches(glob, dir string) bool {
	if folder, ok := strings.CutSuffix(glob, "/**"); ok {
		return dir == folder || strings.HasPrefix(dir, folder+"/")
	}
	folder, file := filepath.Split(glob)
	return file == "*.go" && filepath.Clean(folder) == dir
}

// TestArrows: a strict rule allows what its packages import, and nothing else, and each
// package has one.
func TestArrows(t *testing.T) {
	t.Parallel()
	all := imports(t)
	ruled := map[string]bool{}
	for name, r := range rules(t) {
		about := r.packages(all)
		require.NotEmpty(t, about, "rule %s is about no package: %v", name, r.Files)
		for _, allowed := range r.Allow {
			used := slices.ContainsFunc(about, func(dir string) bool {
				return slices.ContainsFunc(all[dir], func(path string) bool { return covers(allowed, path) })
			})
			assert.True(t, used, "rule %s allows %s, which none of its packages %v imports", name, allowed, about)
		}
		for _, dir := range about {
			ruled[dir] = true
		}
	}
	for dir := range all {
		if !free(dir) {
			assert.True(t, ruled[dir], "%s has no rule in .golangci.yml that says what it may import", dir)
		}
	}
}

// covers reports whether an entry of depguard's list allows a path.
func covers(entry, path string) bool {
	entry, whole := strings.CutSuffix(entry, "$")
	if entry == "gostd" || entry == "" || strings.HasPrefix(entry, "$gostd") || entry == "$gostd" {
		return true
	}
	entry = relative(entry)
	if whole || entry == "." {
		return path == entry
	}
	return path == entry || strings.HasPrefix(path, entry)
}

// free reports whether a package may import what it likes: tests, their helpers, and the
// wiring.
func free(dir string) bool {
	for _, at := range []string{"test", "examples", "deploy", "internal/redistest", "internal/storetest", "internal/dbtest", "internal/pgtest", "internal/mysqltest", "internal/proctest", "internal/testlevel", "internal/web/pages/pagestest", "internal/web/webtest"} {
		if dir == at || strings.HasPrefix(dir, at+"/") {
			return true
		}
	}
	return false
}

var (
	row      = regexp.MustCompile("^\\| (`[^|]*`[^|]*) \\| [^|]* \\| ([^|]*) \\|$")
	packages = regexp.MustCompile("`([^`]+)`")
)

// TestMap: the table of packages in docs/architecture.md has each package that is no test's,
// with what it imports of the module.
func TestMap(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	require.NoError(t, err)
	drawn := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if found := row.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			for _, name := range packages.FindAllStringSubmatch(found[1], -1) {
				dir := name[1]
				if dir == "resqued" {
					dir = "."
				}
				drawn[dir] = strings.TrimSpace(found[2])
			}
		}
	}
	all := imports(t)
	for dir, paths := range all {
		if free(dir) {
			continue
		}
		var names []string
		for _, path := range paths {
			if ours(path) {
				names = append(names, cmp.Or(map[string]string{".": "root"}[path], strings.TrimPrefix(path, "internal/")))
			}
		}
		slices.Sort(names)
		want := cmp.Or(strings.Join(names, ", "), "–")
		if got, ok := drawn[dir]; !ok || got != want && got != "any" {
			t.Errorf("docs/architecture.md: the row of `%s` should end in | %s |, it ends in %q", dir, want, fmt.Sprint(got))
		}
	}
	for dir := range drawn {
		assert.True(t, all[dir] != nil || exists(filepath.Join(root, dir)), "docs/architecture.md has a row for %s, which is not there", dir)
	}
}

// TestFloors: each package is drawn once in docs/architecture.md, above all that it imports.
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
		if free(dir) || dir == "internal/faultproxy" {
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
