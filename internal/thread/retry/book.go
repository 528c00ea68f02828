package retry

import (
	"context"
	"fmt"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/wire"
)

// BookConfig is what a Book is made from.
type BookConfig struct {
	Store Store
	// Classes are the names of all classes, Class finds one.
	Classes []string
	Class   func(name string, wrappers ...string) (*resqued.Class, bool)
	// Style is how hashes among arguments stand in keys.
	Style wire.RubyStyle
}

// Book holds the policies of all classes of a process. All of its threads share it.
type Book struct {
	cfg      BookConfig
	policies map[*resqued.Class]*Policy
	counts   *counter
}

// NewBook reads the policies. It does not connect.
func NewBook(cfg BookConfig) (*Book, error) {
	b := &Book{cfg: cfg, policies: map[*resqued.Class]*Policy{}}
	for _, name := range cfg.Classes {
		class, ok := cfg.Class(name)
		if !ok || class.Retry == nil {
			continue
		}
		p, err := NewPolicy(*class.Retry)
		if err != nil {
			return nil, fmt.Errorf("retry of class %q: %w", name, err)
		}
		b.policies[class] = p
	}
	b.counts = newCounter(cfg.Store)
	return b, nil
}

// Close ends the goroutine that reads counts. Call it when no job runs any more.
func (b *Book) Close() { b.counts.close() }

// Try is one run of a job whose class has a policy.
type Try struct {
	// Key is the count in Redis, without the namespace.
	Key string
	// Counted: Redis has a count of the job, from an earlier run.
	Counted bool
	// Attempt is the number of the run, from 1; 0 = the job had to stop before Redis
	// returned its count. Then it has not begun, and if it runs again this run does not
	// count.
	Attempt int
	policy  *Policy
}

// Begin finds out which run of its job this is, and sets Attempt and MaxAttempts of the job.
// It returns nil for a job whose class has no policy. While Redis does not answer it goes on
// trying until ctx ends, because no job may run more often than it is allowed to; then it
// returns the error of ctx with a Try that has no number.
func (b *Book) Begin(ctx context.Context, job *resqued.Job) (*Try, error) {
	if len(b.policies) == 0 {
		return nil, nil //nolint:nilnil // no policy
	}
	class, ok := b.cfg.Class(job.Class, jobctx.RunOf(job).Wrappers...)
	if !ok || b.policies[class] == nil {
		return nil, nil //nolint:nilnil // as above
	}
	t := &Try{policy: b.policies[class]}
	key, err := wire.RetryKey(wire.ClassOf(class, job.Class), job.Args, b.cfg.Style)
	if err != nil {
		return nil, err
	}
	t.Key = key
	counted, err := b.counts.count(ctx, key)
	if err != nil {
		return t, err
	}
	t.Counted = counted >= 0
	t.Attempt = t.policy.Attempt(counted, job.Deaths)
	job.Attempt, job.MaxAttempts = t.Attempt, t.policy.Attempts()
	return t, nil
}

// Failed decides what becomes of the job after this run has failed.
func (t *Try) Failed(f Failure) (wait time.Duration, again bool) {
	return t.policy.Failed(max(t.Attempt, 1), f)
}

// Count returns the count that Redis shall hold of the job after this run. If survived, the
// deaths of the job are forgotten and so have to be in the count; otherwise they are added
// again the next time.
func (t *Try) Count(survived bool, deaths int) int {
	n := t.Attempt - 1
	if !survived && !t.policy.ignoreDeaths {
		n -= deaths
	}
	return max(n, 0)
}

// Lifetime returns how long the count is kept while the job waits; 0 = for ever.
func (t *Try) Lifetime(wait time.Duration) time.Duration { return t.policy.Lifetime(wait) }
