package config

// What a process of Go needs beside its jobs, in threads of the kernel: those of the
// runtime, the connections' and the log's. Seven to eleven were seen with two processors.
// Go has no bound for it but GOMAXPROCS for those that run Go code: each goroutine in a
// system call that does not end at once has a thread, and Go keeps those it once had.
const processTasks = 16

// Tasks are the threads of the kernel that a daemon may have at a time, as control groups
// (pids.max, TasksMax=) and RLIMIT_NPROC count them.
type Tasks struct {
	// Processes are the processes of the daemon: the master, the worker processes, those
	// that retire or start ahead, and those of suspects.
	Processes int
	// Own are the threads of these processes. It is an estimate with slack, not a bound:
	// handlers in Go may block more threads than one each.
	Own int
	// Commands are the commands that run at a time. Each is one task at least, and as many
	// more as it has threads and processes of its own.
	Commands int
}

// Sum is what is needed where each command is a single task.
func (t Tasks) Sum() int { return t.Own + t.Commands }

// Tasks estimates what a daemon needs on a machine where Go uses so many processors.
func (c *Config) Tasks(processors int, commands bool) Tasks {
	base := processTasks + processors
	// A job blocks one thread: that which waits for its command, or reads a file. A quarter
	// more is for what coincides.
	working := c.WorkerCount + max(1, c.MaxRetiring) // HUP lets one retire in any case
	starting := 1
	// Suspects run beside the slots, one in each process: as many as one process has threads.
	suspects := max(c.WorkerCount, c.ThreadCount)
	t := Tasks{Processes: 1 + working + starting + suspects}
	t.Own = t.Processes*base + working*(c.ThreadCount+(c.ThreadCount+3)/4) + suspects
	if commands {
		t.Commands = working*c.ThreadCount + suspects
	}
	return t
}
