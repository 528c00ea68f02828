package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// awaitEnds waits until every job has ended, after the last fault.
func (c *chaos) awaitEnds(ctx context.Context) {
	var left int
	err := c.await(ctx, c.o.settle, "every job to end", func() bool {
		reply, err := c.look(ctx, c.server.ctl(), 1<<30, 1<<30)
		if err != nil {
			return false
		}
		left = len(list(reply[0]))
		return left == 0
	})
	if err != nil {
		c.complain("%d jobs are still there when nothing is broken any more", left)
	}
	// The last snapshot is judged by the next one.
	pause(ctx, 2200*time.Millisecond)
}

// judge checks what is left, ends the daemons, checks again, and runs all checks.
func (c *chaos) judge(ctx context.Context) (bool, error) {
	if err := c.lastLook(ctx); err != nil {
		return false, errors.Join(err, c.keep(nil))
	}
	for _, m := range c.machines {
		if err := m.quit(ctx); err != nil {
			c.complain("%v", err)
		}
	}
	left := slices.Concat(c.residue(ctx), c.longsNow(ctx), c.leftProcesses())
	c.mu.Lock()
	defer c.mu.Unlock()
	kinds := c.o.kinds()
	bounds, names := make([]check.Bound, len(kinds)), make([]string, len(kinds))
	texts := map[string]string{}
	for i, k := range kinds {
		bounds[i] = check.Bound{Kind: k.name, Recover: k.bound, Leases: k.leases, Longest: c.leaseOf("")}
		names[i] = k.name
		texts[k.name] = k.text
	}
	faults := c.history.Faults
	results := append(c.verdicts(append(left, c.trouble...), kinds), check.Recovery(faults, bounds, c.history.Waited))
	often := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(rare, name) })
	results = append(results, check.Vacuous(faults, often, c.o.leastFaults(), c.recovered(), c.o.leastRecoveries(), results))
	return c.report(results, c.tableOf(check.Table(faults, names), texts))
}

// verdicts runs the checks of the history.
func (c *chaos) verdicts(left []string, kinds []kind) []check.Result {
	h := c.history
	h.Sort()
	h.Silent, h.Killed = c.said(silentLine), c.said(killedLine)
	for i, p := range c.probes {
		for _, run := range h.Runs {
			if run.ID == p.ID {
				c.probes[i].Ran = run.At
				break
			}
		}
	}
	c.instant.Notes = []string{fmt.Sprintf("at most %d jobs in lines", c.lined)}
	results := []check.Result{
		check.Conservation(h), c.instant, check.Overlap(h), check.Limits(h, limits), check.Fence(h), check.Repeats(h), check.Starvation(h, c.probes, time.Second), check.Order(h),
		check.Residue(left), check.Failures(h), check.Retries(h), check.Delayed(h, time.Second), check.Ticks(h), check.LongJobs(h), c.leases.Result,
	}
	if slices.ContainsFunc(kinds, func(k kind) bool { return k.name == "usr1-crash" }) {
		results = append(results, check.Aborts(h))
	}
	return results
}

// lastLook reads the final state of Redis.
func (c *chaos) lastLook(ctx context.Context) error {
	ctl := c.server.ctl()
	entries, err := ctl.LRange(ctx, key("failed"), 0, -1).Result()
	if err != nil {
		return err
	}
	taken, err := ctl.LRange(ctx, takenKey, 0, -1).Result()
	if err != nil {
		return err
	}
	processed, err := ctl.Get(ctx, key("stat:processed")).Int64()
	if err != nil && !isNil(err) { // nothing yet, in a Redis that was emptied
		return err
	}
	failed, err := ctl.Get(ctx, key("stat:failed")).Int64()
	if err != nil && !isNil(err) {
		return err
	}
	reply, err := c.look(ctx, ctl, 1<<30, 1<<30)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range list(reply[0]) {
		c.history.Places[id] = append(c.history.Places[id], "redis")
	}
	c.recordOutcomes(entries, taken, processed, failed)
	return nil
}

