package storetest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
)

// Snapshot is the whole database, by key without the namespace.
type Snapshot map[string]Entry

// Entry is the content of one key.
type Entry struct {
	TTL    int64 // ms; -1 without
	Values []string
}

// DumpScript returns everything in one step.
const DumpScript = `
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

// Look returns the database's content.
func (r *Rig) Look(t *rapid.T) Snapshot {
	raw, err := r.Redis.Eval(r.Ctx, DumpScript, nil).Slice()
	Must(t, err)
	s := Snapshot{}
	for _, e := range raw {
		fields, _ := e.([]any)
		key, _ := fields[0].(string)
		ttl, _ := fields[1].(int64)
		list, _ := fields[3].([]any)
		e := Entry{TTL: ttl, Values: make([]string, len(list))}
		for i := range list {
			e.Values[i], _ = list[i].(string)
		}
		if fields[2] == "hash" {
			e.Values = sortedPairs(e.Values)
		}
		s[strings.TrimPrefix(key, Space)] = e
	}
	return s
}

// sortedPairs sorts what Redis returns in any order.
func sortedPairs(values []string) []string {
	pairs := slices.Collect(slices.Chunk(values, 2))
	slices.SortFunc(pairs, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return slices.Concat(pairs...)
}

// List returns the content of a list or any other key.
func (s Snapshot) List(key string) []string { return s[key].Values }

// Hash returns the fields of a hash, or the members and scores of a sorted set.
func (s Snapshot) Hash(key string) map[string]string {
	out, values := map[string]string{}, s[key].Values
	for i := 0; i+1 < len(values); i += 2 {
		out[values[i]] = values[i+1]
	}
	return out
}

// Number returns a field of a hash that is a number.
func (s Snapshot) Number(key, field string) int {
	n, _ := strconv.Atoi(s.Hash(key)[field])
	return n
}

// Value returns the content of a key with its namespace.
func (s Snapshot) Value(key string) (string, bool) {
	e, ok := s[strings.TrimPrefix(key, Space)]
	if !ok {
		return "", false
	}
	return e.Values[0], true
}

// Held reports whether a lock is held: its value is foreign, or its record exists.
func (s Snapshot) Held(lock string) bool {
	value, ok := s.Value(lock)
	if !ok {
		return false
	}
	rest, ours := strings.CutPrefix(value, "resqued:")
	proc, token, _ := strings.Cut(rest, "#")
	if !ours {
		return true
	}
	_, alive := s.Hash("resqued:inflight:" + proc)[token]
	return alive
}

// Same compares without TTLs and the keys to ignore.
func (s Snapshot) Same(other Snapshot, ignore func(key string) bool) bool {
	s, other = maps.Clone(s), maps.Clone(other)
	for _, short := range []Snapshot{s, other} {
		maps.DeleteFunc(short, func(key string, _ Entry) bool { return ignore(key) })
	}
	return maps.EqualFunc(s, other, func(a, b Entry) bool { return slices.Equal(a.Values, b.Values) })
}

// Places counts the payloads that are waiting, in flight or delayed, and the failed ones.
func (s Snapshot) Places(t *rapid.T) (live, failed map[Item]int) {
	live, failed = map[Item]int{}, map[Item]int{}
	for key, e := range s {
		if queue, ok := strings.CutPrefix(key, "queue:"); ok && !strings.Contains(queue, ":") {
			for _, p := range e.Values {
				live[Item{queue, p}]++
			}
		}
		if strings.HasPrefix(key, "resqued:inflight:") {
			for token, record := range s.Hash(key) {
				job, err := store.ParseRecord(token, record)
				Must(t, err)
				live[Item{job.Queue, string(job.Payload)}]++
			}
		}
	}
	for _, l := range slices.Concat(s.Lines(), s.Turns()) {
		for _, p := range l.Payloads {
			live[Item{l.Queue, p}]++
		}
	}
	for it, n := range s.Delayed() {
		live[it] += n
	}
	for it, n := range s.Apart() {
		live[it] += n
	}
	for _, record := range s.List("failed") {
		queue, payload, _ := strings.Cut(strings.TrimPrefix(record, "F"), " ")
		failed[Item{queue, payload}]++
	}
	return live, failed
}

// Delayed counts the delayed payloads: in resqued:delayed, and in the lists of resque-scheduler
// with their queue cut out.
func (s Snapshot) Delayed() map[Item]int {
	out := map[Item]int{}
	for member := range s.Hash("resqued:delayed") {
		_, rest, _ := strings.Cut(member, " ") // <id> <queue length>[u] <queue><payload>
		size, rest, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(strings.TrimSuffix(size, "u"))
		out[Item{rest[:n], rest[n:]}]++
	}
	for key, e := range s {
		for _, text := range e.Values {
			if strings.HasPrefix(key, "delayed:") {
				payload, queue, _ := strings.Cut(strings.TrimSuffix(text, `"}`), `,"queue":"`)
				out[Item{queue, payload + "}"}]++
			}
		}
	}
	return out
}

// Line is a line of jobs that wait for the lock Name.
type Line struct {
	Queue, Name string
	Payloads    []string
}

// Lines returns all lines, in any order.
func (s Snapshot) Lines() []Line { return s.lines("resqued:line:") }

// Turns returns the lines of tenants, in any order.
func (s Snapshot) Turns() []Line { return s.lines("resqued:turn:") }

func (s Snapshot) lines(prefix string) []Line {
	var out []Line
	for key, e := range s {
		rest, ok := strings.CutPrefix(key, prefix)
		size, rest, _ := strings.Cut(rest, ":")
		n, err := strconv.Atoi(size)
		if ok && err == nil && n < len(rest) {
			out = append(out, Line{rest[:n], rest[n+1:], e.Values})
		}
	}
	return out
}

// Waiting returns the payloads of a queue and of its lines.
func (s Snapshot) Waiting(queue string) []string {
	out := slices.Clone(s.List("queue:" + queue))
	for _, l := range slices.Concat(s.Lines(), s.Turns()) {
		if l.Queue == queue {
			out = append(out, l.Payloads...)
		}
	}
	slices.Sort(out[len(s.List("queue:"+queue)):]) // makes sequences repeatable
	return out
}

// Apart counts the payloads that were set apart.
func (s Snapshot) Apart() map[Item]int {
	out := map[Item]int{}
	for key, e := range s {
		queue, ok := strings.CutPrefix(key, "resqued:suspects:")
		for _, element := range e.Values {
			if ok {
				_, payload, _ := strings.Cut(element, " ") // <start> <payload>
				out[Item{queue, payload}]++
			}
		}
	}
	return out
}
