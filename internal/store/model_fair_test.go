package store_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestModelFair is TestModel where the tenants of all queues take turns: all that is true there has to be
// true here.
func TestModelFair(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, 1, 4, fairSequence, fairSights)
}

// fairSights are what a run has to come across beside others.
var fairSights = []string{"turns", "came back", "lined", "named", "set apart", "right missing", "full", "free job served", "paused"}

// fairSequence is sequence with fair queues.
func fairSequence(r *storetest.Rig, t *rapid.T) {
	m := newModel(t, r)
	m.fair, m.lined = true, true
	m.runWith(t, map[string]func(*rapid.T){"crowd": m.crowd, "crowd 2": m.crowd})
}

// crowd fills a queue with jobs of several tenants, and lets a process find them.
func (m *model) crowd(t *rapid.T) {
	queue := theQueue(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "queue"))
	for range rapid.IntRange(2, 12).Draw(t, "jobs") {
		m.pushTo(t, queue, m.payload(t, queue))
		m.now = m.Look(t)
	}
	if p := m.anyProcess(t); !p.fenced {
		m.request(t, p, nil, []store.Queue{queue}, 1, "answered")
		m.now = m.Look(t)
	}
}

// turns is how the tenants of a queue take turns.
func (m *model) turns(queue string) *store.Fair {
	if m.goTenants(queue) {
		return store.NewFair(store.ByGo, nil, 1)
	}
	return store.NewFair(0, map[string]int{"0": 3, "go A": 2}, 1)
}

// goTenants reports whether Go names all tenants of a queue.
func (m *model) goTenants(queue string) bool { return queue == "c" || m.named[queue] }

var firstArgument = regexp.MustCompile(`^{"class":"[^"]*","args":\[(?:"([^"]*)"|(-?\d+))[,\]]`)

// plainTenant returns the tenant of a payload that the script finds by itself.
func (m *model) plainTenant(queue, payload string) (string, bool) {
	if theQueue(queue).Unique {
		return "", true // without turns
	}
	found := firstArgument.FindStringSubmatch(payload)
	odd := strings.ContainsFunc(payload, func(r rune) bool { return r < 32 || r > 126 || r == '\\' })
	if m.goTenants(queue) || found == nil || odd {
		return "", false
	}
	return found[1] + found[2], true
}

func (m *model) tenant(queue, payload string) string {
	if tenant, ok := m.plainTenant(queue, payload); ok {
		return tenant
	}
	return "go " + m.bodies[payload].class
}

// checkTurns holds the lines of tenants to what is known of them: each has jobs of its tenant alone, or those
// that came back; each has a turn; and the count of the queue is theirs. It returns how many jobs they have.
func (m *model) checkTurns(t *rapid.T) map[string]int {
	counts := map[string]int{}
	for _, l := range m.now.Turns() {
		m.See("turns")
		counts[l.Queue] += len(l.Payloads)
		if l.Name == "!" {
			m.See("came back")
		}
		for _, payload := range l.Payloads {
			if tenant := m.tenant(l.Queue, payload); l.Name != "="+tenant && l.Name != "!" {
				t.Fatalf("a job of %q waits in the line of %q of %s: %q", tenant, l.Name, l.Queue, payload)
			}
		}
		if _, known := m.now.Hash("resqued:turns:" + l.Queue)[l.Name]; !known {
			t.Fatalf("I5: %d jobs of %q of %s have no turn", len(l.Payloads), l.Name, l.Queue)
		}
	}
	for _, q := range modelQueues {
		if n := m.now.Number("resqued:turned", q.Name); n != counts[q.Name] {
			t.Fatalf("%d jobs of %s count as waiting for their turn, and %d are", n, q.Name, counts[q.Name])
		}
	}
	return counts
}

