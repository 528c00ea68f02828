package jobctx

// DeathError says that the process that ran a job is gone and that nobody knows how far the
// job came. It has not failed by itself: it is treated as a job whose worker process has died.
type DeathError struct {
	// Err says how the process ended, and is what people read.
	Err error
	// Shared: other jobs ran in the same process, so that this one need not be to blame.
	Shared bool
}

// Error says how the process ended.
func (e *DeathError) Error() string { return e.Err.Error() }

// Unwrap returns how the process ended.
func (e *DeathError) Unwrap() error { return e.Err }
