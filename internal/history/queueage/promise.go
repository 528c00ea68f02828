package queueage

import (
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/selector"
)

// Promise is how long a job of some queues may wait.
type Promise struct {
	// Queue is a name, or a glob with * ? [a-z].
	Queue string `json:"queue"`
	// Within is the longest time; 0 = the name of the queue says it, as within_5_minutes does.
	Within time.Duration `json:"within"`
}

// Promises are the promises of all queues. An exact name wins over globs, then the first match.
type Promises []Promise

// Of returns how long a job of a queue may wait; 0 = no promise.
func (p Promises) Of(queue string) time.Duration {
	for _, named := range []bool{true, false} {
		for _, one := range p {
			if named && one.Queue != queue || !named && !selector.MatchAny([]string{one.Queue}, queue) {
				continue
			}
			if one.Within == 0 {
				return InName(queue)
			}
			return one.Within
		}
	}
	return 0
}

// maxWithin is the longest time that a name can promise.
const maxWithin = 366 * 24 * time.Hour

var inName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|_)within_(\d{1,6})_?(s|m|h|d|second|minute|hour|day)s?$`)
})

// InName returns the time in a queue's name, as in within_30_seconds or mail_within_5m; 0 = none.
func InName(queue string) time.Duration {
	found := inName().FindStringSubmatch(queue)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1]) // digits
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	if unit := units[found[2][0]]; time.Duration(n) <= maxWithin/unit {
		return time.Duration(n) * unit
	}
	return 0
}
