package job_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/bench/job"
)

func TestWait(t *testing.T) {
	for range 2 { // a timer that is made, and one that is used again
		began := time.Now()
		require.NoError(t, job.Wait(3*time.Millisecond))
		require.GreaterOrEqual(t, time.Since(began), 3*time.Millisecond)
	}
}

// BenchmarkWaiters measures the rate of 50 goroutines that do nothing but run jobs of 1 ms,
// which is the limit of every peer in the scenarios of such jobs.
func BenchmarkWaiters(b *testing.B) {
	b.Run("kernel", func(b *testing.B) { waiters(b, job.Spec{Wait: time.Millisecond}) })
	b.Run("sleep", func(b *testing.B) { waiters(b, job.Spec{Sleep: time.Millisecond}) })
}

func waiters(b *testing.B, spec job.Spec) {
	b.Helper()
	shared, unmap, err := job.Open(filepath.Join(b.TempDir(), "shared"))
	require.NoError(b, err)
	defer unmap()
	h := job.Handler{Spec: spec, Shared: shared}
	var threads sync.WaitGroup
	for i := range 50 {
		threads.Go(func() {
			for n := i; n < b.N; n += 50 {
				if err := h.Perform(int64(n)); err != nil {
					panic(err)
				}
			}
		})
	}
	threads.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
