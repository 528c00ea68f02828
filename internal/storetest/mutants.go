package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Mutant is a defect of the scripts: its name, the file, and what is changed there into what.
type Mutant [4]string

// Name says what is wrong.
func (m Mutant) Name() string { return m[0] }

// Sequences is how many sequences a defect may take to be found: most take a
// few, the worst some hundreds.
const Sequences = 1000

// Defects are to be found by sequences of random steps.
type Defects struct {
	Mutants  []Mutant
	Sequence func(*Rig, *rapid.T)
	// Shortcuts are sequences that find what the first few do not; they come first. When the
	// model or the scripts change, others may be the first to find it: a test that has become
	// slow says which, with -v.
	Shortcuts map[string]int
	// Also are other changes to the file of each defect.
	Also []string
}

// Find runs sequences on scripts with a defect each, and wants one to fail. The sequences are
// the same each time.
func (d *Defects) Find(t *testing.T) {
	t.Helper()
	if testing.Short() || RaceDetector {
		t.Skip("the model itself runs; make test runs this without the race detector")
	}
	for _, mutant := range d.Mutants {
		t.Run(mutant.Name(), func(t *testing.T) {
			t.Parallel()
			r := NewRig(t)
			require.NoError(t, Alter(r.Store.Redis(), mutant[1], append(mutant[2:4:4], d.Also...)...))
			for _, seed := range SeedsOf(d.Shortcuts, mutant.Name(), Sequences) {
				if failure := r.example(seed, d.Sequence); failure != "" {
					require.NotContains(t, failure, "compiling script", "it is to be wrong, not nonsense")
					t.Logf("found by sequence %d: %.200s", seed+1, failure)
					return
				}
			}
			t.Errorf("not found in %d sequences", Sequences)
		})
	}
}

// SeedsOf returns the seeds of n sequences, behind the one that is known to find a defect.
func SeedsOf(shortcuts map[string]int, name string, n int) []int {
	var seeds []int
	if first, ok := shortcuts[name]; ok {
		seeds = append(seeds, first)
	}
	for seed := range n {
		seeds = append(seeds, seed)
	}
	return seeds
}

// example runs one sequence and returns how it failed.
func (r *Rig) example(seed int, sequence func(*Rig, *rapid.T)) string {
	return rapid.Custom(func(t *rapid.T) (failure string) {
		defer func() {
			if p := recover(); p != nil {
				failure = fmt.Sprint(p)
			}
		}()
		sequence(r, t)
		return ""
	}).Example(seed)
}
