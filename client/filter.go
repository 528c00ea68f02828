package client

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/resqued/resqued/internal/selector/filter"
)

// Filter selects the failed or the waiting jobs that meet all conditions that are set. Methods
// that change or move jobs return ErrNoFilter if there is none, and an error if a condition has a
// mistake or has no meaning for their jobs.
type Filter struct {
	// All selects every job, and also payloads that are not jobs.
	All bool
	// IDs selects failures by id: the SHA-256 of a record's bytes in hex, or its beginning. "@"
	// and the index in its list (0 = oldest) may follow. Of records that are equal byte by
	// byte, an id selects one. It selects waiting jobs by WaitingJob.ID or its beginning, eight
	// characters or more, or by a part of the payload's SHA-256; equal payloads have one id.
	IDs []string
	// Classes and Queues have names, globs and "!" exclusions. The classes of an Active Job are
	// its own and those of its wrappers.
	Classes, Queues []string
	// Tenants are the tenants of fair queues, known to programs with their configuration.
	// Workers are ids of failed jobs' workers, or their beginnings: host or host:pid.
	Tenants, Workers []string
	// Error is a part of a failure's exception or message, or a regular expression between
	// slashes.
	Error string
	// Group is the id of a group of failures as "resqued failed" shows it.
	Group string
	// Arg has conditions on parts of the arguments: "0=42", "0.customer=42", with "*" for any
	// index or name and "**" for any number of them. 42 is the number and the text; "42" in
	// quotes is the text only. User/42 is a record of Active Record.
	Arg []string
	// Args are the whole arguments, as for Enqueue; nil = any, an empty slice = none. They are
	// compared decoded, as by Dequeue.
	Args any
	// Match matches a part of the JSON array of the arguments, written without blanks and with
	// no more escapes than needed.
	Match *regexp.Regexp
	// Since and Until limit the time at which the job failed, or by its payload was enqueued;
	// Until is the first time that is too late. Zero = any. A job without a time meets neither.
	// A failure whose time zone is ambiguous must meet them in every zone that may be meant.
	Since, Until time.Time
	// Retried is whether failures were retried: "yes", "no" or "any". Empty means "no" for
	// RetryFailed without IDs, else "any".
	Retried string
	// Limit is the maximum number of jobs, the oldest of each list first; 0 = no limit.
	Limit int
}

// ErrNoFilter means that the filter has no condition. To select everything, set All.
var ErrNoFilter = errors.New("no filter: name the jobs, or set All")

func (f Filter) matcher(ctx context.Context, kind filter.Kind) (*filter.Matcher, error) {
	m, err := filter.Filter(f).Matcher(ctx, kind)
	if err != nil {
		return nil, &refusedError{err}
	}
	return m, nil
}

// given reports whether there is a condition.
func (f Filter) given() bool {
	inner := filter.Filter(f)
	return f.All || inner.Any()
}
