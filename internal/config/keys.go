package config

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/locket/jobkey"
)

// Bounds of counts. They are far above useful values, and catch typos.
const (
	maxWorkers = 1024
	maxThreads = 4096
	maxDeaths  = 1000
	// minRSS is less than a worker process needs to start.
	minRSS = 32 << 20
	// minPayload is less than a job with a few arguments takes.
	minPayload = 128
)

// key is a setting. docs/configuration.md has its defaults, variables and flags from this table:
// `go test ./internal/config -run TestDocumentation -update`.
type key struct {
	name string
	// env are variables besides RESQUED_<NAME>, which always works and wins.
	env []string
	// def is the default, written as in the environment.
	def string
	// flag is where the flag belongs; short is its letter.
	flag  flagGroup
	short string
	help  string
	kind
}

type flagGroup int

const (
	workFlag   flagGroup = iota // of resqued work
	globalFlag                  // of every command
	noFlag                      // it may hold a secret, or is long
)

// keys are the settings of no configuration: what they are called and how they are given.
var keys = sync.OnceValue(func() []key { return new(Config).keys() })

// keys are all settings except the sections handlers, runners, schedule and stores, in the order
// in which they are checked, shown and documented.
func (c *Config) keys() []key {
	return []key{
		{
			name: "redis_url", env: []string{"REDIS_URL"}, def: "redis://127.0.0.1:6379/0", flag: globalFlag,
			help: "Redis `URL` (redis, rediss, unix, redis-sentinel, redis-cluster)",
			kind: kindOf("URL", &c.RedisURL, okay(checkRedisURL), RedactURL),
		},
		{
			name: "redis_password_file",
			help: "`file` with the Redis password",
			kind: text(&c.RedisPasswordFile),
		},
		{
			name: "redis_ca_file",
			help: "`file` of certificates to trust for Redis, instead of the system's",
			kind: text(&c.RedisCAFile),
		},
		{
			name: "redis_cert_file",
			help: "`file` of the client certificate for Redis",
			kind: text(&c.RedisCertFile),
		},
		{
			name: "redis_key_file",
			help: "`file` of the key of redis_cert_file",
			kind: text(&c.RedisKeyFile),
		},
		{
			name: "allow_eviction", def: "false",
			help: "accept a Redis that may evict jobs when its memory is full",
			kind: boolean(&c.AllowEviction),
		},
		{
			name: "namespace", env: []string{"RESQUE_NAMESPACE"}, def: "resque", flag: globalFlag, short: "n",
			help: "prefix of Redis keys",
			kind: checked("text", &c.Namespace, checkNamespace),
		},
		{
			name: "database_url", env: []string{databaseVariable}, flag: noFlag,
			help: "PostgreSQL for class locks and for resqued locker",
			kind: kindOf("URL", &c.DatabaseURL, okay(anything), redactDatabase), // readDatabase checks it, as it knows the source
		},
		{
			name: "database_url_file",
			help: "`file` with database_url",
			kind: text(&c.DatabaseURLFile),
		},
		{
			name: "worker_count", env: []string{"WORKER_COUNT"}, def: "1", short: "w",
			help: "worker processes",
			kind: number(&c.WorkerCount, 1, maxWorkers, "each is a process of its own"),
		},
		{
			name: "thread_count", env: []string{"THREAD_COUNT"}, def: "1", short: "t",
			help: "threads (jobs at a time) of each worker process",
			kind: number(&c.ThreadCount, 1, maxThreads, "each is registered as a worker in Redis"),
		},
		{
			name: "jobs_per_fork", env: []string{"JOBS_PER_FORK"}, def: "1",
			help: "jobs before a worker process is replaced (0: no limit)",
			kind: number(&c.JobsPerFork, 0, math.MaxInt32, "0 = no limit"),
		},
		{
			name: "max_rss", def: rssAuto,
			help: "memory above which a worker process is replaced (0: no limit; auto: its share of the cgroup limit)",
			kind: rssOrAuto(&c.MaxRSS),
		},
		{
			name: "max_age", def: "0",
			help: "age at which a worker process is replaced (0: no limit)",
			kind: duration(&c.MaxAge, zeroOr(time.Second)),
		},
		{
			name: "max_retiring", def: "1",
			help: "retiring processes allowed beyond the full number",
			kind: number(&c.MaxRetiring, 1, maxWorkers, "and at most worker_count"),
		},
		{
			name: "queues", env: []string{"QUEUES", "QUEUE"},
			help: "queues by priority: `names`, globs, caps (mail:8, reports:25%), exclusions (!low)",
			kind: kind{hint: "list", list: true, show: func() string { return c.Queues.String() }},
		},
		{
			name: "interval", env: []string{"INTERVAL"}, def: "0.1",
			help: "how often an idle daemon looks for jobs (0: leave when all queues are empty)",
			kind: duration(&c.Interval, interval),
		},
		{
			name: "until_empty", def: "false",
			help: "leave when every queue is empty",
			kind: boolean(&c.UntilEmpty),
		},
		{
			name: "waker", def: WakerAuto,
			help: "wait in Redis, to find jobs at once when idle (auto: if it has spare connections)",
			kind: waker(&c.Waker),
		},
		{
			name: "drain_timeout", def: "0",
			help: "time after which a drain stops and requeues its jobs (50s,fail: fails them; 0: never)",
			kind: c.drainTimeout(),
		},
		{
			name: "resque_term_timeout", env: []string{"RESQUE_TERM_TIMEOUT"}, def: "30",
			help: "time for a killed job to stop before its process is killed",
			kind: duration(&c.TermTimeout, positive),
		},
		{
			name: "on_master_death", def: "drain",
			help: "what worker processes do when their master is gone",
			kind: oneOf(&c.OnMasterDeath, "drain", "kill"),
		},
		{
			name: "on_worker_death", env: []string{"ON_WORKER_DEATH"}, def: "requeue",
			help: "what happens to the jobs of a dead worker process",
			kind: oneOf(&c.OnWorkerDeath, "requeue", "fail"),
		},
		{
			name: "max_deaths", def: "3",
			help: "deaths of its worker process before a job fails; four times as many if master or machine died too",
			kind: number(&c.MaxDeaths, 1, maxDeaths, "1 never runs a job again"),
		},
		{
			name: "host_dead_hook",
			help: "`command` that proves a silent host dead, or fences it",
			kind: list(&c.HostDeadHook),
		},
		{
			name: "host_dead_after", def: "0",
			help: "silence before host_dead_hook is asked (0: two and a half beats)",
			kind: duration(&c.HostDeadAfter, hostSilence),
		},
		{
			name: "host_dead_timeout", def: "30",
			help: "time before host_dead_hook is killed",
			kind: duration(&c.HostDeadTimeout, hostPatience),
		},
		{
			name: "failure_backend", def: "resque",
			help: "where failures go: resque (failed) or multi-queue (<queue>_failed)",
			kind: oneOf(&c.FailureBackend, "resque", "multi-queue"),
		},
		{
			name: "long_job_silence", def: "300",
			help: "silence before a running long job is looked for",
			kind: duration(&c.LongJobSilence, positive),
		},
		{
			name: "long_job_wait", def: "300",
			help: "time in a queue before a long job's payload is looked for",
			kind: duration(&c.LongJobWait, positive),
		},
		{
			name: "prune_queues", def: "168h",
			help: "time before the name of an empty queue that nothing names is removed (0: never)",
			kind: duration(&c.PruneQueues, zeroOr(time.Second)),
		},
		{
			name: "pidfile", env: []string{"PIDFILE"},
			help: "`file` for the master's process id",
			kind: text(&c.PIDFile),
		},
		{
			name: "control_socket",
			help: "`path` of the socket for reload and upgrade (empty: the default path; off: none)",
			kind: text(&c.ControlSocket),
		},
		{
			name: "statsd_host", env: []string{"STATSD_HOST"},
			help: "`host` for statsd metrics (empty: none)",
			kind: checked("host", &c.StatsdHost, checkHost),
		},
		{
			name: "statsd_port", env: []string{"STATSD_PORT"}, def: "8125",
			help: "UDP port of statsd",
			kind: number(&c.StatsdPort, 1, math.MaxUint16, "it is a UDP port"),
		},
		{
			name: "statsd_key", env: []string{"STATSD_KEY"},
			help: "prefix of every metric",
			kind: text(&c.StatsdKey),
		},
		{
			name: "locketed_queues", env: []string{"LOCKET_QUEUES"}, def: "*",
			help: "queues with job locks: `names` and globs (* all, !* none)",
			kind: list(&c.LocketedQueues),
		},
		{
			name: "heartbeat_frequency", env: []string{"LOCKET_HEARTBEAT_FREQUENCY"}, def: "30",
			help: "longest time between renewals of a job lock",
			kind: duration(&c.HeartbeatFrequency, wholeSeconds),
		},
		{
			name: "job_lock_duration", env: []string{"LOCKET_JOB_LOCK_DURATION"}, def: "35",
			help: "expiry of a job lock without renewal",
			kind: duration(&c.JobLockDuration, wholeSeconds),
		},
		{
			name: "job_lock_key", env: []string{"LOCKET_JOB_LOCK_KEY"}, def: jobkey.Styles[0],
			help: "which jobs exclude each other: " + strings.Join(jobkey.Styles, ", ") + " or a template",
			kind: checked("style", &c.JobLockKey, checkJobLockKey),
		},
		{
			name: "lines", def: LinesAuto,
			help: "where jobs wait for a held lock: auto in order, in a line per lock; off at the tail",
			kind: oneOf(&c.Lines, LinesAuto, "off"),
		},
		{
			name: "fair", flag: noFlag,
			help: "queues whose tenants take turns, each with the template of the tenant",
			kind: fair(&c.Fair),
		},
		{
			name: "limits", flag: noFlag,
			help: "how many jobs run at once, or begin in a time, over the whole fleet, by name",
			kind: limits(&c.Limits),
		},
		{
			name: "within", flag: noFlag,
			help: "how long the jobs of queues may wait: `mail:1m,img_*:1h`; what waits for longer is late",
			kind: within(&c.Within),
		},
		{
			name: "on_lock_lost", def: "requeue",
			help: "what happens to a job that lost its lock",
			kind: oneOf(&c.OnLockLost, "requeue", "fail"),
		},
		{
			name: "unique_queues", env: []string{"UNIQUE_QUEUES"},
			help: "queues that hold a payload once: `names` and globs (* all)",
			kind: list(&c.UniqueQueues),
		},
		{
			name: "unique_queues_strict", def: "false",
			help: "refuse a unique queue that is out of step, instead of repairing it",
			kind: boolean(&c.UniqueQueuesStrict),
		},
		{
			name: "env_keep",
			help: "variables passed to commands although they sound secret: `names` and globs",
			kind: list(&c.EnvKeep),
		},
		{
			name: "env_drop",
			help: "variables withheld from commands: `names` and globs; wins over env_keep",
			kind: list(&c.EnvDrop),
		},
		{
			name: "persistent_schedules", def: "false",
			help: "also work resque-scheduler's schedules in Redis",
			kind: boolean(&c.PersistentSchedules),
		},
		{
			name: "scheduler_lock", def: SchedulerLockNone,
			help: "share the master lock of resque-scheduler: only one of the two keeps the schedules",
			kind: checked("none|resque-scheduler", &c.SchedulerLock, checkSchedulerLock),
		},
		{
			name: "max_payload", def: "0",
			help: "size above which a payload is refused (0: no limit)",
			kind: size(&c.MaxPayload, checkPayload),
		},
		{
			name: "redact", flag: noFlag,
			help: "arguments that are not shown, by class: Class=args.0,args.1.token;*=args.**.password",
			kind: redacted(&c.Redact),
		},
		{
			name: "log_format", def: "auto",
			help: "format of the log",
			kind: oneOf(&c.LogFormat, "auto", "text", "json"),
		},
		{
			name: "log_level", def: "info",
			help: "lowest level to log",
			kind: oneOf(&c.LogLevel, "debug", "info", "warn", "error"),
		},
		{
			name: "log_jobs", def: "false",
			help: "log start and end of every job, at level info",
			kind: boolean(&c.LogJobs),
		},
	}
}

