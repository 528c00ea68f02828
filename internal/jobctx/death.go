package jobctx

// DeathError says that the process that ran a job is gone and that nobody knows how far the
// job came. It has not failed by itself: it is treated as a job whose worker process has died.
type DeathError struct {
	// Err says how the process ended, and is what people read.
	Err error
	// Shared: other jobs ran in the same process, so that this one need not be to blame.
	Shared bool
	// Earlier: it was another process, before this run, which has not begun.
	Earlier bool
	// Told: failure hooks of the application know of the death, as of any failure. What they have
	// done must not be followed by another run of the job.
	Told bool
	// Discarded: they do not count it as a failure; a plugin runs the job again, say.
	Discarded bool
}

// Error says how the process ended.
func (e *DeathError) Error() string { return e.Err.Error() }

// Unwrap returns how the process ended.
func (e *DeathError) Unwrap() error { return e.Err }
