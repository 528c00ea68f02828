package config

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/selector"
)

const (
	maxTries   = 1_000_000
	maxState   = 16 << 20
	leastState = 1 << 10
)

// HandlerLongJob makes jobs slices of long jobs. Zero values are package longjob's defaults.
type HandlerLongJob struct {
	// RequeueQueue is the queue of further slices; empty = the handler's.
	RequeueQueue string `json:"requeue_queue,omitempty"`
	// Slice is how long a slice works, Grace how long it may overrun.
	Slice time.Duration `json:"slice,omitempty"`
	Grace time.Duration `json:"grace,omitempty"`
	// CheckIn is the longest time between two heartbeats.
	CheckIn time.Duration `json:"check_in,omitempty"`
	// Retries is how often a failed run continues, after RetryAfter each; negative = never.
	Retries    int           `json:"retries,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// MaxDeaths is how many slices in a row may take their process down.
	MaxDeaths int `json:"max_deaths,omitempty"`
	// Keep is how long an ended run stays visible.
	Keep time.Duration `json:"keep,omitempty"`
	// TenantSlices is how many runs of a tenant may have a waiting or running slice.
	TenantSlices int `json:"tenant_slices,omitempty"`
	// UUIDArgument: an ordinary job whose only argument is a UUID is a run with that argument.
	UUIDArgument bool `json:"uuid_argument,omitempty"`
	// StateLimit limits a run's state, in bytes.
	StateLimit int64 `json:"state_limit,omitempty"`
}

var longJobSynonyms = map[string]string{
	"timeout": "slice", "slice_time": "slice", "requeue": "requeue_queue", "kill_after": "grace", "checkin": "check_in",
	"retention": "keep", "max_state": "state_limit", "attempts": "retries",
}

// fields are in the order of the documentation.
func (l *HandlerLongJob) fields() rules {
	return rules{
		{"requeue_queue", exact(&l.RequeueQueue, checkQueue)},
		{"slice", duration(&l.Slice, positive).read},
		{"grace", duration(&l.Grace, positive).read},
		{"check_in", duration(&l.CheckIn, positive).read},
		{"retries", l.readRetries},
		{"retry_after", duration(&l.RetryAfter, positive).read},
		{"max_deaths", number(&l.MaxDeaths, 1, maxTries, "without progress in between").read},
		{"keep", duration(&l.Keep, positive).read},
		{"tenant_slices", number(&l.TenantSlices, 1, maxTries, "at a time").read},
		{"uuid_argument", boolean(&l.UUIDArgument).read},
		{"state_limit", size(&l.StateLimit, checkState).read},
	}
}

func (l *HandlerLongJob) readRetries(f *file, name string, from field) {
	number(&l.Retries, 0, maxTries, "0 = never").read(f, name, from)
	if l.Retries == 0 {
		l.Retries = -1
	}
}

// readLongJob reads true, false, or a map of settings.
func (f *file) readLongJob(at string, from field) *HandlerLongJob {
	l := &HandlerLongJob{}
	if from.value.Kind == yaml.ScalarNode {
		on := false
		boolean(&on).read(f, at, from)
		if !on {
			return nil
		}
		return l
	}
	f.readMap(at, from, "must be true, or a map: {requeue_queue: low, slice: 15s}", l.fields(), longJobSynonyms)
	return l
}

// checkLongJob refuses what contradicts slices. fields are the handler's.
func (f *file) checkLongJob(at string, class field, h Handler, fields given) {
	if h.LongJob == nil {
		return
	}
	if selector.IsPattern(class.name) {
		f.refuse(at+".long_job", "", class.line, "a long job needs its class's own name, because its runs are kept under it; this is a pattern")
	}
	if h.Queue == "" {
		f.refuse(at, "", class.line, "has long_job but no queue; write queue: NAME")
	}
	for _, beside := range [][2]string{
		{"timeout", "its slices end by long_job.slice and long_job.grace"},
		{"max_run", "its slices end by long_job.slice"},
		{"on_leaving", "its command gets TERM at the end of a slice"},
		{"at_most_once", "a slice that was interrupted runs again"},
		{"lock", "its slices never overlap, and equal runs are told apart when they are enqueued"},
		{"retry", "see long_job.retries and long_job.retry_after"},
	} {
		if fields.line(beside[0]) > 0 {
			f.refuse(at+"."+beside[0], "", class.line, "does not go with long_job: "+beside[1]+"; remove it")
		}
	}
}

func checkState(n int64) error {
	if n < leastState || n > maxState {
		return fmt.Errorf("must be %s to %s", FormatSize(leastState), FormatSize(maxState))
	}
	return nil
}