// synonyms are names that people try, each with the key that they mean.
var synonyms = map[string]string{
	"concurrency": "thread_count", "threads": "thread_count", "workers": "worker_count", "processes": "worker_count",
	"redis": "redis_url", "postgres_url": "database_url", "database": "database_url", "password_file": "redis_password_file", "term_timeout": "resque_term_timeout",
	"timeout": "drain_timeout", "statsd_prefix": "statsd_key", "locks": "locketed_queues", "pid_file": "pidfile",
	"poll_interval": "interval", "handler": "handlers", "commands": "handlers",
	"schedules": "schedule", "cron": "schedule", "dynamic": "persistent_schedules", "dynamic_schedule": "persistent_schedules",
	"locket": "locketed_queues", "job_lock_proc": "job_lock_key", "uniqueue": "unique_queues", "redis_namespace": "namespace", "count": "worker_count",
	"lock": "handlers.CLASS.lock", "loner": "handlers.CLASS.lock.loner", "lock_timeout": "handlers.CLASS.lock.timeout", "statsd_url": "statsd_host",
	"long_job": "handlers.CLASS.long_job", "longjob": "handlers.CLASS.long_job", "verbose": "log_jobs", "vverbose": "log_level",
	"fencing_hook": "host_dead_hook", "uniqueue_queues": "unique_queues", "lock_key": "job_lock_key", "lock_duration": "job_lock_duration",
}

func (k key) flagName() string { return strings.ReplaceAll(k.name, "_", "-") }

// variables returns the key's environment variables, the winning one first.
func (k key) variables() []string {
	own := "RESQUED_" + strings.ToUpper(k.name)
	return append([]string{own}, k.env...)
}

// suggest returns the key that name most likely means, or "".
func suggest(name string) string {
	plain := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	candidates := []string{"handlers", "runners", "schedule", "stores"}
	for _, k := range keys() {
		candidates = append(candidates, k.name)
		for _, variable := range k.env {
			if strings.ToLower(variable) == plain {
				return k.name
			}
		}
	}
	return nearest(plain, candidates, synonyms)
}

func unknown(meant string) string {
	if meant == "" {
		return "unknown key; docs/configuration.md lists them all"
	}
	return fmt.Sprintf("unknown key; did you mean %q?", meant)
}
