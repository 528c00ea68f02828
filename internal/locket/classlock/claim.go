package classlock

import (
	"fmt"
	"sync"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/wire"
)

// HeldError is why a job did not run: another job holds its class lock.
type HeldError struct {
	// Key is the lock as it may be shown, Holder who has it.
	Key, Holder string
	// Drop: the job ends without a failure.
	Drop bool
}

// Error names the lock and its holder.
func (e *HeldError) Error() string {
	return fmt.Sprintf("the class lock %s is held by %s", e.Key, wire.Printable(e.Holder, 300))
}

// Is reports whether target is resqued.Discard and the job is dropped.
func (e *HeldError) Is(target error) bool { return e.Drop && target == resqued.Discard }

// Exception is the name under which the failure is recorded.
func (e *HeldError) Exception() string { return "Resqued::LockHeld" }

// Claim is what the thread of a job and the loop of its process share about the
// class lock of the job: the thread and the lock's keeper write, the loop reads.
// It is safe for concurrent use.
type Claim struct {
	// Proc and Token name the job's in-flight record.
	Proc, Token string
	// changed is called after a change that the loop should see at once.
	changed func()

	mu    sync.Mutex
	state ClaimState
}

// ClaimState is a Claim at one moment.
type ClaimState struct {
	// Key is the lock; empty until it is asked for.
	Key string
	// Asked: the lock may be held in the daemon's Redis, where it is released with
	// the end of the job. Held: it certainly is.
	Asked, Held bool
	// Began is when the job's code began; zero = not yet.
	Began time.Time
	// Limit is when the time of the lock is over; zero = never, or no lock.
	Limit time.Time
	// Lost is why the lock is lost, and Grace how long the job may take to stop then.
	Lost  error
	Grace time.Duration
	// Left: the job has ended, and its lock, which is kept elsewhere, could not be released:
	// it stands until it expires.
	Left bool
}

// NewClaim returns the claim of a job that has not begun. The names proc and token are
// those of its in-flight record. changed is called when the job's class lock is lost; it
// may be nil.
func NewClaim(proc, token string, changed func()) *Claim {
	c := &Claim{}
	c.Init(proc, token, changed)
	return c
}

// Init makes a zero Claim what NewClaim returns.
func (c *Claim) Init(proc, token string, changed func()) {
	c.Proc, c.Token, c.changed = proc, token, changed
}

// State returns the claim as it is now.
func (c *Claim) State() ClaimState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Begin notes when the job's code began.
func (c *Claim) Begin(at time.Time) {
	c.mu.Lock()
	c.state.Began = at
	c.mu.Unlock()
}

// Update changes the claim.
func (c *Claim) Update(change func(s *ClaimState)) {
	c.mu.Lock()
	lost := c.state.Lost
	change(&c.state)
	urgent := lost == nil && c.state.Lost != nil
	c.mu.Unlock()
	if urgent && c.changed != nil {
		c.changed()
	}
}