// recordOutcomes adds Redis's records of the jobs that have ended to the history.
func (c *chaos) recordOutcomes(entries, taken []string, processed, failed int64) {
	// The BOOTTIME at which the wall clock was 0.
	epoch := procfs.BootTime() - time.Duration(time.Now().UnixNano())
	for _, entry := range entries {
		var f struct {
			FailedAt  string `json:"failed_at"`
			Exception string `json:"exception"`
			Error     string `json:"error"`
			Queue     string `json:"queue"`
			Attempts  int    `json:"attempts"`
		}
		if err := json.Unmarshal([]byte(entry), &f); err != nil {
			c.trouble = append(c.trouble, fmt.Sprintf("failed holds %.200q: %v", entry, err))
		}
		failed := check.Failed{ID: idOf(entry), Exception: f.Exception, Error: f.Error, Queue: f.Queue, Attempts: f.Attempts}
		for _, layout := range []string{"2006/01/02 15:04:05 MST", "2006/01/02 15:04:05"} {
			if at, err := time.Parse(layout, f.FailedAt); err == nil {
				failed.At = time.Duration(at.UnixNano()) + epoch
			}
		}
		c.history.Failed = append(c.history.Failed, failed)
	}
	for _, id := range taken {
		c.history.Taken[id] = true
	}
	c.history.Processed += processed
	c.history.FailedStat += failed
}

// recovered returns how many jobs the masters have recovered according to their logs.
func (c *chaos) recovered() (jobs int) {
	for _, m := range c.daemons() {
		m.mu.Lock()
		for _, l := range m.lines {
			if !strings.Contains(l.text, `"msg":"recovered the jobs of a dead`) {
				continue
			}
			var r struct {
				Requeued int `json:"jobs_requeued"`
				Failed   int `json:"jobs_failed"`
			}
			if json.Unmarshal([]byte(l.text), &r) == nil {
				jobs += r.Requeued + r.Failed
			}
		}
		m.mu.Unlock()
	}
	return jobs
}

// residue returns what must not be left when every daemon has ended.
func (c *chaos) residue(ctx context.Context) []string {
	var left []string
	killed := func(name string) bool { // its entry expires
		return slices.ContainsFunc(c.daemons(), func(m *machine) bool { return m.wasKilled(name) })
	}
	ctl := c.server.ctl()
	for _, pattern := range []string{
		"queue:*", "resqued:line:*", "resqued:lines:*", "resqued:ready:*", "resqued:turn:*", "resqued:turns:*", "resqued:turned", "resqued:lined", "resqued:awaited", "resqued:inflight:*", "resqued:proc:*", "resqued:caps:*", "resqued:kills:*", "resqued:held:*", "resqued:seen:*",
		"resqued:blocked:*", "resqued:delayed", "delayed_queue_schedule", "delayed:[0-9]*", "timestamps:*", "resqued:suspects*", "worker:*", "stat:processed:*", "stat:failed:*",
		"locket:*", "lock:*", "loner:*", "resqued:master:*", "resque-retry:*", "failure-resque-retry:*",
		"resqued:longjob:active", "resqued:longjob:state:*", "resqued:longjob:busy:*", "resqued:longjob:line:*", "resqued:longjob:tenants", "resqued:longjob:hungry", "resqued:longjob:stepped",
		"resqued:longjob:locks",
		"resqued:limit:*", "resqued:slots:*", "resqued:room", "resqued:gates",
	} {
		for _, k := range ctl.Keys(ctx, key(pattern)).Val() {
			if !killed(strings.TrimPrefix(k, key("resqued:master:"))) {
				left = append(left, fmt.Sprintf("key %s = %.200q", k, value(ctx, ctl, k)))
			}
		}
	}
	left = append(left, c.deaths(ctx)...)
	for _, id := range ctl.SMembers(ctx, key("workers")).Val() {
		left = append(left, "worker "+id)
	}
	for _, name := range ctl.ZRange(ctx, key("resqued:procs"), 0, -1).Val() {
		left = append(left, "registered process "+name)
	}
	for _, name := range ctl.SMembers(ctx, key("resqued:masters")).Val() {
		if !killed(name) {
			left = append(left, "master "+name)
		}
	}
	return left
}

