package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/selector"
)

// from is where a test's configuration comes from, each as a user would write it.
type from struct {
	yaml  string
	env   string // separated by spaces
	flags string // separated by spaces
	// needQueues as for resqued work.
	needQueues bool
}

// load reads a configuration. The file is called resqued.yaml in messages.
func (f from) load(t testing.TB) (*Resolved, error) {
	t.Helper()
	flags := pflag.NewFlagSet("work", pflag.ContinueOnError)
	AddGlobalFlags(flags)
	AddFlags(flags)
	require.NoError(t, flags.Parse(strings.Fields(f.flags)))
	o := Options{Flags: flags, Environ: append([]string{}, strings.Fields(f.env)...), NeedQueues: f.needQueues}
	dir := ""
	if f.yaml != "" {
		o.File = filepath.Join(t.TempDir(), "resqued.yaml")
		dir = filepath.Dir(o.File) + "/"
		require.NoError(t, os.WriteFile(o.File, []byte(f.yaml), 0o600))
	}
	r, err := Load(o)
	if errs, ok := errors.AsType[Errors](err); ok {
		for i := range errs {
			errs[i].Source.Name = strings.TrimPrefix(errs[i].Source.Name, dir)
			errs[i].Message = strings.ReplaceAll(errs[i].Message, dir, "")
		}
		return nil, errs
	}
	require.NoError(t, err)
	return r, nil
}

func (f from) mustLoad(t testing.TB) *Resolved {
	t.Helper()
	r, err := f.load(t)
	require.NoError(t, err)
	return r
}

func TestLoadWithoutAnything(t *testing.T) {
	t.Parallel()
	r := from{}.mustLoad(t)
	require.Equal(t, Config{
		RedisURL: "redis://127.0.0.1:6379/0", Namespace: "resque",
		WorkerCount: 1, ThreadCount: 1, JobsPerFork: 1, MaxRSS: RSSAuto, MaxRetiring: 1,
		Interval: 100 * time.Millisecond, Waker: WakerAuto, MayStretch: true, DrainThen: "requeue", TermTimeout: 30 * time.Second, OnMasterDeath: "drain", OnWorkerDeath: "requeue", MaxDeaths: 3, HostDeadTimeout: 30 * time.Second, FailureBackend: "resque", LongJobSilence: 5 * time.Minute, LongJobWait: 5 * time.Minute, PruneQueues: 168 * time.Hour, SchedulerLock: "none",
		StatsdPort: 8125, LocketedQueues: []string{"*"},
		HeartbeatFrequency: 30 * time.Second, JobLockDuration: 35 * time.Second, JobLockKey: "class-args",
		Lines: "auto", OnLockLost: "requeue", UniqueQueues: []string{},
		LogFormat: "auto", LogLevel: "info", Handlers: map[string]Handler{},
	}, r.Config)
	require.Empty(t, r.Warnings)
	require.Empty(t, r.File)
	for _, k := range keys() {
		require.Equal(t, Source{Kind: FromDefault}, r.Sources[k.name], k.name)
	}
}

