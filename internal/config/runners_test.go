package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
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

	t.Run("values of variables are secret, and are not part of the fingerprint", func(t *testing.T) {
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
		{"an exclusion", "handlers: {'!Big': {command: [x]}}", `handlers.!Big (resqued.yaml:1): is not a pattern: only lists have exclusions; give these classes a handler of their own`},
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

func TestRunnerFlag(t *testing.T) {
	t.Parallel()
	load := func(t *testing.T, yaml string, given ...string) (*Resolved, error) {
		t.Helper()
		flags := pflag.NewFlagSet("work", pflag.ContinueOnError)
		AddFlags(flags)
		AddRunnerFlag(flags)
		for _, text := range given {
			if err := flags.Set(RunnerFlag, text); err != nil {
				return nil, err
			}
		}
		path := NoFile
		if yaml != "" {
			path = filepath.Join(t.TempDir(), "resqued.yaml")
			require.NoError(t, os.WriteFile(path, []byte(yaml), 0o600))
		}
		r, err := Load(Options{File: path, Environ: []string{}, Flags: flags})
		if err != nil {
			err = errors.New(strings.ReplaceAll(err.Error(), filepath.Dir(path)+"/", ""))
		}
		return r, err
	}
	app := newRunner()
	app.Command = []string{"ruby", "a b.rb"}

	t.Run("it is a runner for every class", func(t *testing.T) {
		t.Parallel()
		r, err := load(t, "", "ruby 'a b.rb'")
		require.NoError(t, err)
		require.Empty(t, r.Warnings)
		require.Equal(t, map[string]Runner{"app": app}, r.Runners)
		require.Equal(t, map[string]Handler{"*": {Runner: "app", KillAfter: DefaultKillAfter}}, r.Handlers)
		require.Equal(t, "flag --runner", r.Sources["runners.app"].String())
		require.Equal(t, "flag --runner", r.Sources["handlers.*"].String())
		r, err = load(t, "")
		require.NoError(t, err)
		require.Empty(t, r.Runners)
	})
	t.Run("handlers of the file stand beside it, and may name it", func(t *testing.T) {
		t.Parallel()
		r, err := load(t, "handlers: {Mail: {runner: app, timeout: 5m}, Thumb: {command: [x]}}\nrunners: {other: {command: [x]}}", "ruby 'a b.rb'")
		require.NoError(t, err)
		require.Len(t, r.Handlers, 3)
		require.Equal(t, []string{"*", "Mail"}, r.Of("app"))
	})
	t.Run("programs that cannot fork boot each for itself", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]bool{
			"ruby a": true, "bundle exec x": true, "python3.12 -m x": true, "node a.js": false, "/usr/bin/node20 a.js": false, "npx x": false, "env A=1 node a": false, "env A=1 ruby a": true,
		} {
			r, err := load(t, "", text)
			require.NoError(t, err)
			require.Equal(t, want, r.Runners["app"].Fork, text)
		}
	})
	for _, tc := range []struct{ name, yaml, flag, want string }{
		{"a handler for every class", "handlers:\n  '*': {command: [x]}", "ruby a", `runner "ruby a" (flag --runner): the configuration has a handler for "*" already (resqued.yaml:2); leave one of them out`},
		{"a runner of that name", "runners: {app: {command: [x]}}", "ruby a", `runner "ruby a" (flag --runner): the configuration has a runner app already (resqued.yaml:1); leave --runner out, and write handlers: {"*": {runner: app}}`},
		{"a pipe", "", "ruby a | cat", `runner "ruby a | cat" (flag --runner): '|' at character 8 needs a shell, and none is involved; in single quotes the program gets it as it is, and sh -c '…' starts a shell`},
		{"nothing", "", "", `runner (flag --runner): names no program; write the program first: --runner 'bundle exec resqued-runner config/environment'`},
	} {
		t.Run(tc.name+" is refused", func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.yaml, tc.flag)
			require.EqualError(t, err, tc.want)
		})
	}
	_, err := load(t, "", "ruby a", "ruby b")
	require.ErrorContains(t, err, `given already, with "ruby a"`)
	_, err = load(t, "", "ruby a", "ruby a") // as completion reads them
	require.NoError(t, err)
}
