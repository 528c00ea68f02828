package house_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`^#+ (.*)`)
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	fence    = regexp.MustCompile("(?ms)^```.*?^```")
	// filePath is a path in a text: of letters, digits and ._@-, with a slash.
	filePath = regexp.MustCompile(`^[\w.@-]+(/[\w.@-]+)*/?$`)
	// linked is a link in a heading; its anchor has only the text.
	linked      = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// made are paths in texts that a command creates.
var made = map[string]bool{"bench/out": true}

// TestDocs: the files, headings and folders that a document names exist.
func TestDocs(t *testing.T) {
	t.Parallel()
	var documents int
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "testdata", "bin", "dist"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		documents++
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		prose := fence.ReplaceAllString(read(t, path), "")
		for _, found := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(found[1], "#")
			at := path
			if file != "" {
				at = filepath.Join(filepath.Dir(path), file)
			}
			if assert.True(t, exists(at), "%s links to %s, which is not there", name, found[1]) && anchor != "" && filepath.Ext(at) == ".md" {
				assert.True(t, anchors(t, at)[anchor], "%s links to %s: there is no such heading", name, found[1])
			}
		}
		if name == "CHANGELOG.md" {
			return nil // it may name what was there once
		}
		for _, found := range codeSpan.FindAllStringSubmatch(prose, -1) {
			text := strings.TrimPrefix(found[1], "./")
			top, _, slash := strings.Cut(text, "/")
			if slash && top != "bin" && filePath.MatchString(text) && exists(filepath.Join(root, top)) && !made[strings.TrimSuffix(text, "/")] {
				assert.True(t, exists(filepath.Join(root, text)), "%s names %s, which is not there", name, found[1])
			}
		}
		return nil
	}))
	require.Greater(t, documents, 20)
}

// anchors returns the names by which the headings of a document are linked to.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for line := range strings.Lines(fence.ReplaceAllString(read(t, path), "")) {
		if found := heading.FindStringSubmatch(line); found != nil {
			text := strings.ToLower(strings.TrimSpace(linked.ReplaceAllString(found[1], "$1")))
			names[strings.ReplaceAll(notInAnchor.ReplaceAllString(text, ""), " ", "-")] = true
		}
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