// fairMutants are defects of what is done with turns; see mutants.
var fairMutants = []storetest.Mutant{
	{"a job that was taken stays in the queue", "exchange_fair", `if f.gone > 0 then call('LTRIM', f.key, fmt('%d', f.gone), '-1') end`, ``},
	{"a job that was taken stays in the line of its tenant", "exchange_fair", `call('LTRIM', f.lines.tenant(f.queue, t.place), fmt('%d', t.there), '-1')`, ``},
	{"one job too many leaves the line of its tenant", "exchange_fair", `call('LTRIM', f.lines.tenant(f.queue, t.place), fmt('%d', t.there), '-1')`, `call('LTRIM', f.lines.tenant(f.queue, t.place), fmt('%d', t.there + 1), '-1')`},
	{"what nobody has taken is lost", "exchange_fair", `if type(pcall_('RPUSH', list, unpack(payloads, from))) == 'number' then`, `if true then`},
	{"a job that was taken is also put into a line", "exchange_fair", `local payloads, from = f.fresh[place], (used[place] or 0) + 1`, `local payloads, from = f.fresh[place], math.max(used[place] or 0, 1)`},
	{"a job goes to the line of another tenant", "exchange_fair", `      place = '=' .. place
`, `      place = '=' .. (f.places[2] and sub(f.places[2], 2) or place)
`},
	{"the names of tenants from Go are ignored", "exchange_tenants", `return line.named[queue .. '\0' .. redis.sha1hex(payload)]`, `return nil`},
	{"a newcomer has no turn", "exchange_fair", `if #args > 0 then call('ZADD', f.set, 'NX', unpack(args)) end`, ``},
	{"the first tenants have no turn", "exchange_fair", `(f.waits or added > 0) and #scores or 0, 1000 do`, `0, 1000 do`},
	{"a tenant loses its turn while a job waits", "exchange_fair", `if not payload then
    f.over`, `if payload then f.over[#f.over + 1] = t.place end
  if not payload then
    f.over`},
	{"jobs that wait for turns are not counted", "lines", `if n ~= 0 then kept('HINCRBY', turned, queue, fmt('%d', n)) end`, ``},
	{"jobs that are taken count as waiting for turns", "exchange_fair", `f.lines.add(f.queue, added - served, added - served)`, `f.lines.add(f.queue, added - served, added)`},
	{"a job of a tenant runs though its lock is held", "exchange_lines", `q.requests.kept(lock) or not take(lock, me .. asked[w][1])) then`, `q.requests.kept(lock)) then`},
	{"a job whose lock is held is lost", "exchange_lines", `table.insert(q.ends[name], payload)`, `if #q.ends[name] == 0 then table.insert(q.ends[name], payload) end`},
	{"suspects among tenants run beside others", "exchange_lines", `if blamed and not (name and (mates or line.behind(q.queue, payload, lock))) then`, `if false then`},
	{"a suspect of a tenant stays", "exchange_fair", `if aside == nil then return false end`, `if aside == nil then return false end
  if aside then
    f.over[#f.over + 1], f.at = t.place, f.at + 1
    return true
  end`},
	{"a job that comes back has no turn", "lines", `type(kept('ZADD', l.turns(queue), '-1', '!')) ~= 'number'`, `false`},
	{"a job that comes back is lost", "lines", `type(pcall_('LPUSH', l.tenant(queue, '!'), payload)) ~= 'number' then`, `false then`},
	{"a job that comes back is not counted", "lines", `then return false end
    l.add(queue, 1, 1)`, `then return false end
    l.add(queue, 1)`},
	{"a tenant whose jobs others have removed is still counted", "lines", `l.add(queue, -n, -n)
      if`, `l.add(queue, -n)
      if`},
	{"a poll does not see tenants", "line_locks", `local open, noted = waits or`, `local open, noted =`},
	{"a purge leaves the jobs of tenants", "drop_lines", `local n = drop(l.tenant(queue, place))`, `local n = 0`},
	{"a paused queue's tenants are served", "exchange_fair", `line.known.turns(queue)) == 1) or paused(prefix, queue) then`, `line.known.turns(queue)) == 1) then`},
	{"a loner is not seen in the line of a tenant", "classlock", `ipairs({'line', 'turn'})`, `ipairs({'line'})`},
	{"tenants are not served where workers of others are", "exchange_fair", `line.known and pcall_('EXISTS', line.known.turns(queue)) == 1)`, `false)`},
	{"counts end while tenants wait", "lines", `if pcall_('EXISTS', prefix .. 'resqued:lines:' .. queue, l.turns(queue)) ~= 0 then return end`, `if pcall_('EXISTS', prefix .. 'resqued:lines:' .. queue) ~= 0 then return end`},
}

// fairShortcuts are those of fairMutants; see shortcuts.
var fairShortcuts = map[string]int{
	"a loner is not seen in the line of a tenant": 24,
}

// TestModelFairFindsDefects is TestModelFindsDefects for these.
func TestModelFairFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: fairMutants, Prepare: storetest.OnRig(fairSequence), Shortcuts: fairShortcuts}
	defects.Find(t)
	for name, seed := range fairShortcuts {
		require.True(t, slices.ContainsFunc(fairMutants, func(m storetest.Mutant) bool { return m.Name() == name }), name)
		require.Less(t, seed, storetest.Sequences, name)
	}
}
