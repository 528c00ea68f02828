package procfs

// TaskLimit is a limit on how many tasks, that is, threads of the kernel, there may be.
type TaskLimit struct {
	// Name says what it is ("RLIMIT_NPROC", the path of a pids.max) and Raise how to
	// have more.
	Name, Raise string
	Max         int64
}
