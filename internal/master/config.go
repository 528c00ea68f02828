package master

import (
	"fmt"
	"os"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// Config says what a master keeps running. The zero value of a field that has a
// default means that default.
type Config struct {
	// Slots is how many worker processes are kept, Threads how many jobs each of
	// them runs at a time.
	Slots, Threads int
	// MaxRetiring is how many processes may exist beside those in the slots: what
	// is being replaced finishes there. 0 = none, replace after the exit.
	MaxRetiring int
	// TermTimeout is how long a killed job may take to stop; default 30 s.
	TermTimeout time.Duration
	// DrainTimeout turns a drain into a kill; 0 = never.
	DrainTimeout time.Duration
	// DrainRequeue: the jobs that it ends go back to their queues; else they have failed.
	DrainRequeue bool
	// BootTimeout ends a worker process that is not ready in time; default 30 s.
	BootTimeout time.Duration
	// BeatTimeout ends one that gives no sign of life for so long; default 30 s.
	// It must allow for a machine under full load.
	BeatTimeout time.Duration
	// LockDuration is the expiry of job locks, before which a silent worker process
	// must be gone; default 35 s.
	LockDuration time.Duration
	// MaxDeaths is how many processes a job may take with it before it is recorded
	// as failed; at least 1.
	MaxDeaths int
	// Policy is that of the worker processes that this master starts. They register with
	// it; here it counts for those whose own is not known.
	Policy store.Policy
	// Classes are the names of the classes that have a handler: statistics tell them apart.
	Classes []string
	// FailureLists has the jobs of dead processes that have failed recorded as Resque's
	// multi-queue failure backend does.
	FailureLists bool
	// OnMasterDeath is "kill" if the kernel shall kill the worker processes when
	// the master dies; else they drain.
	OnMasterDeath string
	// DevSignals: INT drains first and kills when it comes again.
	DevSignals bool
	// Unique are the unique queues that the master brings back in step; the zero value
	// = none.
	Unique store.UniqueQueues
	// Worker is handed to each worker process as it is.
	Worker []byte
	// Env is the environment that worker processes start with; nil = that of this process.
	Env []string
	// Files are handed to each worker process, from proc.FirstFile on.
	Files []*os.File
	// Fields are shown with this master in Redis.
	Fields map[string]string
	// Shared are the settings that all daemons of a fleet have to agree on.
	Shared Shared
	// InForce, if not nil, is called when a configuration that was read anew takes effect;
	// until then nothing may have changed that depends on it. The master's loop waits for it.
	InForce func()
	// Dropped, if not nil, is called when one does not take effect. It must not block.
	Dropped func()
}

// dropped says that the configuration does not take effect.
func (c Config) dropped() {
	if c.Dropped != nil {
		c.Dropped()
	}
}

func (c Config) checked() (Config, error) {
	if c.Slots < 1 {
		return c, fmt.Errorf("%d worker processes: a master needs one at least", c.Slots)
	}
	if c.Threads < 1 {
		return c, fmt.Errorf("%d threads: a worker process needs one at least", c.Threads)
	}
	if c.MaxDeaths < 1 {
		return c, fmt.Errorf("%d deaths: a job may take one process with it at least", c.MaxDeaths)
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.TermTimeout, 30 * time.Second},
		{&c.BootTimeout, 30 * time.Second},
		{&c.BeatTimeout, 30 * time.Second},
		{&c.LockDuration, store.DefaultLease},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return c, nil
}
