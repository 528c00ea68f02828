package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// The daemons alternate between both programs, and do not all start with the same one.
func TestTurns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, m := range []*machine{{program: "new"}, {program: "new", beside: "old", turn: 1}, {program: "new", beside: "old"}} {
		var seen []string
		for range 4 {
			seen = append(seen, m.nextProgram())
		}
		switch {
		case m.beside == "":
			require.Equal(t, []string{"new", "new", "new", "new"}, seen)
		case m.turn%2 == 1:
			require.Equal(t, []string{"old", "new", "old", "new"}, seen)
		default:
			require.Equal(t, []string{"new", "old", "new", "old"}, seen)
		}
	}
	c := newChaos(options{built: "/bin/true"})
	c.dir = dir
	c.machines = []*machine{{name: "a", program: "new", user: oneUser}, {name: "b", program: "new"}, {name: "c", program: "new", user: otherUser}}
	require.NoError(t, c.findBeside())
	hidden := filepath.Join(dir, "daemon-beside")
	require.Equal(t, []string{hidden, "new", hidden}, []string{c.machines[0].nextProgram(), c.machines[1].nextProgram(), c.machines[2].nextProgram()})
	require.Equal(t, "/bin/true", c.machines[1].nextProgram())
	info, err := os.Stat(hidden)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o001, "others start it")
}

// Without git history, as in a shallow clone or an unpacked archive, a run has only one version.
func TestWithoutHistory(t *testing.T) {
	testlevel.Integration(t)
	_, err := exec.LookPath("git")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(os.Getenv("PWD")))
	o := options{previous: "HEAD^"}
	remove, err := o.build(t.Context())
	defer remove()
	require.NoError(t, err)
	require.Empty(t, o.built)

	require.NoError(t, exec.CommandContext(t.Context(), "git", "init", "-q").Run())
	_, err = buildBeside(t.Context(), "--output=x", t.TempDir())
	require.ErrorIs(t, err, errNoHistory)
}
