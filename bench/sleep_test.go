package main

import (
	"sync"
	"testing"
	"time"
)

// BenchmarkSleepers measures what 50 goroutines reach that do nothing but sleep for 1 ms,
// which is the limit of every peer in the scenario of such jobs: an idle Go program waits
// for its timers in whole milliseconds.
func BenchmarkSleepers(b *testing.B) {
	var threads sync.WaitGroup
	for i := range 50 {
		threads.Go(func() {
			for n := i; n < b.N; n += 50 {
				time.Sleep(time.Millisecond)
			}
		})
	}
	threads.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