// TestEnvironmentMistakes: docker takes an env file literally, and Go takes an unknown zone for UTC.
func TestEnvironmentMistakes(t *testing.T) {
	t.Parallel()
	for _, env := range []string{`QUEUES="*"`, `RESQUE_NAMESPACE='resque'`, `STATSD_HOST="127.0.0.1"`} {
		_, err := from{env: env}.load(t)
		require.ErrorContains(t, err, "its quotes are a part of the value", env)
	}
	from{env: `DATABASE_URL="mysql://h"`}.mustLoad(t) // of another program
	for zone, warned := range map[string]bool{"Bogus": true, "CET-1CEST": true, "Europe/Berlin": false, ":UTC": false, "": false} {
		r := from{env: "TZ=" + zone}.mustLoad(t)
		require.Equal(t, warned, len(r.Warnings) == 1 && strings.Contains(r.Warnings[0].Message, "not a known time zone"), zone)
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		from
		want int
		by   string
	}{
		{"the default comes last", from{}, 1, "default"},
		{"the file wins over the default", from{yaml: "worker_count: 2"}, 2, "resqued.yaml:1"},
		{"the environment wins over the file", from{yaml: "worker_count: 2", env: "WORKER_COUNT=3"}, 3, "environment WORKER_COUNT"},
		{"a flag wins over the environment", from{yaml: "worker_count: 2", env: "WORKER_COUNT=3", flags: "-w 4"}, 4, "flag --worker-count"},
		{"a flag that was not given counts for nothing", from{env: "WORKER_COUNT=3", flags: "-t 4"}, 3, "environment WORKER_COUNT"},
		{"the RESQUED_ variable wins over the other", from{env: "WORKER_COUNT=3 RESQUED_WORKER_COUNT=5"}, 5, "environment RESQUED_WORKER_COUNT"},
		{"an empty variable is none", from{yaml: "worker_count: 2", env: "WORKER_COUNT="}, 2, "resqued.yaml:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := tc.mustLoad(t)
			require.Equal(t, tc.want, r.WorkerCount)
			source := r.Sources["worker_count"]
			source.Name = strings.TrimPrefix(source.Name, filepath.Dir(r.File)+"/")
			require.Equal(t, tc.by, source.String())
		})
	}

	t.Run("a variable that loses against another one is warned of", func(t *testing.T) {
		t.Parallel()
		r := from{env: "WORKER_COUNT=3 RESQUED_WORKER_COUNT=5 QUEUE=a QUEUES=a"}.mustLoad(t)
		require.Equal(t, []Warning{{
			Key: "worker_count", Code: "overruled",
			Message: "WORKER_COUNT (environment) has no effect: RESQUED_WORKER_COUNT is set too and wins.",
		}}, r.Warnings)
	})

	t.Run("a caller's defaults replace the built-in ones", func(t *testing.T) {
		t.Parallel()
		r, err := Load(Options{Environ: []string{"THREAD_COUNT=8"}, Defaults: map[string]string{"worker_count": "2", "thread_count": "4", "queues": "*"}})
		require.NoError(t, err)
		require.Equal(t, []int{2, 8}, []int{r.WorkerCount, r.ThreadCount})
		require.Equal(t, "*", r.Queues.String())
		require.Equal(t, Source{Kind: FromDefault}, r.Sources["worker_count"])
	})
}

