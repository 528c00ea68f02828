package sim

import (
	"flag"
	"maps"
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
	seed   = flag.Uint64("sim.seed", 0, "simulate this seed, with its trace; 0 = all of -sim.seeds")
	shrink = flag.Bool("sim.shrink", false, "with -sim.seed: leave out all that does not matter")
	defect = flag.String("sim.defect", "", "with a defect of TestDefects, by name")
	seeds  = flag.Uint64("sim.seeds", 0, "how many seeds, from 1 on; 0 = as many as the level of tests has time for")
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
	var o Options
	for _, d := range defects {
		if d.Name() == *defect {
			o.Alter = altered(d)
		}
	}
	if *shrink {
		o.Without = without(t, *seed, o)
	}
	var simulated time.Duration
	var jobs int64
	wrong := 0
	began := time.Now()
	for n := first; n <= last; n++ {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Run(n, o)
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

// without returns the events without which the errors of a seed remain: it leaves out halves, quarters and so on of
// those that are left. Goroutines are not run in the order of the seed, so each attempt has three tries.
func without(t *testing.T, seed uint64, o Options) map[int]bool {
	t.Helper()
	events := 0
	fails := func(left map[int]bool) bool {
		for range 3 {
			var r Result
			synctest.Test(t, func(*testing.T) { r = Run(seed, Options{o.Alter, left}) })
			if events = r.Events; len(r.Errors) > 0 {
				return true
			}
		}
		return false
	}
	left := map[int]bool{}
	if !fails(left) {
		t.Fatalf("seed %d is right", seed)
	}
	for size := (events + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < events; from += size {
			try := maps.Clone(left)
			for n := from; n < min(from+size, events); n++ {
				try[n] = true
			}
			if len(try) > len(left) && fails(try) {
				left = try
			}
		}
		t.Logf("%d of %d events are left", events-len(left), events)
	}
	return left
}
