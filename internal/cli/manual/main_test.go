package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/cli"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// write writes the pages and returns their folder and texts.
func write(t *testing.T) (folder, commands, settings string) {
	t.Helper()
	folder = t.TempDir()
	require.NoError(t, run([]string{"-sample", "../../../configs/resqued.yaml", "-version", "1.2.3", "-date", "2026-11-25", folder}))
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		return string(text)
	}
	return folder, read("resqued.1"), read("resqued.yaml.5")
}

func TestPages(t *testing.T) {
	t.Parallel()
	folder, commands, settings := write(t)
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				require.Contains(t, commands, `.SS "`+escaped(sub.CommandPath()))
				visit(sub)
			}
		}
	}
	visit(cli.Commands())
	for _, k := range config.Settings() {
		require.Contains(t, settings, ".B \""+k.Name+"\"\n")
	}
	require.Contains(t, settings, "\n# on_worker_death: requeue", "the sample")

	for _, page := range []string{commands, settings} {
		require.True(t, strings.HasPrefix(page, `.TH "RESQUED`), page[:40])
		require.Contains(t, page, `"2026\-11\-25" "resqued 1.2.3"`)
	}
	t.Run("groff has no complaints", func(t *testing.T) {
		testlevel.Integration(t)
		if _, err := exec.LookPath("groff"); err != nil {
			t.Skip(err)
		}
		for _, name := range []string{"resqued.1", "resqued.yaml.5"} {
			out, err := exec.Command("groff", "-man", "-ww", "-K", "utf8", "-T", "utf8", "-z", filepath.Join(folder, name)).CombinedOutput()
			require.NoError(t, err)
			require.Empty(t, string(out))
		}
	})
}

func TestEscaped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`a-b \n`:          `a\-b \en`,
		".yaml\n'quoted'": "\\&.yaml\n\\&'quoted'",
	} {
		require.Equal(t, want, escaped(text))
	}
	require.Equal(t, `"say \(dqhi\(dq"`, quoted(`say "hi"`))
}
