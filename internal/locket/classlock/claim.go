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
	// Key is the lock as it may be shown, Holder its holder.
	Key, Holder string
	// Drop: the job ends without a failure.
	Drop bool
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("the class lock %s is held by %s", e.Key, wire.Printable(e.Holder, 300))
}

// Is reports whether target is resqued.Discard and the job is dropped.
func (e *HeldError) Is(target error) bool { return e.Drop && target == resqued.Discard }

// Exception returns the name under which the failure is recorded.
func (e *HeldError) Exception() string { return "Resqued::LockHeld" }

// Claim is what a job's thread and the loop of its process share about the job's class lock: the
// thread and the lock's keeper write, the loop reads. It is safe for concurrent use.
type Claim struct {
	// Proc and Token name the job's in-flight record.
	Proc, Token string
	// changed is called after the lock is lost, which the loop should see at once.
	changed func()

	mu    sync.Mutex
	state ClaimState
}

// ClaimState is a Claim at one moment.
type ClaimState struct {
	// Key is the lock; empty until it is requested.
	Key string
	// Asked: the lock may be held in the daemon's Redis, where it is released with the job's end.
	// Held: it certainly is.
	Asked, Held bool
	// Began is when the job's code began; zero = not yet.
	Began time.Time
	// Limit is when the lock's time limit ends; zero = no limit, or no lock.
	Limit time.Time
	// Lost is why the lock is lost, Grace how long the job may then take to stop.
	Lost  error
	Grace time.Duration
	// Left: the job has ended, but its lock, kept elsewhere, could not be released and has to
	// expire.
	Left bool
}

// NewClaim returns the claim of a job that has not begun. proc and token are from its in-flight
// record. changed, which may be nil, is called when the class lock is lost.
func NewClaim(proc, token string, changed func()) *Claim {
	c := &Claim{}
	c.Init(proc, token, changed)
	return c
}

// Init makes a zero Claim equal to NewClaim's result.
func (c *Claim) Init(proc, token string, changed func()) {
	c.Proc, c.Token, c.changed = proc, token, changed
}

// State returns the current state.
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
