package store_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
)

// snapshot is the whole database, by keys without the namespace.
type snapshot map[string]entry

type entry struct {
	ttl    int64 // ms; -1 without
	values []string
}

// dump returns everything in one step.
const dump = `
local read = {string = 'GET', list = 'LRANGE', set = 'SMEMBERS', hash = 'HGETALL', zset = 'ZRANGE'}
local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, v = redis.call('TYPE', key).ok, nil
  if kind == 'list' then v = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'zset' then v = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else v = redis.call(read[kind], key) end
  if kind == 'set' then table.sort(v) end
  out[#out + 1] = {key, redis.call('PTTL', key), kind, type(v) == 'table' and v or {v}}
end
return out`

func (r *rig) look(t *rapid.T) snapshot {
	raw, err := r.redis.Eval(r.ctx, dump, nil).Slice()
	must(t, err)
	s := snapshot{}
	for _, e := range raw {
		fields, _ := e.([]any)
		key, _ := fields[0].(string)
		ttl, _ := fields[1].(int64)
		list, _ := fields[3].([]any)
		e := entry{ttl: ttl, values: make([]string, len(list))}
		for i := range list {
			e.values[i], _ = list[i].(string)
		}
		if fields[2] == "hash" {
			e.values = sortedPairs(e.values)
		}
		s[strings.TrimPrefix(key, modelSpace)] = e
	}
	return s
}

// sortedPairs sorts what Redis returns in any order.
func sortedPairs(values []string) []string {
	pairs := slices.Collect(slices.Chunk(values, 2))
	slices.SortFunc(pairs, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return slices.Concat(pairs...)
}

func (s snapshot) list(key string) []string { return s[key].values }

func (s snapshot) hash(key string) map[string]string {
	out, values := map[string]string{}, s[key].values
	for i := 0; i+1 < len(values); i += 2 {
		out[values[i]] = values[i+1]
	}
	return out
}

func (s snapshot) number(key, field string) int {
	n, _ := strconv.Atoi(s.hash(key)[field])
	return n
}

// value returns what a key with its namespace holds.
func (s snapshot) value(key string) (string, bool) {
	e, ok := s[strings.TrimPrefix(key, modelSpace)]
	if !ok {
		return "", false
	}
	return e.values[0], true
}

// held reports whether a lock is in the way: its value is foreign, or its record lives.
func (s snapshot) held(lock string) bool {
	value, ok := s.value(lock)
	if !ok {
		return false
	}
	rest, ours := strings.CutPrefix(value, "resqued:")
	proc, token, _ := strings.Cut(rest, "#")
	if !ours {
		return true
	}
	_, alive := s.hash("resqued:inflight:" + proc)[token]
	return alive
}

// same compares without the times to live, and what ends by itself within a second.
func (s snapshot) same(other snapshot) bool {
	s, other = maps.Clone(s), maps.Clone(other)
	for _, short := range []snapshot{s, other} {
		maps.DeleteFunc(short, func(key string, _ entry) bool { return strings.HasPrefix(key, "resqued:heal:") || shown(key) })
	}
	return maps.EqualFunc(s, other, func(a, b entry) bool { return slices.Equal(a.values, b.values) })
}

// places counts the payloads that wait, are in flight or delayed, and those that failed.
func (s snapshot) places(t *rapid.T) (live, failed map[item]int) {
	live, failed = map[item]int{}, map[item]int{}
	for key, e := range s {
		if queue, ok := strings.CutPrefix(key, "queue:"); ok && !strings.Contains(queue, ":") {
			for _, p := range e.values {
				live[item{queue, p}]++
			}
		}
		if strings.HasPrefix(key, "resqued:inflight:") {
			for token, record := range s.hash(key) {
				job, err := store.ParseRecord(token, record)
				must(t, err)
				live[item{job.Queue, string(job.Payload)}]++
			}
		}
	}
	for it, n := range s.delayed() {
		live[it] += n
	}
	for it, n := range s.apart() {
		live[it] += n
	}
	for _, record := range s.list("failed") {
		queue, payload, _ := strings.Cut(strings.TrimPrefix(record, "F"), " ")
		failed[item{queue, payload}]++
	}
	return live, failed
}

// delayed counts the payloads that wait for their time: in resqued:delayed, and without
// their queue in the lists of resque-scheduler.
func (s snapshot) delayed() map[item]int {
	out := map[item]int{}
	for member := range s.hash("resqued:delayed") {
		_, rest, _ := strings.Cut(member, " ") // <id> <queue length>[u] <queue><payload>
		size, rest, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(strings.TrimSuffix(size, "u"))
		out[item{rest[:n], rest[n:]}]++
	}
	for key, e := range s {
		for _, text := range e.values {
			if strings.HasPrefix(key, "delayed:") {
				payload, queue, _ := strings.Cut(strings.TrimSuffix(text, `"}`), `,"queue":"`)
				out[item{queue, payload + "}"}]++
			}
		}
	}
	return out
}
