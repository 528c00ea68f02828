package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// TestPlaces checks that the defects match the product.
func TestPlaces(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	root, err := moduleRoot(t.Context())
	require.NoError(t, err)
	per := map[string]int{}
	names := map[string]bool{}
	for _, d := range defects {
		require.NoError(t, d.check(root))
		require.False(t, names[d.name], d.name)
		names[d.name] = true
		per[d.invariant]++
	}
	for _, invariant := range []string{"I1", "I2", "I3", "I4", "I6", "R", "D", "S", "L"} {
		require.GreaterOrEqual(t, per[invariant], 2, invariant)
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), []byte("one two two three"), 0o600))
	d := defect{name: "d", edits: []edit{{"a", "one", "1"}, {"a", "three", "3"}}}
	texts, err := d.broken(root)
	require.NoError(t, err)
	require.Equal(t, map[string]string{filepath.Join(root, "a"): "1 two two 3"}, texts)
	for _, from := range []string{"two", "four"} {
		d.edits = []edit{{"a", from, ""}}
		require.ErrorIs(t, d.check(root), errStale)
	}
	d.edits = []edit{{"b", "one", ""}}
	require.ErrorIs(t, d.check(root), os.ErrNotExist)
}

func TestFindings(t *testing.T) {
	t.Parallel()
	report := `
C1 conservation  FAILED: 3 violations    968 looked at; 968 pushed
    chaos-7 is lost
C2 overlap       ok          434 looked at
C5 starvation    FAILED: 1 violations     16 looked at
C7 failures      FAILED: 2 violations     33 looked at
C12 long jobs    FAILED: 1 violations      3 looked at
C8 not vacuous   FAILED: 1 violations     12 looked at
`
	found := findings(report)
	require.Equal(t, []string{"C1 conservation", "C5 starvation", "C7 failures", "C12 long jobs"}, found)
	d := defect{by: []string{"C7", "C5 s"}}
	require.False(t, d.shownBy(found[0]))
	require.True(t, d.shownBy(found[1]))
	require.True(t, d.shownBy(found[2]))
	d.by = []string{"C1"}
	require.False(t, d.shownBy("C12 long jobs"), "another check")
}
