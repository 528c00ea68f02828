package workerproc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tried is a trial whose calls are answered each millisecond, with as many jobs as the test says.
type tried struct {
	*laneTrial
	now time.Time
}

func newTried(siblings bool) *tried { return &tried{newLaneTrial(siblings), time.Unix(1000, 0)} }

// runs lets time pass with so many jobs for a call of one at a time and of two. It returns in what part of
// it there was one.
func (t *tried) runs(d time.Duration, one, two int) (single float64) {
	n, of := 0, int(d/time.Millisecond)
	for range of {
		t.now = t.now.Add(time.Millisecond)
		jobs := two
		if t.single {
			jobs, n = one, n+1
		}
		t.answered(t.now, jobs, true)
	}
	return float64(n) / float64(of)
}

func TestLaneTrial(t *testing.T) {
	t.Parallel()
	t.Run("two are better", func(t *testing.T) {
		t.Parallel()
		trial := newTried(false)
		require.Less(t, trial.runs(time.Minute, 70, 100), 0.05)
		require.Less(t, trial.runs(time.Minute, 70, 100), 0.03, "trials become seldom")
		require.False(t, trial.single)
	})
	t.Run("one is better", func(t *testing.T) {
		t.Parallel()
		trial := newTried(false)
		trial.runs(time.Second, 120, 100)
		require.True(t, trial.single)
		require.Greater(t, trial.runs(time.Minute, 120, 100), 0.95)
	})
	t.Run("no difference worth a change", func(t *testing.T) {
		t.Parallel()
		for _, single := range []bool{false, true} {
			trial := newTried(single)
			for range 100 {
				trial.runs(time.Second, 101, 100)
				trial.runs(time.Second, 100, 101)
			}
			trial.runs(laneSpan*2*lanePairs, 100, 100) // a trial may be under way
			require.Equal(t, single, trial.single)
		}
	})
	t.Run("with siblings one, until two are better", func(t *testing.T) {
		t.Parallel()
		trial := newTried(true)
		require.True(t, trial.single)
		trial.runs(time.Second, 70, 100)
		require.False(t, trial.single)
	})
	t.Run("what was better changes", func(t *testing.T) {
		t.Parallel()
		trial := newTried(false)
		for range 3 {
			trial.runs(20*time.Second, 70, 100)
			require.False(t, trial.single)
			trial.runs(20*time.Second, 120, 100)
			require.True(t, trial.single)
		}
	})
	t.Run("rates that grow all the time favour neither", func(t *testing.T) {
		t.Parallel()
		for _, single := range []bool{false, true} {
			trial := newTried(single)
			for n := 1000.; n < 1e9; n *= 1.005 {
				trial.runs(time.Millisecond, int(n), int(n))
			}
			trial.runs(laneSpan*2*lanePairs, 1000, 1000)
			require.Equal(t, single, trial.single)
		}
	})
	t.Run("jobs that take a while, or are few", func(t *testing.T) {
		t.Parallel()
		for _, siblings := range []bool{false, true} {
			trial := newTried(siblings)
			trial.runs(time.Second, 120, 100)
			trial.runs(time.Minute, 70, 100)
			trial.runs(20*time.Second, 120, 100)
			require.True(t, trial.single)
			for range 1000 {
				trial.now = trial.now.Add(time.Millisecond)
				trial.answered(trial.now, 1, false)
			}
			require.Equal(t, siblings, trial.single, "what was found before tells nothing of them")
		}
	})
	t.Run("a gap is no slow span", func(t *testing.T) {
		t.Parallel()
		trial := newTried(false)
		for range 1000 {
			trial.runs(2*laneSpan, 70, 100)
			trial.now = trial.now.Add(time.Second)
		}
		require.False(t, trial.single)
	})
}

func TestOneCallAtATime(t *testing.T) {
	t.Parallel()
	p := stopped(t, 9, 2)
	p.idlers.brief, p.trial.single = true, true
	p.ends(0, 1, 2, 3, 4, 5, 6, 7, 8)
	require.Equal(t, [][2]int{{9, 9}}, p.sent(), "it carries all")
	p.ends(0, 1, 2, 3, 4, 5)
	require.Empty(t, p.sent(), "the second lane stays empty")
	p.idlers.brief = false
	require.Equal(t, [][2]int{{6, 6}}, p.sent(), "the server has time for jobs that take a while")
}