// leftProcesses returns the processes left by the daemons.
func (c *chaos) leftProcesses() (left []string) {
	for _, m := range c.daemons() {
		for _, p := range m.processes() {
			left = append(left, "process "+p.String())
		}
	}
	return left
}

// deaths returns the remaining counts of deaths, except for jobs that foreign workers took after
// deaths here: their ends are not reported.
func (c *chaos) deaths(ctx context.Context) (left []string) {
	counts := map[string]string{}
	for _, k := range c.server.ctl().Keys(ctx, key("resqued:deaths:*")).Val() {
		for sum, n := range c.server.ctl().HGetAll(ctx, k).Val() {
			counts[strings.TrimPrefix(k, key("resqued:deaths:"))+" "+sum] = n
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	left = c.tickDeaths(counts)
	for _, p := range c.history.Pushes {
		if n, ok := counts[p.Digest]; ok && !c.history.Taken[p.ID] {
			left = append(left, fmt.Sprintf("%s deaths of %s", n, p.ID))
		}
	}
	return left
}

// value returns the value of a key of Redis.
func value(ctx context.Context, ctl *redis.Client, k string) string {
	var v any
	switch ctl.Type(ctx, k).Val() {
	case "string":
		v = ctl.Get(ctx, k).Val()
	case "hash":
		v = ctl.HGetAll(ctx, k).Val()
	case "set":
		v = ctl.SMembers(ctx, k).Val()
	case "zset":
		v = ctl.ZRangeWithScores(ctx, k, 0, -1).Val()
	case "list":
		v = ctl.LRange(ctx, k, 0, -1).Val()
	}
	return fmt.Sprint(v)
}

func (c *chaos) discard() {
	for _, m := range c.daemons() {
		m.signalAll(syscall.SIGKILL)
	}
	if c.server != nil {
		c.server.stop()
	}
}

// keep writes all evidence, and everything about the given jobs, to files.
func (c *chaos) keep(ids []string) error {
	write := func(name string, v any) error {
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(c.dir, name), text, 0o600)
	}
	about := map[string]any{}
	for _, id := range ids {
		var lines []any
		for _, run := range c.history.Runs {
			if run.ID == id {
				lines = append(lines, run)
			}
		}
		about[id] = map[string]any{
			"push": c.history.Pushes[id], "long": c.history.Longs[id], "schedule": c.history.Schedules[id], "runs": lines, "logs": c.linesAbout(id),
		}
	}
	return errors.Join(write("faults.json", c.history.Faults), write("pushes.json", c.history.Pushes), write("failed.json", c.history.Failed),
		write("evidence.json", about), write("snapshots.json", c.judged), c.dump())
}

// linesAbout returns what the daemons logged about a job and the processes that ran it, around
// that time.
func (c *chaos) linesAbout(id string) (found []string) {
	for _, run := range c.history.Runs {
		if run.ID != id {
			continue
		}
		for _, m := range c.daemons() {
			m.mu.Lock()
			for _, l := range m.lines {
				near := l.at > run.At-2*time.Second && l.at < run.Last+5*time.Second && strings.Contains(l.text, run.Proc)
				text := fmt.Sprintf("%.3f %s: %.600s", l.at.Seconds(), m.name, l.text)
				if (near || strings.Contains(l.text, `"`+id+`"`)) && len(found) < 60 && !slices.Contains(found, text) {
					found = append(found, text)
				}
			}
			m.mu.Unlock()
		}
	}
	slices.Sort(found)
	return found
}

// dump writes every key of Redis to a file.
func (c *chaos) dump() error {
	f, err := os.Create(filepath.Join(c.dir, "redis.txt"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctl := c.server.ctl()
	for _, k := range ctl.Keys(ctx, "*").Val() {
		text := strconv.Quote(value(ctx, ctl, k))
		_, _ = fmt.Fprintf(f, "%s %s\n", strconv.Quote(k), text[:min(len(text), 4000)])
	}
	return nil
}
