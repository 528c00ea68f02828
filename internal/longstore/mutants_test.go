package longstore_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/storetest"
)

// longMutants are defects of the scripts of long jobs, as those of mutants_test.go.
var longMutants = []storetest.Mutant{
	{"a unique run is enqueued beside another", "add", `way ~= 'a' and active`, `way == 'x' and active`},
	{"a run that is over is in the way", "add", `active(call(`, `(call(`},
	{"one more that is asked for is forgotten", "add", `'rerun', '1')`, `'other', '1')`},
	{"a run that has not begun is followed by another", "add", `call('HGET', runkey(prefix, old), 'begun')`, `'1'`},
	{"a run goes on beside the one that takes its place", "add", `if old then displace`, `if false then displace`},
	{"an older run is not looked at", "add", `if old then needhash`, `if false then needhash`},

	{"a run that is over begins a slice", "begin", `if not active(v[1])`, `if false`},
	{"any slice begins", "begin", `if slice ~= '0' and slice ~= v[2]`, `if false`},
	{"who has lost the record begins a slice", "begin", `if not recorded(prefix, me)`, `if false`},
	{"who has no lease begins a slice", "begin", `if not leased(`, `if false and leased(`},
	{"two run a slice", "begin", `and recorded(prefix, before)`, `and false`},
	{"nobody takes over from the dead", "begin", `and recorded(prefix, before)`, ``},
	{"a run begins beside the code of the one before it", "begin", `if not v[15] and v[9] and v[9] ~= me and`, `if false and`},
	{"the fence stands still", "begin", `number(v[4], 9e15) + 1, us`, `number(v[4], 9e15), us`},
	{"the fence begins anew", "begin", `math.max(number(v[4], 9e15) + 1, us)`, `us`},
	{"a fence may have been given before", "begin", `+ 1, us)`, `+ 1)`},
	{"a death is not counted", "begin", `deaths + 1`, `deaths`},
	{"a full server keeps a run from its next slice", "begin", `call('PERSIST', KEYS[1])`, ``},
	{"a slice that begins is not a sign of life", "begin", `call('ZADD', activekey(prefix), at, id)`, ``},

	{"a slice saves under an old fence", "save", `if v[4] ~= fence`, `if false`},
	{"a run that is over is saved", "save", `if v[1] ~= 'running'`, `if false`},
	{"who is believed to be dead saves", "save", ` or not recorded(prefix, me)`, ``},
	{"who has no lease saves", "save", `if not leased(`, `if false and leased(`},
	{"an end that is told twice is an error", "save", `if ends and v[5] == fence`, `if false`},
	{"a full server keeps a slice from its end", "save", `call('PERSIST', KEYS[1])`, ``},
	{"what a run is to remember is lost", "save", `call('HSET', statekey(prefix, id), ARGV[i], ARGV[i + 1])`, ``},
	{"what a run is to forget stays", "save", `call('HDEL', statekey(prefix, id), ARGV[i])`, ``},
	{"progress does not end the count of deaths", "save", `, 'deaths', '0'`, ``},
	{"the next slice is lost", "save", `queueslice(`, `tostring(`},
	{"the next slice does not wait", "save", `fmt('%.0f', ms + wait), delayed(`, `fmt('%.0f', ms), delayed(`},
	{"the next slice has the number of the last", "save", `tonumber(slice) + 1`, `tonumber(slice)`},
	{"the queue of a run is not that of its class", "save", `if v[11] and v[11] ~= '' then`, `if false then`},
	{"a slice that has ended is somebody's", "save", `'owner', '', 'closed'`, `'closed'`},
	{"the end of a slice is not noted", "save", `'closed', fence, `, ``},
	{"a slice that is to run again is followed by another", "save", `if op == 'k' then`, `if false then`},
	{"one more does not follow", "save", `if not rerun then`, `if true then`},
	{"one more follows always", "save", `final and v[6] == '1'`, `final`},
	{"what waits is added to whatever is there", "save", `if not counts('ZCARD', set)`, `if false`},
	{"a completed run remembers", "save", `if op == 'd' then call('DEL'`, `if false then call('DEL'`},
	{"a failed run forgets", "save", `if op == 'd' then call('DEL'`, `if true then call('DEL'`},
	{"a run that is followed is kept like the newest", "save", `displace(prefix, id, shortly, ms)`, ``},

	{"a run that is over is cancelled", "cancel", `if not active(v[1])`, `if not v[1]`},
	{"a cancelled run does not tell that it runs still", "cancel", `recorded(prefix, v[2])`, `false`},
	{"a full server keeps a run from being cancelled", "cancel", `call('PERSIST', KEYS[1])`, ``},

	{"a run goes on beside its last slice", "again", `and recorded(prefix, v[3])`, `and false`},
	{"a run goes on for who looked long ago", "again", `if v[2] ~= slice`, `if false`},
	{"a run goes on beside a newer one", "again", `if newest and newest ~= id`, `if false`},
	{"a run goes on beside the code of a newer one", "again", `if before then`, `if false then`},
	{"a completed run goes on", "again", ` or v[1] == 'completed'`, ``},
	{"a superseded run goes on", "again", ` or v[1] == 'superseded'`, ``},
	{"a run that is well is lost", "again", `if lost ~= active(v[1]) or`, `if`},
	{"a run goes on under the number of its last slice", "again", `tonumber(slice) + 1`, `tonumber(slice)`},
	{"a run that goes on has no payload", "again", `queueslice(`, `tostring(`},
	{"a run that goes on is forgotten in time", "again", `call('ZREM', endedkey(prefix), id)`, ``},
	{"a run that goes on is not the newest", "again", `call('HSET', currentkey(prefix), v[5], id)`, ``},
	{"a lost run has not died", "again", `tonumber(v[6] or 0) + 1`, `0`},
	{"an error stays when a run goes on", "again", `'ended', 'error', 'failures'`, `'ended'`},

	{"a paused run begins a slice", "begin", `if v[15] then`, `if false then`},
	{"a paused run goes on at the end of its slice", "save", `if op == 'y' and v[16] then`, `if false then`},
	{"a lost run that is paused goes on", "again", `if v[11] then`, `if false then`},
	{"a run that is over is paused", "pause_run", `if not active(v[1])`, `if not v[1]`},
	{"a run is paused anew", "pause_run", `if not v[4] then`, `if true then`},
	{"a run that is resumed has two payloads", "resume_run", `if not v[7] then`, `if false then`},
	{"a run that is resumed has no payload", "resume_run", `queueslice(`, `tostring(`},
	{"a run is resumed for who looked long ago", "resume_run", `if v[2] ~= slice`, `if false`},
	{"a paused run is taken for lost", "longjob_runs", `'9000000000000000'`, `fmt('%.0f', ms)`},

	{"runs are forgotten before their time", "forget", `'-inf', fmt('%.0f', ms)`, `'-inf', '+inf'`},
	{"the state of a run outlives it", "forget", `, statekey(prefix, id))`, `)`},
	{"a newer run is forgotten with an older one", "forget", `== id then`, `then`},
	{"the newest run is one that was forgotten", "forget", `call('HDEL', current, kind)`, ``},
	{"the locks of the living are forgotten", "forget", `if not recorded(`, `if true or recorded(`},
	{"the locks of the dead stay", "forget", `if not recorded(`, `if false and recorded(`},

	{"a named lock is taken over", "lock", `and recorded(prefix, value)`, `and false`},
	{"a named lock of the dead stays in the way", "lock", `and recorded(prefix, value)`, ``},
	{"a named lock is released by anybody", "lock", `if value == me then`, `if value then`},
	{"a named lock is not released", "lock", `if value == me then`, `if false then`},
	{"who has lost the record takes a lock", "lock", `not recorded(prefix, me) or `, ``},
	{"who has no lease takes a lock", "lock", ` or not leased(prefix, proc, (now()))`, ``},

	{"records live for ever", "longjob", `return p and call('HEXISTS'`, `return p or call('HEXISTS'`},
	{"leases live for ever", "longjob", `return lease and lease >= ms`, `return lease`},
	{"a slice is pushed beside the keys of a unique queue", "append", `call('EXISTS', key .. ':uniqueue') == 1 and`, `false and`},
	{"a run knows only of the one before it", "longjob_runs", `ipairs({v[1] or '', v[2] or ''})`, `ipairs({v[1] or ''})`},
	{"a new run does not know of the one before it", "longjob_runs", `if name then call`, `if false then call`},
	{"a new run is not the newest", "longjob_runs", `call('HSET', currentkey(prefix), kind, id)`, ``},
	{"a new run is not looked after", "longjob_runs", `call('ZADD', activekey(prefix), at, id)`, ``},
	{"a run that is over is looked after", "longjob_runs", `call('ZREM', activekey(prefix), id)`, ``},
	{"one more is asked of a run that is over", "longjob_runs", `call('HDEL', runkey(prefix, id), 'rerun', 'paused', 'parked')`, ``},
	{"a superseded run remembers", "longjob_runs", `call('DEL', statekey(prefix, id))`, ``},
	{"an old run is kept for longer when a newer one comes", "longjob_runs", `if at > ms + keep then`, `if true then`},
	{"a queue that is none is found out too late", "longjob", `if not queue then return end`, `if true then return end`},
	{"a run that is none is found out too late", "longjob", `if not counts('HLEN', key)`, `if false`},
}

