package master

import (
	"fmt"
	"os"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// Config says what a master keeps running. For fields with a default, zero means that default.
type Config struct {
	// Slots is how many worker processes are kept, Threads how many jobs each runs at a time.
	Slots, Threads int
	// MaxRetiring is how many processes may exist outside the slots, where replaced ones finish.
	// 0 = none: replace after the exit.
	MaxRetiring int
	// TermTimeout is how long a killed job may take to stop; default 30 s.
	TermTimeout time.Duration
	// DrainTimeout turns a drain into a kill after this time; 0 = never.
	DrainTimeout time.Duration
	// DrainRequeue: the jobs ended by DrainTimeout go back to their queues; otherwise they fail.
	DrainRequeue bool
	// BootTimeout ends a worker process that is not ready in time; default 30 s.
	BootTimeout time.Duration
	// BeatTimeout ends a worker process that is silent for so long; default 30 s. It must allow
	// for a machine under full load.
	BeatTimeout time.Duration
	// LockDuration is the TTL of job locks, within which a silent worker process must be gone;
	// default 35 s.
	LockDuration time.Duration
	// MaxDeaths is how many processes may die with a job before it is recorded as failed; at
	// least 1.
	MaxDeaths int
	// Policy is the policy of this master's worker processes, which register with it. Here it
	// applies to processes whose own is unknown.
	Policy store.Policy
	// Classes are the classes with a handler: statistics count them by name.
	Classes []string
	// FailureLists: failed jobs of dead processes are recorded as Resque's multi-queue failure
	// backend does.
	FailureLists bool
	// OnMasterDeath is "kill" if the kernel kills the worker processes when the master dies;
	// otherwise they drain.
	OnMasterDeath string
	// DevSignals: the first INT drains, a second one kills.
	DevSignals bool
	// Unique are the unique queues that the master repairs; the zero value = none.
	Unique store.UniqueQueues
	// Worker is passed to each worker process unchanged.
	Worker []byte
	// Env is the environment of worker processes; nil = this process's.
	Env []string
	// Files are passed to each worker process, from proc.FirstFile on.
	Files []*os.File
	// Fields are shown with this master in Redis.
	Fields map[string]string
	// Shared are the settings that all daemons of a fleet must share.
	Shared Shared
	// InForce, if not nil, is called when a newly read configuration takes effect; nothing that
	// depends on it may have changed before. The master's loop waits for it.
	InForce func()
	// Dropped, if not nil, is called when such a configuration does not take effect. It must not
	// block.
	Dropped func()
}

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
