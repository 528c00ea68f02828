package tuning

import (
	"context"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// How often the use of processors is looked at: while there is enough of it that it may be
// too little soon, and else.
const (
	processorsSoon = 50 * time.Millisecond
	processorsRest = 200 * time.Millisecond
)

// FitProcessors has the Go code of this process run on one processor, and on more as long as
// its work fills those that it has, up to what GOMAXPROCS would be. Most jobs wait for
// something: then a second processor only costs, because Go wakes it for goroutines that
// the first would have run in a moment, on a machine whose other processors have Redis and
// further worker processes to run.
//
// A GOMAXPROCS that is set, now or later by other code, holds. Call the function that is
// returned to end this.
func FitProcessors() (stop func()) {
	limit := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") != "" || limit == 1 {
		return func() {}
	}
	p := processors{limit: limit, now: 1}
	runtime.GOMAXPROCS(1)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.fit(ctx, cpuTime) })
	return func() {
		cancel()
		done.Wait()
	}
}

// fit looks at the processor time that used returns until the context ends.
func (p *processors) fit(ctx context.Context, cpuTime func() time.Duration) {
	before, at := cpuTime(), time.Now()
	timer := time.NewTimer(processorsSoon)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		cpu, now := cpuTime(), time.Now()
		used := float64(cpu-before) / float64(now.Sub(at))
		before, at = cpu, now
		has := p.now
		if runtime.GOMAXPROCS(0) != has {
			return
		}
		if p.look(used); p.now != has {
			runtime.GOMAXPROCS(p.now)
		}
		if p.now > 1 || used > 0.5 {
			timer.Reset(processorsSoon)
		} else {
			timer.Reset(processorsRest)
		}
	}
}

// cpuTime is the processor time that this process has taken.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of oneself it does not fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// processors decides how many of them a process has.
type processors struct {
	limit, now int
	// full and spare count the looks in a row that found all in use, and one too many.
	full, spare int
}

const (
	// With so much of what it has in use, work waits for a processor.
	processorsFull = 0.9
	// With so much in use of what it would have left, a process gives one back.
	processorsSpare = 0.6
	// So many looks in a row have to find it: work that has come at once may be a burst,
	// and one processor less is soon too little again.
	processorsMore, processorsLess = 2, 40
)

// look is told how many processors were in use since the last look.
func (p *processors) look(used float64) {
	full := used > processorsFull*float64(p.now)
	spare := p.now > 1 && used < processorsSpare*float64(p.now-1)
	if !full {
		p.full = 0
	} else if p.full++; p.full == processorsMore {
		p.now, p.full = min(2*p.now, p.limit), 0
	}
	if !spare {
		p.spare = 0
	} else if p.spare++; p.spare == processorsLess {
		p.now, p.spare = p.now-1, 0
	}
}
