package retry

import (
	"context"
	"fmt"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/wire"
)

// BookConfig configures a Book.
type BookConfig struct {
	Store Store
	// Classes are the names of all classes, Class finds one.
	Classes []string
	Class   func(name string, wrappers ...string) (*resqued.Class, bool)
	// Style is how hashes in arguments are written in keys.
	Style wire.RubyStyle
}

// Book holds the retry policies of all classes of a process, for all its threads.
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

// Close stops the goroutine that reads counts. No job may run any more.
func (b *Book) Close() { b.counts.close() }

// Try is one run of a job whose class has a policy.
type Try struct {
	// Key is the key of the count in Redis, without the namespace.
	Key string
	// Counted: Redis has a count from an earlier run.
	Counted bool
	// Attempt is the number of the run, from 1; 0 if the job had to stop before Redis returned its
	// count. Such a run has not begun and does not count.
	Attempt int
	policy  *Policy
}

// Begin looks up the run's number and sets Attempt and MaxAttempts of the job. It returns nil
// for a job whose class has no policy. It retries until Redis answers or ctx ends, because no
// job may run more often than allowed. If ctx ends, it returns the error and a Try without
// number.
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

// Failed decides whether the job runs again after this failed run, and when.
func (t *Try) Failed(f Failure) (wait time.Duration, again bool) {
	return t.policy.Failed(max(t.Attempt, 1), f)
}

// Count returns the count to keep in Redis after this run. If the job survived, its deaths are
// forgotten elsewhere and must be part of the count; otherwise the next run adds them again.
func (t *Try) Count(survived bool, deaths int) int {
	n := t.Attempt - 1
	if !survived && !t.policy.ignoreDeaths {
		n -= deaths
	}
	return max(n, 0)
}

// Lifetime returns how long the count is kept while the job waits; 0 = for ever.
func (t *Try) Lifetime(wait time.Duration) time.Duration { return t.policy.Lifetime(wait) }
