package sim

import (
	"flag"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

var (
	seed  = flag.Uint64("sim.seed", 0, "simulate this seed, with its trace; 0 = all of -sim.seeds")
	seeds = flag.Uint64("sim.seeds", 0, "how many seeds, from 1 on; 0 = as many as the level of tests has time for")
)

func TestMain(m *testing.M) {
	began := time.Now()
	procfs.BootTime = func() time.Duration { return time.Since(began) + time.Hour*24*365*100 } // by the clock of a bubble
	rdb.SetLogger(func(string) {})
	os.Exit(m.Run())
}

// TestFleet simulates fleets of different seeds.
func TestFleet(t *testing.T) {
	first, last := uint64(1), *seeds
	switch {
	case last > 0:
	case testlevel.Nightly():
		last = 300
	case testing.Short():
		last = 2
	default:
		last = 12
	}
	if *seed != 0 {
		first, last = *seed, *seed
	}
	var simulated time.Duration
	var jobs int64
	wrong := 0
	began := time.Now()
	for n := first; n <= last; n++ {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Run(n, nil)
				simulated, jobs = simulated+r.Simulated, jobs+r.Jobs
				if *seed != 0 {
					t.Log(strings.Join(r.Trace, "\n"))
				}
				if len(r.Errors) > 0 {
					wrong++
				}
				for _, text := range r.Errors {
					t.Errorf("seed %d: %s", n, text)
				}
			})
		})
	}
	t.Logf("%d seeds, %d of them wrong, %s of a fleet, %d jobs in %s", last-first+1, wrong, simulated, jobs, time.Since(began))
}
