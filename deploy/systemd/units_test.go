// Package systemd_test checks the unit files.
package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// The exposure score of a unit in systemd-analyze: 10 means without any sandbox.
const worstScore = "15" // tenths

func needsAnalyze(t *testing.T) {
	t.Helper()
	testlevel.Integration(t)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skipf("no systemd-analyze: %v", err)
	}
}

// install copies a unit, under the name of an instance, to a directory of its own, with an
// existing program in place of the installed binary.
func install(t *testing.T, unit, as string) string {
	t.Helper()
	text, err := os.ReadFile(unit)
	require.NoError(t, err)
	installed := strings.ReplaceAll(string(text), "/usr/local/bin/resqued", "/bin/true")
	require.NotEqual(t, string(text), installed)
	path := filepath.Join(t.TempDir(), as)
	require.NoError(t, os.WriteFile(path, []byte(installed), 0o644))
	if socket, err := os.ReadFile(strings.TrimSuffix(unit, ".service") + ".socket"); err == nil {
		require.NoError(t, os.WriteFile(strings.TrimSuffix(path, ".service")+".socket", socket, 0o644))
	}
	return path
}

func units(t *testing.T, test func(t *testing.T, path string)) {
	t.Helper()
	for unit, as := range map[string]string{
		"resqued.service":     "resqued.service",
		"resqued@.service":    "resqued@mail.service",
		"resqued-web.service": "resqued-web.service",
	} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			test(t, install(t, unit, as))
		})
	}
}

func TestUnitsHaveNoMistakes(t *testing.T) {
	t.Parallel()
	needsAnalyze(t)
	units(t, func(t *testing.T, path string) {
		// It exits 0 even for misspelt keys, so any output is a mistake.
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out))
	})
}

func TestUnitsAreSandboxed(t *testing.T) {
	t.Parallel()
	needsAnalyze(t)
	units(t, func(t *testing.T, path string) {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager",
			"--offline=yes", "--threshold="+worstScore, path).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

// The two units differ only in what depends on the instance's name.
func TestUnitsAreAlike(t *testing.T) {
	t.Parallel()
	single, err := os.ReadFile("resqued.service")
	require.NoError(t, err)
	template, err := os.ReadFile("resqued@.service")
	require.NoError(t, err)
	instance := strings.NewReplacer(
		" (%i)", "", " --store %i", "", "resqued.%i.", "resqued.", "resqued-%i\n", "resqued\n",
	).Replace(string(template))
	body := func(unit string) string { return unit[strings.Index(unit, "[Unit]"):] }
	require.Equal(t, body(string(single)), body(instance))
}

// The units have room for the settings that they mention.
func TestUnitsHaveRoomForTasks(t *testing.T) {
	t.Parallel()
	large := config.Config{WorkerCount: 16, ThreadCount: 64, MaxRetiring: 1}
	need := large.Tasks(64, true)
	for _, unit := range []string{"resqued.service", "resqued@.service"} {
		text, err := os.ReadFile(unit)
		require.NoError(t, err)
		found := regexp.MustCompile(`(?m)^TasksMax=(\d+)$`).FindSubmatch(text)
		require.NotNil(t, found, unit)
		most, err := strconv.Atoi(string(found[1]))
		require.NoError(t, err)
		require.GreaterOrEqual(t, most, need.Own+8*need.Commands, unit)
	}
}

// Each line of the relaxing drop-in is understood by systemd.
func TestRelaxingDropIn(t *testing.T) {
	t.Parallel()
	needsAnalyze(t)
	path := install(t, "resqued.service", "resqued.service")
	example, err := os.ReadFile("relax.conf.example")
	require.NoError(t, err)
	lines := strings.Split(string(example), "\n")
	for i, line := range lines {
		// A setting that is commented out has no space after the #.
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") {
			lines[i] = line[1:]
		}
	}
	dropIn := filepath.Join(path+".d", "relax.conf")
	require.NoError(t, os.Mkdir(filepath.Dir(dropIn), 0o755))
	require.NoError(t, os.WriteFile(dropIn, []byte(strings.Join(lines, "\n")), 0o644))
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}

// The dashboard finds out who asks by a unix socket: its users need their names.
func TestDashboardKnowsUsers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("resqued-web.service")
	require.NoError(t, err)
	require.NotContains(t, string(text), "\nPrivateUsers=")
}
