package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// takenKey is the list in which foreign workers record the jobs that they take.
const takenKey = namespace + ":chaos:taken"

var (
	idPattern     = regexp.MustCompile(`chaos-\d+`)
	base64Pattern = regexp.MustCompile(`"([A-Za-z0-9+/]{8,}={0,2})"`)
)

// gather reads everything at one instant: the jobs in queues, set apart as suspects, in flight
// and delayed, and those added to failed and taken. It finds records by name, so that those of
// unregistered processes count, too.
const gather = `
local p = ARGV[1] .. ':'
local places, failed = {}, {}
local slice = '"id":"(' .. string.rep('%x', 8) .. '%-%x+%-%x+%-%x+%-' .. string.rep('%x', 12) .. '%.%d+)"'
local function note(s) places[#places + 1] = string.match(s, 'chaos%-%d+') or string.match(s, slice) or '' end
for _, kind in ipairs({'queue:*', 'resqued:line:*', 'resqued:turn:*', 'resqued:suspects:*'}) do
  for _, key in ipairs(redis.call('KEYS', p .. kind)) do
    if redis.call('TYPE', key).ok == 'list' and not string.find(key, ':start_at$') then
      for _, s in ipairs(redis.call('LRANGE', key, 0, -1)) do note(s) end
    end
  end
end
for _, key in ipairs(redis.call('KEYS', p .. 'resqued:inflight:*')) do
  for _, s in ipairs(redis.call('HVALS', key)) do note(s) end
end
for _, s in ipairs(redis.call('ZRANGE', p .. 'resqued:delayed', 0, -1)) do note(s) end
for _, key in ipairs(redis.call('KEYS', p .. 'delayed:[0-9]*')) do
  for _, s in ipairs(redis.call('LRANGE', key, 0, -1)) do note(s) end
end
`

// lookAround adds the contents of failed and taken, and inconsistencies of a unique queue.
var lookAround = redis.NewScript(gather + `
for _, s in ipairs(redis.call('LRANGE', p .. 'failed', ARGV[2], -1)) do
  failed[#failed + 1] = string.match(s, 'chaos%-%d+') or s
end
local odd, once = {}, {}
local q = p .. 'queue:' .. ARGV[4]
for _, s in ipairs(redis.call('LRANGE', q, 0, -1)) do
  if once[s] then odd[#odd + 1] = 'a unique queue holds twice: ' .. string.sub(s, 1, 80) end
  once[s] = true
end
local n, set, times = redis.call('LLEN', q), redis.call('SCARD', q .. ':uniqueue'), redis.call('LLEN', q .. ':start_at')
if set ~= n or times ~= n then
  odd[#odd + 1] = 'a unique queue holds ' .. n .. ' jobs, ' .. set .. ' payloads in its set and ' .. times .. ' times'
end
return {places, failed, redis.call('LRANGE', KEYS[1], ARGV[3], -1), odd, redis.call('HVALS', p .. 'resqued:lined')}`)

// look runs lookAround, with failed and taken from the given indexes on.
func (c *chaos) look(ctx context.Context, client *redis.Client, failed, taken int) ([]any, error) {
	reply, err := lookAround.Run(ctx, client, []string{takenKey}, namespace, failed, taken, uniqueQueue).Slice()
	if err == nil && len(reply) != 5 {
		err = fmt.Errorf("a look around returned %d parts", len(reply))
	}
	return reply, err
}

// snapshots looks once a second and judges each look a second later, when the ledger and the
// answers of that time are known.
func (c *chaos) snapshots(ctx context.Context) {
	failed, taken := map[string]bool{}, map[string]bool{}
	var last *check.Snapshot
	maybe, epoch := 0, 0
	for nfailed, ntaken := 0, 0; pause(ctx, time.Second); {
		s := check.Snapshot{From: procfs.BootTime(), Places: map[string]int{}}
		c.mu.Lock()
		before := c.popping
		c.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, 15*time.Second)
		// Not during a failover: a replica may lag behind.
		c.server.mu.RLock()
		if c.server.epoch != epoch { // it may have lost some of what was read
			epoch = c.server.epoch
			nfailed, ntaken, failed, taken = 0, 0, map[string]bool{}, map[string]bool{}
		}
		s.From = procfs.BootTime()
		reply, err := c.look(call, c.server.client, nfailed, ntaken)
		c.server.mu.RUnlock()
		cancel()
		s.To = procfs.BootTime()
		if err != nil {
			continue // Redis is away
		}
		s.Unique = list(reply[3])
		for _, id := range list(reply[0]) {
			s.Places[id]++
		}
		c.mu.Lock()
		c.backlog = len(s.Places)
		c.lined = max(c.lined, sum(list(reply[4])))
		if last != nil {
			c.judgeInstant(*last, maybe)
		}
		maybe = max(before, c.popping)
		c.mu.Unlock()
		// Only after the last snapshot was judged by the knowledge of its time.
		for _, entry := range list(reply[1]) {
			nfailed++
			failed[idOf(entry)] = true
		}
		for _, id := range list(reply[2]) {
			ntaken++
			taken[id] = true
		}
		s.Failed, s.Taken = failed, taken
		last = &s
	}
}

// judgeInstant judges a snapshot and forgets the jobs that it shows to be settled.
func (c *chaos) judgeInstant(s check.Snapshot, maybe int) {
	pushes := make([]*check.Push, 0, len(c.open))
	for _, p := range c.open {
		pushes = append(pushes, p)
	}
	found := check.Instant(c.history, s, pushes, maybe)
	c.instant.Looked++
	c.instant.Violations = append(c.instant.Violations, found...)
	for id := range c.open {
		if s.Places[id] == 0 && (s.Failed[id] || s.Taken[id] || c.history.Taken[id] || c.history.Done(id)) {
			delete(c.open, id)
		}
	}
	for _, v := range found {
		for _, id := range v.IDs {
			delete(c.open, id) // report once
		}
	}
	if len(found) > 0 {
		c.judged = append(c.judged, s)
	}
}

func list(v any) []string {
	items, _ := v.([]any)
	texts := make([]string, 0, len(items))
	for _, item := range items {
		s, _ := item.(string)
		texts = append(texts, s)
	}
	return texts
}

// idOf returns the id of the job in a failure record, which holds payloads that are not JSON as
// base64.
func idOf(entry string) string {
	if id := idPattern.FindString(entry); id != "" {
		return id
	}
	if m := slicePattern.FindStringSubmatch(entry); m != nil {
		return m[1]
	}
	for _, m := range base64Pattern.FindAllStringSubmatch(entry, -1) {
		if raw, err := base64.StdEncoding.DecodeString(m[1]); err == nil {
			if id := idPattern.Find(raw); id != nil {
				return string(id)
			}
		}
	}
	return entry
}

func sum(texts []string) (all int) {
	for _, text := range texts {
		n, _ := strconv.Atoi(text)
		all += n
	}
	return all
}
