package web_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamedMetrics: alerts, dashboards and docs name no metric that is not exported. `make alerts` evaluates
// the expressions.
func TestNamedMetrics(t *testing.T) {
	t.Parallel()
	exported := map[string]bool{}
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range sources {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`"(resqued_[a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
			exported[m[1]] = true
		}
	}
	require.Greater(t, len(exported), 25)
	files := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../deploy/*/*.y*ml", "../../deploy/*/*.json"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	named := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\bresqued_(queue|job|jobs|findings|redis|daemons|deaths|threads|process|processes|runners|longjobs|failures|processed)(_[a-z]+)*\b`).FindAllString(string(text), -1) {
			name := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(m, "")
			require.True(t, exported[m] || exported[name], "%s names %s, which is not exported", path, m)
			named++
		}
	}
	require.Greater(t, named, 40)
}