// longShortcuts are shortcuts for defects of the scripts of long jobs.
var longShortcuts = map[string]int{
	"an older run is not looked at":                         630,
	"a run goes on beside the code of a newer one":          84,
	"who has lost the record takes a lock":                  37,
	"who is cancelled leaves at once":                       666,
	"a named lock is not released":                          26,
	"who steps back stands behind":                          22,
	"who has no lease saves":                                23,
	"a completed run goes on":                               18,
	"an error stays when a run goes on":                     17,
	"what waits is added to whatever is there":              15,
	"who goes on again jumps the line":                      14,
	"a queue that is none is found out too late":            12,
	"progress does not end the count of deaths":             12,
	"who is believed to be dead saves":                      12,
	"the fence begins anew":                                 12,
	"the fence stands still":                                12,
	"two run a slice":                                       12,
	"who has no lease takes a lock":                         11,
	"leases live for ever":                                  10,
	"a named lock is released by anybody":                   10,
	"a named lock of the dead stays in the way":             10,
	"a named lock is taken over":                            10,
	"a lost run has not died":                               10,
	"a run goes on beside its last slice":                   10,
	"who has no lease begins a slice":                       10,
	"a superseded run remembers":                            9,
	"a run that goes on is not the newest":                  9,
	"a tick starts more than belong to it":                  8,
	"new ones that have waited for an interval need credit": 8,
	"less time counts than has passed":                      8,
	"what has piled up starts at once":                      8,
	"a run that is none is found out too late":              6,
	"a run that is followed is kept like the newest":        6,
	"who has lost the record begins a slice":                6,
	"who stands in line is forgotten":                       6,
	"who waits keeps the slice":                             6,
	"whoever is in a queue may run":                         6,
	"the last start is not remembered":                      6,
}

// TestLongShortcuts: each leads to a defect.
func TestLongShortcuts(t *testing.T) {
	t.Parallel()
	var names []string
	for _, m := range longMutants {
		names = append(names, m.Name())
	}
	for _, d := range slices.Concat(tenantDefects, recurringDefects) {
		names = append(names, d.Name())
	}
	require.Subset(t, names, slices.Collect(maps.Keys(longShortcuts)))
	for name, seed := range longShortcuts {
		require.Less(t, seed, storetest.Sequences, name)
	}
}

// TestLongModelFindsDefects is TestModelFindsDefects of package store for long jobs.
func TestLongModelFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: longMutants, Prepare: storetest.OnRig(longSequence), Shortcuts: longShortcuts}
	defects.Find(t)
}
