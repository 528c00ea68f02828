package procfs

// TaskLimit is a limit on the number of tasks, which are kernel threads.
type TaskLimit struct {
	// Name is the limit ("RLIMIT_NPROC", the path of a pids.max), Raise how to raise it.
	Name, Raise string
	Max         int64
}