// TestEverySource sets each key from each source, so that a source that forgets a key fails.
func TestEverySource(t *testing.T) {
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	cert, key := certificate(t)
	database := filepath.Join(t.TempDir(), "database")
	require.NoError(t, os.WriteFile(database, []byte("postgres://app@db/locks\n"), 0o600))
	values := map[string]string{
		"redis_url": "redis://other:1/2", "redis_password_file": password, "redis_ca_file": cert, "redis_cert_file": cert, "redis_key_file": key, "allow_eviction": "true", "namespace": "app:jobs",
		"database_url": "postgres://app@other/locks", "database_url_file": database,
		"worker_count": "7", "thread_count": "9", "jobs_per_fork": "0", "max_rss": "1GiB", "max_age": "2h", "max_retiring": "1",
		"queues": "high:2,*:50%,!low", "interval": "2.5s", "until_empty": "true", "waker": "auto", "drain_timeout": "50s,fail",
		"resque_term_timeout": "5s", "on_master_death": "kill", "on_worker_death": "fail", "max_deaths": "1", "host_dead_hook": "fence,--off", "host_dead_after": "12s", "host_dead_timeout": "20s", "failure_backend": "multi-queue", "long_job_silence": "1m", "long_job_wait": "2h", "prune_queues": "24h", "pidfile": "/run/r.pid", "control_socket": "/run/r.sock",
		"statsd_host": "localhost", "statsd_port": "9125", "statsd_key": "jobs", "locketed_queues": "reports,*_once",
		"heartbeat_frequency": "10s", "job_lock_duration": "40s", "job_lock_key": "{{class}}:{{args.0}}",
		"lines": "off", "on_lock_lost": "fail", "unique_queues": "mail,once_*", "unique_queues_strict": "true", "env_keep": "AWS_*,STRIPE_KEY", "env_drop": "BROKER,*_INTERNAL", "persistent_schedules": "true", "scheduler_lock": "resque-scheduler:team", "max_payload": "512KiB",
		"fair":       `{"mail":{"key":"{{args.0}}","weights":{"*":1,"big":4}}}`,
		"limits":     `{"stripe":{"classes":["Charge"],"key":"{{args.0}}","concurrency":5,"rate":"100/1m","burst":20}}`,
		"within":     "mail:1m,img_*:1h,within_*:name",
		"redact":     "Mail=args.0,args.1.token;*=args.**.password",
		"log_format": "json", "log_level": "warn", "log_jobs": "true",
	}
	for _, k := range keys() {
		value := values[k.name]
		require.NotEmpty(t, value, "this test has no value for %s", k.name)
		ways := map[string]from{
			"file": {yaml: k.name + ": '" + value + "'"},
			"flag": {flags: "--" + k.flagName() + "=" + value},
		}
		if k.flag == noFlag {
			delete(ways, "flag")
		}
		for _, variable := range k.variables() {
			ways[variable] = from{env: variable + "=" + value}
		}
		for way, f := range ways {
			t.Run(k.name+" arrives by "+way, func(t *testing.T) {
				t.Parallel()
				switch k.name {
				case "max_retiring":
					f.flags += " -w 7"
				case "redis_ca_file":
					f.flags += " --redis-url rediss://h"
				case "redis_cert_file":
					f.flags += " --redis-url rediss://h --redis-key-file " + key
				case "redis_key_file":
					f.flags += " --redis-url rediss://h --redis-cert-file " + cert
				}
				r := f.mustLoad(t)
				for _, own := range r.keys() {
					if own.name == k.name {
						require.Equal(t, value, own.show())
					}
				}
				require.NotEqual(t, FromDefault, r.Sources[k.name].Kind)
			})
		}
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		from
		want string
	}{
		{"a list in the file", from{yaml: "queues: [critical, 'mail:8']"}, "critical,mail:8"},
		{"one text in the file", from{yaml: "queues: critical, mail:8"}, "critical,mail:8"},
		{"QUEUE where there is no QUEUES", from{env: "QUEUE=a,b"}, "a,b"},
		{"QUEUES before QUEUE", from{env: "QUEUE=a QUEUES=b"}, "b"},
		{"one flag", from{flags: "--queues a,b:2"}, "a,b:2"},
		{"several flags, in their order", from{flags: "--queues b --queues a"}, "b,a"},
		{"none where none is needed", from{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.mustLoad(t).Queues.String())
		})
	}

	t.Run("shares are taken of all threads of the daemon", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: "queues: ['reports:25%', 'tiny:1%']\nthread_count: 16", env: "WORKER_COUNT=4"}.mustLoad(t)
		require.Equal(t, 64, r.Threads())
		require.Equal(t, []selector.Choice{{Queue: "reports", Cap: 16}, {Queue: "tiny", Cap: 1}}, r.Queues.Resolve(nil))
		require.Equal(t, []Warning{{
			Key: "queues", Code: "cap_zero", Message: "tiny:1% is 0 threads; the fork reads 0 as unlimited. Using 1.",
		}}, r.Warnings)
	})

	t.Run("work is refused without queues", func(t *testing.T) {
		t.Parallel()
		_, err := from{needQueues: true}.load(t)
		require.EqualError(t, err, "queues (default): no queue to work; set QUEUES=critical,mail (in order of priority)"+
			" or QUEUES=* for all, or give --queues, or queues: in the file, or queue: of a handler")
		_, err = from{needQueues: true, yaml: "queues: []"}.load(t)
		require.ErrorContains(t, err, "queues (resqued.yaml:1): no queue to work")
		_, err = from{needQueues: true, yaml: "handlers: {Mail: {command: [a]}}\nschedule: {x: {every: 1h, class: Else, queue: q}}"}.load(t)
		require.ErrorContains(t, err, "no queue to work")
		_, err = from{needQueues: true, yaml: "handlers: {Mail: {command: [a], queue: q, timeout: -1s}}"}.load(t)
		require.EqualError(t, err, `handlers.Mail.timeout "-1s" (resqued.yaml:1): must not be negative`, "its queue is not missing")
	})

	t.Run("those of the handlers, in the order of the file, where nothing else names any", func(t *testing.T) {
		t.Parallel()
		const handlers = "handlers:\n  Z: {command: [a], queue: z}\n  Sync: {command: [a]}\n  A: {command: [a], queue: a}\n" +
			"  Long: {command: [a], queue: z, long_job: {requeue_queue: low}}\n" +
			"schedule:\n  x: {every: 1h, class: Sync, queue: s}\n  y: {every: 1h, class: Else, queue: e}\n"
		r := from{needQueues: true, yaml: handlers}.mustLoad(t)
		require.Equal(t, []string{"z", "a", "low", "s"}, r.Queues.Names())
		require.Equal(t, []selector.Choice{{Queue: "z"}, {Queue: "a"}, {Queue: "low"}, {Queue: "s"}}, r.Queues.Resolve(nil))
		require.Equal(t, Source{Kind: FromHandlers}, r.Sources["queues"])
		require.Empty(t, r.Warnings)
		require.True(t, r.Works("low"))
		require.False(t, r.Works("e"))

		r = from{needQueues: true, yaml: handlers, env: "QUEUES=mail"}.mustLoad(t)
		require.Equal(t, []string{"mail"}, r.Queues.Names())

		r = from{needQueues: true, yaml: "handlers: {Mail: {command: [a], queue: mail}, Sync: {command: [a]}}"}.mustLoad(t)
		require.Equal(t, []Warning{{Key: "queues", Code: "no_queue", Message: "Nothing names a queue for Sync: " +
			"only the queues of the other handlers are worked (mail). Set its queue, or queues: for all."}}, r.Warnings)

		program := []ClassQueues{{Class: "Invoices", Queues: []string{"medium", "low"}}}
		r, err := Load(Options{Environ: []string{}, NeedQueues: true, Classes: program})
		require.NoError(t, err)
		require.Equal(t, "medium,low", r.Queues.String())
	})
}

