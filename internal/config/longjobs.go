package config

import (
	"fmt"
	"slices"
	"strings"
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

var longJobFields = []string{
	"requeue_queue", "slice", "grace", "check_in", "retries", "retry_after", "max_deaths", "keep", "tenant_slices", "uuid_argument", "state_limit",
}

var longJobSynonyms = map[string]string{
	"timeout": "slice", "slice_time": "slice", "requeue": "requeue_queue", "kill_after": "grace", "checkin": "check_in",
	"retention": "keep", "max_state": "state_limit", "attempts": "retries",
}

// readLongJob reads true, false, or a map of settings.
func (f *file) readLongJob(at string, from field) *HandlerLongJob {
	l := &HandlerLongJob{}
	switch from.value.Kind {
	case yaml.ScalarNode:
		on := false
		f.readBool(at, from, &on)
		if !on {
			return nil
		}
		return l
	case yaml.MappingNode:
	default:
		f.refuse(at, "", from.line, "must be true, or a map: {requeue_queue: low, slice: 15s}")
		return l
	}
	for _, field := range f.fields(from.value, at+".") {
		name := at + "." + field.name
		switch field.name {
		case "requeue_queue":
			f.readText(name, field, &l.RequeueQueue, checkQueue)
		case "slice":
			f.readDuration(name, field, &l.Slice, positive)
		case "grace":
			f.readDuration(name, field, &l.Grace, positive)
		case "check_in":
			f.readDuration(name, field, &l.CheckIn, positive)
		case "retries":
			f.readNumber(name, field, &l.Retries, 0, maxTries, "0 = never")
			if l.Retries == 0 {
				l.Retries = -1
			}
		case "retry_after":
			f.readDuration(name, field, &l.RetryAfter, positive)
		case "max_deaths":
			f.readNumber(name, field, &l.MaxDeaths, 1, maxTries, "without progress in between")
		case "keep":
			f.readDuration(name, field, &l.Keep, positive)
		case "tenant_slices":
			f.readNumber(name, field, &l.TenantSlices, 1, maxTries, "at a time")
		case "uuid_argument":
			f.readBool(name, field, &l.UUIDArgument)
		case "state_limit":
			f.readSize(name, field, &l.StateLimit, leastState, maxState)
		default:
			f.refuse(name, "", field.line, unknown(nearest(field.name, longJobFields, longJobSynonyms)))
		}
	}
	return l
}

// checkLongJob refuses what contradicts slices. given are the handler's fields.
func (f *file) checkLongJob(at string, class field, h Handler, given []string) {
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
		if slices.Contains(given, beside[0]) {
			f.refuse(at+"."+beside[0], "", class.line, "does not go with long_job: "+beside[1]+"; remove it")
		}
	}
}

func (f *file) readSize(name string, from field, to *int64, least, most int64) {
	f.readText(name, from, new(string), func(value string) error {
		n, err := ParseSize(strings.TrimSpace(value))
		switch {
		case err != nil:
			return err
		case n < least || n > most:
			return fmt.Errorf("must be %s to %s", FormatSize(least), FormatSize(most))
		}
		*to = n
		return nil
	})
}
