// Package statsd counts and times jobs in a statsd server. docs/statsd.md lists the names.
// Counting never delays or fails a job: data that cannot be sent is dropped.
package statsd

import (
	"net"
	"strconv"
	"strings"
	"time"

	cactus "github.com/cactus/go-statsd-client/v5/statsd"
	"go.uber.org/zap"
)

const (
	// maxName bounds a metric's name in bytes; servers keep one file or row for each.
	maxName = 200
	// maxPacket fits into one Ethernet frame.
	maxPacket = 1432
	// flushEvery bounds the age of a count when it is sent.
	flushEvery = 300 * time.Millisecond
)

// The outcomes with counters of their own. Failed, Retried (failed, will run again), Dropped (not
// run because its class lock was held) and Interrupted (has pushed the rest of its work) also
// count as processed. Requeued (runs again as if it had not run) does not.
const (
	Failed      = "failed"
	Retried     = "retried"
	Dropped     = "dropped"
	Interrupted = "interrupted"
	Requeued    = "requeued"
)

// Unknown is the handler time of a job that did not run or was not timed.
const Unknown time.Duration = -1

// The names for Count; docs/statsd.md explains them.
const (
	Locked    = "locked"
	Duplicate = "duplicate"
	Repaired  = "unique_healed"
	LockLost  = "lock_lost"
	// RunnerDied: a runner has died with a job that runs again.
	RunnerDied = "runner_died"
)

// Config is the address of a statsd server.
type Config struct {
	// Host is a name or an address; empty turns statsd off.
	Host string
	// Port 0 is 8125.
	Port int
	// Key is put before every name with a dot; it may be empty.
	Key string
}

// Client sends counters and timings. A nil Client is usable and counts nothing.
type Client struct {
	key     string
	statter cactus.Statter
}

// New returns a client, or nil if no host is configured. A host that does not resolve is only
// logged: it is looked up until it resolves, and then regularly, so that a server may move.
// Close sends the rest.
func New(c Config, log *zap.Logger) *Client {
	if c.Host == "" {
		return nil
	}
	if c.Port == 0 {
		c.Port = 8125
	}
	udp, err := newSender(net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), log)
	if err != nil {
		log.Warn("statsd is off: no UDP socket", zap.Error(err))
		return nil
	}
	// Neither call can fail: they only refuse a missing sender.
	buffered, _ := cactus.NewBufferedSenderWithSender(udp, flushEvery, maxPacket)
	statter, _ := cactus.NewClientWithSender(buffered, "", 0)
	return &Client{key: strings.Trim(clean(c.Key), "."), statter: statter}
}

// Job counts the end of a job or of one of its runs. ran is the handler time or Unknown; waited
// is the queue time, 0 if unknown. docs/statsd.md has the rule.
func (c *Client) Job(class, outcome string, ran, waited time.Duration) {
	if c == nil {
		return
	}
	if outcome == Requeued {
		c.count("requeued", "", 1)
	} else {
		c.count("", class, 1)
		c.count("processed", "", 1)
	}
	if outcome == Failed || outcome == Retried {
		c.count("failed", "", 1)
	}
	if outcome == Retried || outcome == Dropped || outcome == Interrupted {
		c.count(outcome, "", 1)
	}
	if ran >= 0 {
		c.time("duration", class, ran)
	}
	if ran >= 0 && waited > 0 {
		c.time("queue_wait", "", waited)
	}
}

// Died counts a job that failed because its process died or was killed for it.
func (c *Client) Died(class string) { c.Job(class, Failed, Unknown, 0) }

// Count adds n to one of the counters above.
func (c *Client) Count(name string, n int) {
	if c == nil || n <= 0 {
		return
	}
	c.count(name, "", n)
}

// Close sends what is buffered.
func (c *Client) Close() {
	if c != nil {
		_ = c.statter.Close()
	}
}

func (c *Client) count(group, name string, n int) {
	_ = c.statter.Inc(c.name(group, name), int64(n), 1)
}

func (c *Client) time(group, name string, d time.Duration) {
	_ = c.statter.TimingDuration(c.name(group, name), d, 1)
}

// name joins key, group and name; group or name may be empty. The name comes from an untrusted payload.
func (c *Client) name(group, name string) string {
	if name != "" || group == "" {
		name = strings.Trim(clean(name), ".")
		if name == "" {
			name = "unknown"
		}
	}
	var b strings.Builder
	for _, part := range []string{c.key, group, name} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return strings.TrimRight(b.String()[:min(b.Len(), maxName)], ".")
}

// clean maps a name to [A-Za-z0-9_.-]. Ruby's "::" becomes a dot, so My::Job is filed below My;
// any other character becomes "_".
func clean(s string) string {
	// Enough for maxName, without a look at the rest of a hostile megabyte.
	s = s[:min(len(s), 4*maxName)]
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		}
		return '_'
	}, strings.ReplaceAll(s, "::", "."))
}