func TestLocketedQueues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		from
		locked, free string // queues, separated by spaces
	}{
		{"all by default", from{}, "a reports", ""},
		{"a list", from{yaml: "locketed_queues: [reports, '*_once']"}, "reports x_once", "a"},
		{"an empty list is none", from{yaml: "locketed_queues: []"}, "", "a reports"},
		{"all but some", from{env: "LOCKET_QUEUES=*,!mail"}, "a reports", "mail"},
		{"an excluded star is none", from{env: "LOCKET_QUEUES=!*"}, "", "a reports"},
		{"an empty flag is none", from{env: "LOCKET_QUEUES=*", flags: "--locketed-queues="}, "", "a reports"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := tc.mustLoad(t)
			require.NotNil(t, r.LocketedQueues)
			for queue := range strings.FieldsSeq(tc.locked) {
				require.True(t, r.Locked(queue), queue)
			}
			for queue := range strings.FieldsSeq(tc.free) {
				require.False(t, r.Locked(queue), queue)
			}
		})
	}
}

func TestUniqueQueues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		from
		unique, free string // queues, separated by spaces
	}{
		{"none by default", from{}, "", "a mail"},
		{"a list", from{yaml: "unique_queues: [mail, '*_once']"}, "mail x_once", "a"},
		{"all", from{env: "UNIQUE_QUEUES=*"}, "a mail", ""},
		{"all but some", from{flags: "--unique-queues *,!mail"}, "a", "mail"},
		{"an excluded star is none", from{yaml: "unique_queues: [mail]", env: "UNIQUE_QUEUES=!*"}, "", "a mail"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := tc.mustLoad(t)
			require.NotNil(t, r.UniqueQueues)
			for queue := range strings.FieldsSeq(tc.unique) {
				require.True(t, r.Unique(queue), queue)
			}
			for queue := range strings.FieldsSeq(tc.free) {
				require.False(t, r.Unique(queue), queue)
			}
		})
	}
}

func TestShortLocks(t *testing.T) {
	t.Parallel()
	for duration, want := range map[string]time.Duration{
		"": 30 * time.Second, "31s": 30 * time.Second, "30": 29 * time.Second, "10s": 9 * time.Second, "2": time.Second,
	} {
		yaml := ""
		if duration != "" {
			yaml = "job_lock_duration: " + duration
		}
		r := from{yaml: yaml}.mustLoad(t)
		require.Equal(t, want, r.HeartbeatFrequency, "%s: a default does not keep anyone from shorter locks", yaml)
		require.Empty(t, r.Warnings)
	}
}

