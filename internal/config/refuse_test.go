package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		from
		want string // the whole error
	}{
		// Counts.
		{
			"a word for a number",
			from{env: "WORKER_COUNT=many"},
			`worker_count "many" (environment WORKER_COUNT): not a whole number; must be 1 to 1024 (each is a process of its own)`,
		},
		{
			"a number with a tail",
			from{flags: "--thread-count 8x"},
			`thread_count "8x" (flag --thread-count): not a whole number; must be 1 to 4096 (each is registered as a worker in Redis)`,
		},
		{
			"a fraction of a process",
			from{yaml: "worker_count: 1.5"},
			`worker_count "1.5" (resqued.yaml:1): not a whole number; must be 1 to 1024 (each is a process of its own)`,
		},
		{"no process", from{yaml: "worker_count: 0"}, `worker_count "0" (resqued.yaml:1): must be 1 to 1024 (each is a process of its own)`},
		{"a negative count", from{yaml: "\n\njobs_per_fork: -1"}, `jobs_per_fork "-1" (resqued.yaml:3): must be 0 or more (0 = no limit)`},
		{
			"more digits than a number has",
			from{env: "JOBS_PER_FORK=99999999999999999999"},
			`jobs_per_fork "99999999999999999999" (environment JOBS_PER_FORK): must be 0 or more (0 = no limit)`,
		},
		{
			"more retiring processes than processes",
			from{yaml: "max_retiring: 3\nworker_count: 2"},
			`max_retiring "3" (resqued.yaml:1): must be at most worker_count, which is 2 (resqued.yaml:2)`,
		},
		{"a port that is none", from{env: "STATSD_PORT=70000"}, `statsd_port "70000" (environment STATSD_PORT): must be 1 to 65535 (it is a UDP port)`},

		// Durations and sizes.
		{"a negative duration", from{yaml: "a: &d -5s\ninterval: *d"}, `a (resqued.yaml:1): unknown key; docs/configuration.md lists them all` + "\n" + `interval "-5s" (resqued.yaml:2): must not be negative`},
		{"not a number", from{yaml: "drain_timeout: .nan"}, `drain_timeout ".nan" (resqued.yaml:1): not a duration; write seconds (30, 0.5) or numbers with units (500ms, 30s, 1h30m, 7d, 2w)`},
		{"infinity", from{yaml: "drain_timeout: .inf"}, `drain_timeout ".inf" (resqued.yaml:1): not a duration; write seconds (30, 0.5) or numbers with units (500ms, 30s, 1h30m, 7d, 2w)`},
		{"another end of a drain", from{env: "RESQUED_DRAIN_TIMEOUT=50,retry"}, `drain_timeout "50,retry" (environment RESQUED_DRAIN_TIMEOUT): what is behind the comma is not known, one of requeue, fail`},
		{"another end of a drain in a map", from{yaml: "drain_timeout:\n  after: 50\n  then: retry"}, `drain_timeout.then "retry" (resqued.yaml:3): not known, one of requeue, fail`},
		{"a drain without its time", from{yaml: "drain_timeout: {then: fail}"}, `drain_timeout (resqued.yaml:1): after is missing, the time; write {after: 50s, then: requeue}`},
		{"a drain with a bad time", from{yaml: "drain_timeout: {after: soon}"}, `drain_timeout "soon,requeue" (resqued.yaml:1): not a duration; write seconds (30, 0.5) or numbers with units (500ms, 30s, 1h30m, 7d, 2w)`},
		{"a slip in the end of a drain", from{yaml: "drain_timeout: {after: 50s, than: fail}"}, `drain_timeout.than (resqued.yaml:1): unknown key; did you mean "then"?`},
		{"a duration that overflows", from{yaml: "max_age: 99999999999h"}, `max_age "99999999999h" (resqued.yaml:1): too large`},
		{"a duration of many years", from{yaml: "max_age: 100000h"}, `max_age "100000h" (resqued.yaml:1): too large: at most 8784h`},
		{"a poll that would spin", from{env: "INTERVAL=0.0001"}, `interval "0.0001" (environment INTERVAL): must be 1ms to 24h, or 0 to leave when every queue is empty`},
		{"no time to stop", from{env: "RESQUE_TERM_TIMEOUT=0"}, `resque_term_timeout "0" (environment RESQUE_TERM_TIMEOUT): must be above 0`},
		{"a size that overflows", from{yaml: "max_payload: 99999999999GiB"}, `max_payload "99999999999GiB" (resqued.yaml:1): too large`},
		{
			"megabytes without their unit",
			from{yaml: "max_rss: 512"},
			`max_rss "512" (resqued.yaml:1): must be 0 (no limit) or at least 32MiB, or every process is replaced as soon as it starts; a number without a unit is bytes`,
		},

		// Locks.
		{
			"a heartbeat that is not below the lock's expiry",
			from{env: "LOCKET_HEARTBEAT_FREQUENCY=35"},
			`heartbeat_frequency "35s" (environment LOCKET_HEARTBEAT_FREQUENCY): must be below job_lock_duration, which is 35s (default), or a lock expires before it is extended; set job_lock_duration: 40`,
		},
		{
			"a fraction of a second for a lock",
			from{yaml: "job_lock_duration: 35.5"},
			`job_lock_duration "35.5" (resqued.yaml:1): must be whole seconds above 0, because Redis expires locks by the second`,
		},
		{
			"an unknown lock key",
			from{yaml: "job_lock_key: ruby-payload"},
			`job_lock_key "ruby-payload" (resqued.yaml:1): not known, one of class-args, payload, ruby, ruby34, or a template such as {{class}}:{{args.0}}`,
		},
		{
			"a lock key template with a mistake",
			from{env: "LOCKET_JOB_LOCK_KEY={{class}}:{{arg.0}}"},
			`job_lock_key "{{class}}:{{arg.0}}" (environment LOCKET_JOB_LOCK_KEY): at character 11: {{arg.0}} is unknown; known are class, queue, args, args.N and args.N.key`,
		},
		{"a lock key template without quotes", from{yaml: "job_lock_key: {{class}}"}, `job_lock_key (resqued.yaml:1): must be one value, not a map`},
		{"an unknown end of the jobs of the dead", from{yaml: "on_worker_death: kill"}, `on_worker_death "kill" (resqued.yaml:1): not known, one of requeue, fail`},
		{"an unknown way out of a lost lock", from{yaml: "on_lock_lost: retry"}, `on_lock_lost "retry" (resqued.yaml:1): not known, one of requeue, fail`},
		{"a cap on a unique queue", from{yaml: "unique_queues: ['b:2']"}, `unique_queues "b:2" (resqued.yaml:1): a cap has no meaning here; leave it out`},
		{"nothing but exclusions", from{env: "UNIQUE_QUEUES=!mail"}, `unique_queues (environment UNIQUE_QUEUES): only exclusions match nothing; write "*" before them`},
		{"a strictness that is neither", from{yaml: "unique_queues_strict: maybe"}, `unique_queues_strict "maybe" (resqued.yaml:1): write true or false`},
		{"a value to keep", from{yaml: "env_keep: [A,\n 'B=1']"}, `env_keep "B=1" (resqued.yaml:2): the name alone, without a value; values belong into env of a handler`},
		{"a variable of the daemon to keep", from{env: "RESQUED_ENV_KEEP=RESQUED_*"}, `env_keep "RESQUED_*" (environment RESQUED_ENV_KEEP): commands never get this: it is meant for the daemon itself`},
		{"a broken glob to drop", from{yaml: "env_drop: ['[A']"}, `env_drop "[A" (resqued.yaml:1): "[" is never closed; write \[ for the character itself`},
		{"a cap on a locked queue", from{yaml: "locketed_queues: [a,\n 'b:2']"}, `locketed_queues "b:2" (resqued.yaml:2): a cap has no meaning here; leave it out`},

		// Queues; each entry with its own line.
		{
			"wrong queues, all of them",
			from{yaml: "queues:\n- a:0\n- b\n- b"},
			`queues "a:0" (resqued.yaml:2): a cap of 0 would never take a job; write "a" for no cap, or leave the queue out` + "\n" +
				`queues "b" (resqued.yaml:4): b is listed already, as "b"; keep one of them`,
		},
		{"a queue that is excluded", from{yaml: "queues:\n- b\n- '*'\n- '!b'"}, `queues (resqued.yaml:1): "b" is listed and also excluded by "!b"; remove one of them`},
		{"an empty entry of QUEUES", from{env: "QUEUES=a,,b"}, `queues (environment QUEUES): the name is empty; write a queue's name, or "*" for all`},
		{"a cap behind a space", from{yaml: "queues:\n- mail: 8"}, `queues (resqued.yaml:2): must be one value, not a map; a space after ":" makes one: write "mail:8" in quotes`},
		{"an exclusion without quotes", from{yaml: "queues:\n- '*'\n- !low"}, `queues (resqued.yaml:3): a leading "!" is special in YAML; write "!low" in quotes`},

		// Words and texts.
		{"an unknown word", from{flags: "--log-format xml"}, `log_format "xml" (flag --log-format): not known, one of auto, text, json`},
		{"neither true nor false", from{yaml: "until_empty: maybe"}, `until_empty "maybe" (resqued.yaml:1): write true or false`},
		{"no namespace", from{yaml: "namespace: ''"}, `namespace (resqued.yaml:1): must not be empty; Resque's own is "resque"`},
		{"a namespace with the colon", from{flags: "-n app:"}, `namespace "app:" (flag --namespace): must not end with a colon, one is added; write "app"`},
		{"a control character", from{yaml: `statsd_key: "a\nb"`}, `statsd_key "a\nb" (resqued.yaml:1): must not hold control characters`},

		// The shape of the file.
		{"an unknown key that is nearly one", from{yaml: "worker_cuont: 2"}, `worker_cuont (resqued.yaml:1): unknown key; did you mean "worker_count"?`},
		{"a key with dashes", from{yaml: "thread-count: 2"}, `thread-count (resqued.yaml:1): unknown key; did you mean "thread_count"?`},
		{"the variable's name as a key", from{yaml: "RESQUE_NAMESPACE: a"}, `RESQUE_NAMESPACE (resqued.yaml:1): unknown key; did you mean "namespace"?`},
		{"what others call it", from{yaml: "concurrency: 2"}, `concurrency (resqued.yaml:1): unknown key; did you mean "thread_count"?`},
		{"a gem's name of a handler's key", from{yaml: "lock_timeout: 5"}, `lock_timeout (resqued.yaml:1): unknown key; did you mean "handlers.CLASS.lock.timeout"?`},
		{"a key twice", from{yaml: "worker_count: 2\nthread_count: 1\nworker_count: 3"}, `worker_count (resqued.yaml:3): is given already on line 1; keep one of them`},
		{"a key without a value", from{yaml: "pidfile:"}, `pidfile (resqued.yaml:1): has no value; give one ("" is the empty text) or remove the line`},
		{"a list for one value", from{yaml: "pidfile: [a]"}, `pidfile (resqued.yaml:1): must be one value, not a list`},
		{"a map for one value", from{yaml: "pidfile: {a: 1, b: 2}"}, `pidfile (resqued.yaml:1): must be one value, not a map`},
		{"a map for queues", from{yaml: "queues: {a: 1, b: 2}"}, `queues (resqued.yaml:1): must be one value, not a map`},
		{"binary data", from{yaml: "pidfile: !!binary aGk="}, `pidfile (resqued.yaml:1): tag !!binary is not supported; write plain text`},
		{"a list for a file", from{yaml: "- a"}, `resqued.yaml:1: must be a map of keys to values, such as "worker_count: 4"`},
		{"a text for a file", from{yaml: "hello"}, `resqued.yaml:1: must be a map of keys to values, such as "worker_count: 4"`},
		{"two documents", from{yaml: "namespace: a\n---\nnamespace: b"}, `resqued.yaml:2: a second document begins; a configuration is one`},
		{"a merge key", from{yaml: "<<: {a: 1}"}, `<< (resqued.yaml:1): merge keys are not supported; write the fields out`},
		{"a list as a key", from{yaml: "? [a]\n: b"}, `? (resqued.yaml:1): a key must be plain text`},
		{"a star without quotes", from{yaml: "queues: [*]"}, `resqued.yaml:1: did not find expected alphabetic or numeric character; a value that starts with "*", "&" or "!" needs quotes: "*"`},
		{"an exclusion without quotes", from{yaml: "queues: [mail, !low]"}, `resqued.yaml:1: did not find expected ',' or ']'; a value that starts with "*", "&" or "!" needs quotes: "*"`},
		{"an alias of nothing", from{yaml: "\nqueues: [*mail]"}, `resqued.yaml:2: unknown anchor 'mail' referenced; a value that starts with "*", "&" or "!" needs quotes: "*"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.load(t)
			require.EqualError(t, err, tc.want)
		})
	}

	t.Run("everything at once, whatever it comes from", func(t *testing.T) {
		t.Parallel()
		_, err := from{
			yaml: "worker_cuont: 1\nlog_level: loud\nqueues: ['a:0']\nhandlers: {A: {command: ls}}",
			env:  "THREAD_COUNT=0", flags: "--interval=-1",
		}.load(t)
		var errs Errors
		require.True(t, errors.As(err, &errs))
		var about []string
		for _, e := range errs {
			about = append(about, e.Key+" "+e.Source.String())
		}
		require.Equal(t, []string{
			"worker_cuont resqued.yaml:1", "handlers.A.command resqued.yaml:4", "thread_count environment THREAD_COUNT",
			"interval flag --interval", "log_level resqued.yaml:2", "queues resqued.yaml:3",
		}, about)
		require.Len(t, strings.Split(err.Error(), "\n"), len(errs))
	})

	t.Run("a long value is cut in the message", func(t *testing.T) {
		t.Parallel()
		_, err := from{env: "WORKER_COUNT=" + strings.Repeat("ä", 5000)}.load(t)
		require.Less(t, len(err.Error()), 400)
	})
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, data []byte) string {
		path := filepath.Join(t.TempDir(), "resqued.yaml")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	t.Run("a directory is refused", func(t *testing.T) {
		t.Parallel()
		_, err := Load(Options{File: t.TempDir(), Environ: []string{}})
		require.ErrorContains(t, err, "is a directory")
	})
	t.Run("a file without end is refused", func(t *testing.T) {
		t.Parallel()
		_, err := Load(Options{File: "/dev/zero", Environ: []string{}})
		require.ErrorContains(t, err, "longer than 1MiB; this is not a configuration file")
	})
	t.Run("bytes that are not text are refused", func(t *testing.T) {
		t.Parallel()
		_, err := Load(Options{File: write(t, []byte("\xff\xfe\xfd")), Environ: []string{}})
		require.Error(t, err)
	})
	for name, text := range map[string]string{
		"an empty file": "", "a file of comments": "# worker_count: 4\n", "an empty document": "---\n",
		"an empty handlers section": "handlers:\n#  A: {command: [a]}\n",
	} {
		t.Run(name+" says nothing, which is fine", func(t *testing.T) {
			t.Parallel()
			r, err := Load(Options{File: write(t, []byte(text)), Environ: []string{}})
			require.NoError(t, err)
			require.Equal(t, 1, r.WorkerCount)
		})
	}
}

func TestStrangeVariables(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, env, want string }{
		{"a typo", "RESQUED_DRAIN_TIMEOT=5", "unknown_variable RESQUED_DRAIN_TIMEOT (environment) has no effect. Did you mean RESQUED_DRAIN_TIMEOUT?"},
		{"the other family's name", "RESQUED_LOCKET_QUEUES=a", "unknown_variable RESQUED_LOCKET_QUEUES (environment) has no effect. Did you mean RESQUED_LOCKETED_QUEUES?"},
		{"the singular", "RESQUED_QUEUE=a", "unknown_variable RESQUED_QUEUE (environment) has no effect. Did you mean RESQUED_QUEUES?"},
		{"what others call it", "RESQUED_THREADS=4", "unknown_variable RESQUED_THREADS (environment) has no effect. Did you mean RESQUED_THREAD_COUNT?"},
		{"the variables of a Kubernetes service are nobody's typo", "RESQUED_SERVICE_HOST=a RESQUED_PORT=tcp://a:1 RESQUED_PORT_6379_TCP_ADDR=a", ""},
		{"a job's own variables are not settings", "RESQUED_JOB_ID=1 RESQUED_QUEUE=mail RESQUED_PROC=p RESQUED_TIMEOUT=1", ""},
		{"the daemon's own variables are not settings", "RESQUED_ROLE=worker RESQUED_PROC=p", ""},
		{"other names are other people's", "THREADS=4 COUNT=1 WORKERS=3 QUEUE_URL=x REDIS_HOST=h PIDFILES=x INTERVALS=1 DATABASE_URI=x THREAD_ID=1 STATSD_SERVICE_HOST=h HOME=/ TERM=x", ""},
		{"a plural", "THREADS_COUNT=8", "unknown_variable THREADS_COUNT (environment) has no effect. Did you mean THREAD_COUNT?"},
		{"a singular", "JOB_PER_FORK=8 UNIQUE_QUEUE=a", "unknown_variable JOB_PER_FORK (environment) has no effect. Did you mean JOBS_PER_FORK?\n" +
			"unknown_variable UNIQUE_QUEUE (environment) has no effect. Did you mean UNIQUE_QUEUES?"},
		{"letters swapped, and case", "WORKER_COUTN=3 thread_count=4", "unknown_variable WORKER_COUTN (environment) has no effect. Did you mean WORKER_COUNT?\n" +
			"unknown_variable thread_count (environment) has no effect. Did you mean THREAD_COUNT?"},
		{"a name of the fork", "LOCKET_HEARTBEAT_FREQ=3 RESQUE_TERM_TIME_OUT=4", "unknown_variable RESQUE_TERM_TIME_OUT (environment) has no effect. Did you mean RESQUE_TERM_TIMEOUT?"},
		{"a name that others use, too", "REDIS_URI=redis://h", "unknown_variable REDIS_URI (environment) has no effect. Did you mean REDIS_URL?"},
		{"but not where the key is set", "REDIS_URI=redis://h REDIS_URL=redis://h QUEU=a QUEUES=a", ""},
		{"nothing in a job", "RESQUED_JOB_ID=1 THREADS_COUNT=4", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, w := range (from{env: tc.env}).mustLoad(t).Warnings {
				got = append(got, w.Code+" "+w.Message)
			}
			require.Equal(t, tc.want, strings.Join(got, "\n"))
		})
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(sample(f)))
	for _, seed := range []string{
		"", "a", "- a", "queues: [a, 'b:2', !x, *y]", "a: &a [*a]", "handlers: {A: {command: [a], env: {B: c}, timeout: 1e9}}",
		"handlers: &h {A: *h}", "? {a: b}\n: c", "<<: {a: 1}", "interval: .inf", "max_rss: 1.5GiB", "---\n---\n", "worker_count: !!int '4'", "\xff",
		"redis_url: redis://u:p@ss@h/0",
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		read := parseFile("resqued.yaml", data)
		for _, e := range read.errs {
			require.NotEmpty(t, e.Message)
			require.NotContains(t, e.Error(), "\n")
		}
		path := filepath.Join(dir, "fuzz.yaml")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		r, err := Load(Options{File: path, Environ: []string{}, NeedQueues: true})
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.Empty(t, read.errs)
		require.Positive(t, r.Threads())
		require.NotEmpty(t, r.Queues.Patterns)
		require.NotEmpty(t, Plan(r))
	})
}
