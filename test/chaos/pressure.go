package main

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// starving is the share of time waiting for a processor that explains a late beat.
const starving = 0.8

var waited = regexp.MustCompile(`(?m)^some .*total=(\d+)`)

// waitedFor returns how long programs have waited for a processor since boot, if the kernel
// reports that.
func waitedFor() (time.Duration, bool) {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0, false
	}
	m := waited.FindSubmatch(text)
	if m == nil {
		return 0, false
	}
	us, err := strconv.ParseInt(string(m[1]), 10, 64)
	return time.Duration(us) * time.Microsecond, err == nil
}

// pressure notes when the machine is overloaded.
func (c *chaos) pressure(ctx context.Context) {
	before, ok := waitedFor()
	for from := procfs.BootTime(); ok && pause(ctx, 500*time.Millisecond); {
		to := procfs.BootTime()
		var now time.Duration
		if now, ok = waitedFor(); ok && now-before > time.Duration(float64(to-from)*starving) {
			c.mu.Lock()
			c.history.Starved = append(c.history.Starved, check.Span{From: from, To: to})
			c.mu.Unlock()
		}
		before, from = now, to
	}
}

var (
	silentLine = regexp.MustCompile(`"msg":"killing a worker process","proc":"([^"]+)".*"because":"no sign of life`)
	// killedLine matches the line about a process that ended together with killed jobs.
	killedLine = regexp.MustCompile(`"msg":"worker process ended with the jobs that did not stop","proc":"([^"]+)"`)
)

// said returns when a line was last logged about each worker process.
func (c *chaos) said(line *regexp.Regexp) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, m := range c.daemons() {
		m.mu.Lock()
		for _, l := range m.lines {
			if match := line.FindStringSubmatch(l.text); match != nil {
				all[match[1]] = l.at
			}
		}
		m.mu.Unlock()
	}
	return all
}