func TestJobLockKey(t *testing.T) {
	t.Parallel()
	for _, style := range []string{"class-args", "payload", "ruby", "ruby34", "{{class}}", "{{ queue }}/{{args.0.user.id}}: done"} {
		t.Run(style+" is taken as it is", func(t *testing.T) {
			t.Parallel()
			r := from{yaml: "job_lock_key: '" + style + "'"}.mustLoad(t)
			require.Equal(t, style, r.JobLockKey)
			require.Empty(t, r.Warnings)
		})
	}
	t.Run("the prefix of all keys is warned of", func(t *testing.T) {
		t.Parallel()
		warnings := from{yaml: "job_lock_key: 'locket:job_locks:{{class}}'"}.mustLoad(t).Warnings
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0].Message, "resqued.yaml:1) begins with locket:job_locks:, which resqued adds itself")
	})
}

func TestWarnsOfSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		from
		want string // the messages, one per line
	}{
		{
			"without locked queues",
			from{yaml: "locketed_queues: []\njob_lock_key: payload\non_lock_lost: requeue", env: "LOCKET_JOB_LOCK_DURATION=40"},
			"job_lock_key (resqued.yaml:2) has no effect: locketed_queues (resqued.yaml:1) is empty, so that no job takes a job lock.\n" +
				"on_lock_lost (resqued.yaml:3) has no effect: locketed_queues (resqued.yaml:1) is empty, so that no job takes a job lock.",
		},
		{"without locked queues, and nothing else set", from{yaml: "locketed_queues: []"}, ""},
		{"with locked queues", from{yaml: "on_lock_lost: requeue\nheartbeat_frequency: 20"}, ""},
		{
			"strict without unique queues",
			from{flags: "--unique-queues-strict"},
			"unique_queues_strict (flag --unique-queues-strict) has no effect: unique_queues (default) is empty.",
		},
		{"not strict without unique queues", from{flags: "--unique-queues-strict=false"}, ""},
		{
			"deaths where the first one is the last",
			from{yaml: "on_worker_death: fail", env: "RESQUED_MAX_DEATHS=5"},
			"max_deaths (environment RESQUED_MAX_DEATHS) has no effect: on_worker_death (resqued.yaml:1) is fail, so that the first death is the last.",
		},
		{"the default of deaths where the first one is the last", from{yaml: "on_worker_death: fail"}, ""},
		{"deaths that are counted", from{yaml: "on_worker_death: requeue\nmax_deaths: 5"}, ""},
		{"strict with unique queues", from{yaml: "unique_queues: [a]\nunique_queues_strict: true"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := tc.mustLoad(t)
			var got []string
			for _, w := range r.Warnings {
				require.Equal(t, "no_effect", w.Code)
				got = append(got, strings.ReplaceAll(w.Message, filepath.Dir(r.File)+"/", ""))
			}
			require.Equal(t, tc.want, strings.Join(got, "\n"))
		})
	}
}

func TestUntilEmpty(t *testing.T) {
	t.Parallel()
	t.Run("an interval of 0 means it, and keeps the poll", func(t *testing.T) {
		t.Parallel()
		r := from{env: "INTERVAL=0"}.mustLoad(t)
		require.True(t, r.UntilEmpty)
		require.Equal(t, 100*time.Millisecond, r.Interval)
		require.Equal(t, Source{Kind: FromEnv, Name: "INTERVAL"}, r.Sources["until_empty"])
	})
	t.Run("the flag means it with any interval", func(t *testing.T) {
		t.Parallel()
		r := from{env: "INTERVAL=2", flags: "--until-empty"}.mustLoad(t)
		require.True(t, r.UntilEmpty)
		require.Equal(t, 2*time.Second, r.Interval)
	})
	t.Run("both with opposite meaning are refused", func(t *testing.T) {
		t.Parallel()
		_, err := from{env: "INTERVAL=0", flags: "--until-empty=false"}.load(t)
		require.EqualError(t, err,
			`interval "0" (environment INTERVAL): means until_empty, which is false (flag --until-empty); set an interval above 0`)
	})
	t.Run("the flag takes nothing but yes and no", func(t *testing.T) {
		t.Parallel()
		flags := pflag.NewFlagSet("work", pflag.ContinueOnError)
		AddFlags(flags)
		require.ErrorContains(t, flags.Parse([]string{"--until-empty=maybe"}), "write true or false")
	})
}

