package jobctx

// DeathError says that the process that ran a job is gone, so it is unknown how far the job came.
// The job has not failed by itself: it is treated as a job whose worker process has died.
type DeathError struct {
	// Err says how the process ended, and is what people read.
	Err error
	// Shared: other jobs ran in the same process, so this one may not be to blame.
	Shared bool
	// Earlier: the process died before this run, which has not begun.
	Earlier bool
	// Told: the application's failure hooks know of the death, as of any failure. The job must not
	// run again after them.
	Told bool
	// Discarded: the failure hooks do not count it as a failure; a plugin runs the job again, say.
	Discarded bool
}

// Error says how the process ended.
func (e *DeathError) Error() string { return e.Err.Error() }

// Unwrap returns how the process ended.
func (e *DeathError) Unwrap() error { return e.Err }
