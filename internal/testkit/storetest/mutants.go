package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Mutant is a defect of the scripts: its name, the file, the text to change, and the new text.
type Mutant [4]string

// Name says what is wrong.
func (m Mutant) Name() string { return m[0] }

// Sequences is how many sequences finding a defect may take: most take a few, the worst some
// hundreds.
const Sequences = 1000

// Defects are defects of the scripts that sequences of random steps must find.
type Defects struct {
	Mutants []Mutant
	// Prepare makes the scripts of a test defective and returns one sequence of steps, which
	// fails if it notices.
	Prepare func(*testing.T, Mutant) func(*rapid.T)
	// Shortcuts are, by the defect's name, the seeds of sequences that find what the first few
	// do not; they come first. After changes to the model or the scripts, others may be the
	// first to find it: a test that has become slow logs which, with -v.
	Shortcuts map[string]int
}

// OnRig is a Defects.Prepare for sequences on a rig. also are further changes to each defect's
// file.
func OnRig(sequence func(*Rig, *rapid.T), also ...string) func(*testing.T, Mutant) func(*rapid.T) {
	return func(t *testing.T, m Mutant) func(*rapid.T) {
		t.Helper()
		r := NewRig(t)
		require.NoError(t, Alter(r.Store.Redis(), m[1], append(m[2:4:4], also...)...))
		return func(t *rapid.T) { sequence(r, t) }
	}
}

// Find requires that some sequence fails for each chosen defect. The sequences are always the
// same. They test the models more than the scripts, so most runs try few: see chosen.
func (d *Defects) Find(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("the model itself runs; make test runs this")
	}
	for _, mutant := range chosen(t, d.Mutants) {
		t.Run(mutant.Name(), func(t *testing.T) {
			t.Parallel()
			sequence := d.Prepare(t, mutant)
			for _, seed := range d.seeds(mutant.Name()) {
				if failure := example(seed, sequence); failure != "" {
					require.NotContains(t, failure, "compiling script", "it is to be wrong, not nonsense")
					t.Logf("found by sequence %d: %.300s", seed+1, failure)
					return
				}
			}
			t.Errorf("not found in %d sequences", Sequences)
		})
	}
}

// seeds returns all seeds, after the one known to find a defect.
func (d *Defects) seeds(name string) []int {
	var seeds []int
	if first, ok := d.Shortcuts[name]; ok {
		seeds = append(seeds, first)
	}
	for seed := range Sequences {
		seeds = append(seeds, seed)
	}
	return seeds
}

// example runs one sequence and returns how it failed.
func example(seed int, sequence func(*rapid.T)) string {
	return rapid.Custom(func(t *rapid.T) (failure string) {
		defer func() {
			// A skipped sequence, as on a busy machine, shows nothing.
			if p := recover(); p != nil && !strings.Contains(fmt.Sprint(p), "SkipNow() called") {
				failure = fmt.Sprint(p)
			}
		}()
		sequence(t)
		return ""
	}).Example(seed)
}