func TestFlagsOfOtherCommandsAreNoSettings(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("top", pflag.ContinueOnError)
	AddGlobalFlags(flags)
	flags.Duration("interval", time.Second, "how often to redraw")
	require.NoError(t, flags.Parse([]string{"--interval=7s", "-n", "app"}))
	r, err := Load(Options{Flags: flags, Environ: []string{}})
	require.NoError(t, err)
	require.Equal(t, 100*time.Millisecond, r.Interval)
	require.Equal(t, "app", r.Namespace)
}

func TestWhichFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("namespace: "+name), 0o600))
		return path
	}
	option, flag, env := write("option"), write("flag"), write("env")
	load := func(o Options, args ...string) (*Resolved, error) {
		o.Flags = pflag.NewFlagSet("work", pflag.ContinueOnError)
		AddGlobalFlags(o.Flags)
		require.NoError(t, o.Flags.Parse(args))
		return Load(o)
	}
	for _, tc := range []struct {
		name string
		o    Options
		args []string
		want string
	}{
		{"the one of the options first", Options{File: option, Environ: []string{"RESQUED_CONFIG=" + env}}, []string{"-c", flag}, "option"},
		{"else that of the flag", Options{Environ: []string{"RESQUED_CONFIG=" + env}}, []string{"-c", flag}, "flag"},
		{"else that of the environment", Options{Environ: []string{"RESQUED_CONFIG=" + env}}, nil, "env"},
		{"else none", Options{Environ: []string{}}, nil, "resque"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, err := load(tc.o, tc.args...)
			require.NoError(t, err)
			require.Equal(t, tc.want, r.Namespace)
		})
	}
	t.Run("a FIFO is refused, for it would be waited for", func(t *testing.T) {
		t.Parallel()
		fifo := filepath.Join(t.TempDir(), "fifo")
		require.NoError(t, syscall.Mkfifo(fifo, 0o600))
		_, err := load(Options{Environ: []string{"RESQUED_CONFIG=" + fifo}})
		require.ErrorContains(t, err, "is a FIFO")
		for _, key := range []string{"RESQUED_REDIS_PASSWORD_FILE", "RESQUED_REDIS_CA_FILE", "RESQUED_REDIS_KEY_FILE"} {
			_, err = load(Options{Environ: []string{"REDIS_URL=rediss://h", key + "=" + fifo}})
			require.ErrorContains(t, err, "is a FIFO", key)
		}
	})
	t.Run("one that is missing is refused, and nothing is said that only it could answer", func(t *testing.T) {
		t.Parallel()
		_, err := load(Options{Environ: []string{"RESQUED_CONFIG=/no/such/file", "WORKER_COUNT=x"}, NeedQueues: true})
		require.EqualError(t, err, `config "/no/such/file" (environment RESQUED_CONFIG): no such file or directory`+"\n"+
			`worker_count "x" (environment WORKER_COUNT): not a whole number; must be 1 to 1024 (each is a process of its own)`)
	})
}

func TestConfigSurvivesJSON(t *testing.T) {
	t.Parallel()
	for _, f := range []from{
		{},
		{yaml: uncommented(t)},
		{yaml: "locketed_queues: []\nhandlers: {'My::Job.v2': {command: [a, 'b c'], env: {X: '1'}}}", env: "QUEUES=a:2,*:10%,!b INTERVAL=0"},
	} {
		c := f.mustLoad(t).Config
		text, err := json.Marshal(c)
		require.NoError(t, err)
		var back Config
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, c, back)
	}
}

func sample(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../configs/resqued.yaml")
	require.NoError(t, err)
	return string(text)
}

