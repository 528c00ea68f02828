package config

// processTasks is how many kernel threads a Go process needs besides its jobs. Seven to eleven
// were seen with two processors. GOMAXPROCS only bounds threads that run Go code: each blocking
// system call takes a thread, and Go keeps those it once had.
const processTasks = 16

// Tasks are a daemon's kernel threads as pids.max, TasksMax= and RLIMIT_NPROC count them.
type Tasks struct {
	// Processes are the master and all worker processes: retiring, started ahead, for suspects.
	Processes int
	// Own are their threads, an estimate: Go handlers may block more than one thread each.
	Own int
	// Commands are the concurrent commands, each at least one task.
	Commands int
}

// Sum is the need if each command is a single task.
func (t Tasks) Sum() int { return t.Own + t.Commands }

// Tasks estimates a daemon's need on a machine where Go uses that many processors.
func (c *Config) Tasks(processors int, commands bool) Tasks {
	base := processTasks + processors
	// A job blocks one thread, for its command or a file. A quarter more covers coincidences.
	working := c.WorkerCount + max(1, c.MaxRetiring) // HUP retires one in any case
	starting := 1
	// Suspects run outside the slots, one per process: as many as a process has threads.
	suspects := max(c.WorkerCount, c.ThreadCount)
	t := Tasks{Processes: 1 + working + starting + suspects}
	t.Own = t.Processes*base + working*(c.ThreadCount+(c.ThreadCount+3)/4) + suspects
	if commands {
		t.Commands = working*c.ThreadCount + suspects
	}
	return t
}
