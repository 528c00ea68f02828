package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRunners(t *testing.T) {
	t.Parallel()
	t.Run("a runner has defaults, and a handler the time of its runner", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: `
thread_count: 4
handlers:
  "*": {runner: app}
  Report: {runner: big.one, timeout: 10m, kill_after: 4s}
runners:
  app: {command: [bundle, exec, resqued-runner, config/environment], kill_after: 7s}
  big.one:
    command: [node, runner.js]
    dir: /srv/app
    env: {RAILS_ENV: secret}
    fork: false
    concurrency: 4
    boot_timeout: 10m
    jobs_per_runner: 50
    max_rss: 1GiB
    max_age: 1d
    kill_after: 5
    classes: [Report, "Billing::*", "!Billing::Old"]
`}.mustLoad(t)
		require.Empty(t, r.Warnings)
		require.Equal(t, map[string]Runner{
			"app": {
				Command: []string{"bundle", "exec", "resqued-runner", "config/environment"},
				Fork:    true, Concurrency: 1, BootTimeout: 2 * time.Minute, KillAfter: 7 * time.Second,
			},
			"big.one": {
				Command: []string{"node", "runner.js"}, Dir: "/srv/app", Env: map[string]string{"RAILS_ENV": "secret"}, Concurrency: 4,
				BootTimeout: 10 * time.Minute, JobsPerRunner: 50, MaxRSS: 1 << 30, MaxAge: 24 * time.Hour, KillAfter: 5 * time.Second,
				Classes: []string{"Report", "Billing::*", "!Billing::Old"},
			},
		}, r.Runners)
		require.Equal(t, map[string]Handler{
			"*":      {Runner: "app", KillAfter: 7 * time.Second},
			"Report": {Runner: "big.one", Timeout: 10 * time.Minute, KillAfter: 4 * time.Second},
		}, r.Handlers)
		require.Equal(t, []string{"*"}, r.Of("app"))
		require.Equal(t, 7, r.Sources["runners.app"].Line)

		plan := ""
		for _, line := range Plan(r) {
			if line.Key == "runners" || line.Key == "handlers" {
				plan += line.Item + ": " + line.Value + "\n"
			}
		}
		require.Equal(t, `: 2
*: runner app, kill_after 7s
Report: runner big.one, timeout 10m, kill_after 4s
: 2
app: bundle exec resqued-runner config/environment, concurrency 1, boot_timeout 2m, kill_after 7s
big.one: node runner.js, dir /srv/app, no fork, concurrency 4, boot_timeout 10m, jobs_per_runner 50, max_rss 1GiB, max_age 24h, kill_after 5s, classes Report,Billing::*,!Billing::Old
`, plan)
	})

	t.Run("values of variables are secret, and are no part of the fingerprint", func(t *testing.T) {
		t.Parallel()
		load := func(value string) *Resolved {
			return from{yaml: "runners: {a: {command: [x], env: {A: " + value + "}}}\nhandlers: {'*': {runner: a}}"}.mustLoad(t)
		}
		one, other := load("first"), load("second")
		require.Equal(t, one.Fingerprint(), other.Fingerprint())
		require.NotEqual(t, "first", one.Redacted().Runners["a"].Env["A"])
		require.Equal(t, "first", one.Runners["a"].Env["A"])
		changed := from{yaml: "runners: {a: {command: [y], env: {A: first}}}\nhandlers: {'*': {runner: a}}"}.mustLoad(t)
		require.NotEqual(t, one.Fingerprint(), changed.Fingerprint())
	})

	t.Run("sections that are commented out say nothing", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, from{yaml: "runners:\n#  app: {}\n"}.mustLoad(t).Runners)
	})

	t.Run("the programs are looked for", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []Warning{
			{Key: "runners.app.command", Code: "no_program", Message: `runner app: there is no program "no-such-program" here, or it may not be executed`},
			{Key: "runners.dir.dir", Code: "no_directory", Message: `runner dir: there is no directory "/no/such" here`},
		}, CheckPrograms(Config{
			Handlers: map[string]Handler{"*": {Runner: "app"}},
			Runners: map[string]Runner{
				"app": {Command: []string{"no-such-program"}}, "dir": {Command: []string{"sh"}, Dir: "/no/such"}, "fine": {Command: []string{"sh"}},
			},
		}))
	})
}

func TestRunnersRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, yaml, want string }{
		{"a runner that is nearly one", "handlers: {A: {runner: ap}}\nrunners: {app: {command: [x]}}", `handlers.A.runner "ap" (resqued.yaml:1): there is no such runner; did you mean "app"?`},
		{"a runner that is none", "handlers: {A: {runner: zebra}}\nrunners: {app: {command: [x]}}", `handlers.A.runner "zebra" (resqued.yaml:1): there is no such runner; there is app`},
		{"a name with a slash", "runners: {a/b: {command: [x]}}", `runners.a/b (resqued.yaml:1): the name of a runner is letters, digits, "_", "-" and ".", and 64 characters at most`},
		{"a runner twice", "runners:\n  a: {command: [x]}\n  a: {command: [y]}", `runners.a (resqued.yaml:3): is given already on line 2; keep one of them`},
		{"a list for runners", "runners: [a]", `runners (resqued.yaml:1): must be a map of names to runners: app: {command: [bundle, exec, resqued-runner, config/environment]}`},
		{"the section in the singular", "runner: {a: {command: [x]}}", `runner (resqued.yaml:1): unknown key; did you mean "runners"?`},
		{"a secret that is a map", "runners: {a: {command: [x], env: {B: {secret: word}}}}", `runners.a.env.B (resqued.yaml:1): must be one value; put it in quotes`},
		{"a long job for a pattern", "handlers: {'Big::*': {command: [x], queue: a, long_job: true}}", `handlers.Big::*.long_job (resqued.yaml:1): a long job needs its class's own name, because its runs are kept under it; this is a pattern`},
		{"a pattern that matches nothing", "handlers: {'Big[z-a]': {command: [x]}}", `handlers.Big[z-a] (resqued.yaml:1): its range runs backwards`},
		{"an exclusion", "handlers: {'!Big': {command: [x]}}", `handlers.!Big (resqued.yaml:1): is no pattern: only lists have exclusions; give these classes a handler of their own`},
		{"a star without quotes", "handlers: {*: {command: [x]}}", `resqued.yaml:1: did not find expected alphabetic or numeric character; a value that starts with "*", "&" or "!" needs quotes: "*"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := from{yaml: tc.yaml}.load(t)
			require.EqualError(t, err, tc.want)
		})
	}
	t.Run("a handler whose class its runner does not perform is warned of", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: "handlers: {A: {runner: a}, B: {runner: a}}\nrunners: {a: {command: [x], classes: [B]}}"}.mustLoad(t)
		require.Len(t, r.Warnings, 1)
		require.Equal(t, "A: the classes of runner a leave it out: every job of it will fail.", r.Warnings[0].Message)
	})
}