// uncommented returns the sample with its commented-out keys, except those that exclude others.
func uncommented(t testing.TB) string {
	t.Helper()
	settings, sections, found := strings.Cut(sample(t), "# schedule:\n")
	require.True(t, found)
	for _, k := range keys() {
		if strings.HasSuffix(k.name, "_file") {
			continue
		}
		settings = strings.Replace(settings, "\n# "+k.name+":", "\n"+k.name+":", 1)
	}
	text := settings + "schedule:\n"
	for line := range strings.Lines(sections) {
		if strings.HasPrefix(line, "#   ") || line == "# handlers:\n" || line == "# runners:\n" {
			line = line[2:]
		}
		text += line
	}
	return text
}

func TestSample(t *testing.T) {
	t.Parallel()
	t.Run("as it stands it only has more processes, threads and jobs", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: sample(t)}.mustLoad(t)
		require.Empty(t, r.Warnings)
		require.Equal(t, Tuning{WorkerCount: 4, ThreadCount: 16, JobsPerFork: 1000}, Tuning{WorkerCount: r.WorkerCount, ThreadCount: r.ThreadCount, JobsPerFork: r.JobsPerFork})
		want := from{}.mustLoad(t).Config
		want.WorkerCount, want.ThreadCount, want.JobsPerFork = 4, 16, 1000
		require.Equal(t, want, r.Config)
		_, err := from{yaml: sample(t), needQueues: true}.load(t)
		require.ErrorContains(t, err, "no queue to work")
	})
	t.Run("what is commented out loads, and means what it says", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: uncommented(t), needQueues: true}.mustLoad(t)
		require.Empty(t, r.Warnings)
		require.Equal(t, 64, r.Threads())
		require.Equal(t, "critical,reports:25%,mail:8", r.Queues.String())
		require.EqualValues(t, 1<<30, r.MaxRSS)
		require.Equal(t, 50*time.Second, r.DrainTimeout)
		require.Equal(t, []string{"reports"}, r.LocketedQueues)
		require.Equal(t, []string{"mail"}, r.UniqueQueues)
		require.Equal(t, []string{"AWS_*"}, r.EnvKeep)
		require.Equal(t, []string{"BILLING_*"}, r.EnvDrop)
		require.Equal(t, Handler{Command: []string{"python3", "thumb.py"}, Timeout: 2 * time.Minute, KillAfter: 10 * time.Second}, r.Handlers["Thumb"])
		require.Len(t, r.Handlers, 5)
		require.Len(t, r.Runners, 1)
		require.Len(t, r.Schedules, 2)
	})
	t.Run("it shows every key with its variable", func(t *testing.T) {
		t.Parallel()
		text := sample(t)
		for _, k := range keys() {
			variables := k.variables()
			require.Regexp(t, `(?m)^(# )?`+k.name+`:.*# `+variables[min(1, len(variables)-1)]+`\b`, text)
		}
		for _, name := range slices.Concat(new(HandlerLock).fields().names(), new(Handler).fields().names(), new(Runner).fields().names(), scheduleRules(new(schedule.Definition)).names(), new(HandlerRetry).fields().names(), storeFields) {
			require.Contains(t, text, name+":")
		}
	})
	t.Run("what is commented out of the handlers works too", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: uncommented(t)}.mustLoad(t)
		require.Equal(t, Handler{
			Command: []string{"/usr/local/bin/report", "--monthly"}, Queue: "reports", Dir: "/srv/reports",
			Env: map[string]string{"REPORT_LANG": "en"}, Timeout: time.Hour, MaxRun: 30 * time.Minute, OnLeaving: "USR2", KillAfter: 10 * time.Second,
			Lock: &HandlerLock{Timeout: time.Hour, Args: []int{0}, Loner: true, OnLocked: "drop", Redis: "redis://locks:6379", Store: "redis"},
			Retry: &HandlerRetry{
				Attempts: 5, Base: 10 * time.Second, Max: time.Hour, RetryOn: HandlerErrors{Messages: []string{"refused|reset"}},
				NeverOn: HandlerErrors{Exceptions: []string{"Resqued::Timeout"}, ExitCodes: []int{2}},
			},
		}, r.Handlers["Report::Monthly"])
	})
}
