package config

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/schedule"
)

func TestSchedule(t *testing.T) {
	t.Parallel()
	r := from{yaml: `
handlers:
  Report: {command: [report], queue: reports}
schedule:
  nightly:
    cron: 0 2 * * *
    timezone: Europe/Berlin
    class: Report
    args: [1, 0x10, 1.10, "2", yes, null, ~, 2026-01-01, {b: 1, a: [<é>]}]
    if_running: skip
    catch_up: all
    description: a word
  Heartbeat: {every: [30s, {first_in: 5m}], queue: checks, args: one}
`}.mustLoad(t)
	require.Equal(t, []schedule.Definition{
		{
			Name: "Heartbeat", Class: "Heartbeat", Queue: "checks", Args: json.RawMessage(`["one"]`), Every: "30s", FirstIn: "5m",
			IfRunning: "queue", CatchUp: "last",
		},
		{
			Name: "nightly", Class: "Report", Queue: "reports", Cron: "0 2 * * *", TimeZone: "Europe/Berlin", IfRunning: "skip", CatchUp: "all",
			Args: json.RawMessage(`[1,16,1.1,"2",true,null,null,"2026-01-01",{"b":1,"a":["<é>"]}]`), Description: "a word",
		},
	}, r.Schedules)
	require.Equal(t, 5, r.Sources["schedule.nightly"].Line)
	require.Empty(t, from{yaml: "schedule:"}.mustLoad(t).Schedules)
	prefix, shared := from{env: "RESQUED_SCHEDULER_LOCK=resque-scheduler:team"}.mustLoad(t).SchedulerLockPrefix()
	require.Equal(t, "team", prefix)
	require.True(t, shared)
	_, shared = from{}.mustLoad(t).SchedulerLockPrefix()
	require.False(t, shared)
}

// TestScheduleArgsOfRuby compares with what Psych 4.0.3 and Ruby's json make of the same YAML.
func TestScheduleArgsOfRuby(t *testing.T) {
	t.Parallel()
	schedule := func(args string) string {
		return "schedule:\n  n:\n    every: 1h\n    queue: :high\n    args:" + args
	}
	for args, want := range map[string]string{
		"\n      :account: 5": `[{"account":5}]`,
		"\n    - :all\n    - ':x'\n    - \":x\"\n    - :\"a b\"": `["all",":x",":x","a b"]`,
		" [yes, off, No, on, tRue, 'yes']":                       `[true,false,false,true,true,"yes"]`,
		" [y, n, nUll, ~, 'null']":                               `["y","n",null,null,"null"]`,
		" [017, 0x1F, 0b11, 1_000, -3]":                          `[15,31,3,1000,-3]`,
		" [1.50, 5., .5, 1.5e+3]":                                `[1.5,5.0,0.5,1500.0]`,
		" [123456789012345678901234]":                            `[123456789012345678901234]`,
		" {yes: 1, 1: 2, 1.50: 3, 'a': 4}":                       `[{"true":1,"1":2,"1.5":3,"a":4}]`,
		" [2026-01-05, 1.2.3, a:b, 1 000]":                       `["2026-01-05","1.2.3","a:b","1 000"]`,
		" [!!str yes]":                                           `["yes"]`,
	} {
		r := from{yaml: schedule(args)}.mustLoad(t)
		require.Equal(t, want, string(r.Schedules[0].Args), args)
		require.Equal(t, "high", r.Schedules[0].Queue)
	}
	for _, arg := range []string{"12:30:45", "12:30", "190:20:30.15", "1,000", "1e3", "1.5e3", "0o17", "089", "2026-01-05 10:00:00", "2026-01-05T10:00:00Z", "2026-1-5"} {
		_, err := from{yaml: schedule("\n    - " + arg)}.load(t)
		require.ErrorContains(t, err, "Ruby and others read \""+arg+"\" differently")
	}
}

func TestScheduleRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, yaml, want string }{
		{"a list", "[a]", `schedule (resqued.yaml:1): must be a map of names to schedules: nightly: {cron: "0 2 * * *", class: Report, queue: reports}`},
		{"a text", "{n: nightly}", `schedule.n (resqued.yaml:1): must be a map: {cron: "0 2 * * *", class: Report, queue: reports}`},
		{"no time", "{n: {queue: q}}", `schedule.n (resqued.yaml:1): says nothing of when; write cron: "0 2 * * *" or every: 30m`},
		{"two times", "{n: {cron: '0 2 * * *', every: 1h}}", `schedule.n.cron "0 2 * * *" (resqued.yaml:1): has both cron and every; keep one of them`},
		{"too few fields", "{n: {cron: '0 2 * *'}}", `schedule.n.cron "0 2 * *" (resqued.yaml:1): has 4 fields; it takes five (minute, hour, day, month, weekday), or six with the second in front`},
		{"a date that never comes", "{n: {cron: '0 0 31 2 *'}}", `schedule.n.cron "0 0 31 2 *" (resqued.yaml:1): never comes: there is no such date`},
		{"an unknown zone", "{n: {cron: '@daily', timezone: Berlin}}", `schedule.n.cron "@daily" (resqued.yaml:1): there is no time zone "Berlin"; write one such as Europe/Berlin`},
		{"an interval of no time", "{n: {every: soon}}", `schedule.n.every "soon" (resqued.yaml:1): "soon" is not an interval; write 30s, 10m, 1h30m, 2d or 1w`},
		{"an option of rufus-scheduler", "{n: {every: [1h, {overlap: false}]}}", `schedule.n.every.overlap (resqued.yaml:1): not supported; if_running and catch_up say what happens to ticks`},
		{"an unknown word", "{n: {every: 1h, if_running: drop}}", `schedule.n.if_running "drop" (resqued.yaml:1): not known, one of queue, unique, skip`},
		{"another", "{n: {every: 1h, catch_up: some}}", `schedule.n.catch_up "some" (resqued.yaml:1): not known, one of last, none, all`},
		{"an unknown field", "{n: {evry: 1h}}", `schedule.n.evry (resqued.yaml:1): unknown key; did you mean "every"?`},
		{"a synonym", "{n: {tz: UTC}}", `schedule.n.tz (resqued.yaml:1): unknown key; did you mean "timezone"?`},
		{"what is resque-scheduler's", "{n: {every: 1h, rails_env: test}}", `schedule.n.rails_env (resqued.yaml:1): is resque-scheduler's and not supported; remove it`},
		{"a queue with the key of a unique one", "{n: {every: 1h, queue: 'a:uniqueue'}}", `schedule.n.queue "a:uniqueue" (resqued.yaml:1): queue "a:uniqueue" cannot be used: its key is that of the unique queue "a"; choose a name that does not end in :uniqueue`},
		{"a queue that is a pattern", "{n: {every: 1h, queue: 'a*'}}", `schedule.n.queue "a*" (resqued.yaml:1): must be one queue, not a pattern or a list`},
		{"arguments that are not JSON", "{n: {every: 1h, args: [.nan]}}", `schedule.n.args (resqued.yaml:1): line 1: ".nan" is not a number in JSON`},
		{"a name twice", "{n: {every: 1h}, n: {every: 2h}}", `schedule.n (resqued.yaml:1): is given already on line 1; keep one of them`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := from{yaml: "schedule: " + tc.yaml}.load(t)
			require.EqualError(t, err, tc.want)
		})
	}
	_, errs := from{env: "RESQUED_SCHEDULER_LOCK=ruby"}.load(t)
	require.ErrorContains(t, errs, "not known, one of none, resque-scheduler")
}
