package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manual reads a document.
func manual(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	require.NoError(t, err)
	return string(text)
}

// findingCode is a code of internal/view with its meaning.
var findingCode = regexp.MustCompile(`(?m)^\tCode\w+ += "(\w+)" +// (.+)$`)

// TestRunbooks: docs/operations.md has a section for each finding of doctor.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(manual(t, "operations.md"), "\n## What doctor finds\n")
	require.True(t, found)
	sections := map[string]string{}
	for _, section := range strings.Split(text, "\n### ")[1:] {
		title, rest, _ := strings.Cut(section, "\n")
		code, about, _ := strings.Cut(title, ": ")
		code = strings.Trim(code, "`")
		require.NotContains(t, sections, code)
		sections[code] = about
		assert.Contains(t, rest, "**Do**: ", "%s: a runbook says what to do", code)
	}
	codes := findingCode.FindAllStringSubmatch(manual(t, "../internal/view/finding_codes.go"), -1)
	require.NotEmpty(t, codes)
	for _, c := range codes {
		assert.Equal(t, c[2], sections[c[1]], "### `%s`: %s", c[1], c[2])
		delete(sections, c[1])
	}
	assert.Empty(t, sections, "findings that there are not")
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// tests returns the names of all tests and fuzzers.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, f := range testFunc.FindAllSubmatch(text, -1) {
			names[string(f[1])] = true
		}
		return err
	}))
	return names
}

// TestThreatModel: existing tests check the promises of docs/security.md.
func TestThreatModel(t *testing.T) {
	t.Parallel()
	known := tests(t)
	_, text, found := strings.Cut(manual(t, "security.md"), "\n## Borders\n")
	require.True(t, found)
	borders, _, found := strings.Cut(text, "\n## What is not promised\n")
	require.True(t, found)
	promises, bare := 0, 0
	for line := range strings.Lines(borders) {
		if !strings.HasPrefix(line, "- ") {
			continue
		}
		promises++
		named := testName.FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			bare++ // not promised, or not testable
		}
		for _, name := range named {
			assert.True(t, known[name[1]], "%s: there is no such test: %s", name[1], line)
		}
	}
	require.Greater(t, promises, 20)
	assert.LessOrEqual(t, bare, 4, "promises without a test")
}
