// Package config reads resqued's configuration from flags, environment, file and defaults, in that
// order of precedence. Only this package uses viper and reads the environment. A Config is plain
// data: Load resolves and validates it once, and worker processes get it as JSON.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/history/queueage"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/selector"
)

// Values of Config.Waker.
const (
	WakerAuto = "auto" // if the server supports it and has connections to spare
	WakerOn   = "on"
	WakerOff  = "off"
)

// Config is a resolved and validated configuration.
type Config struct {
	// RedisURL may hold the password from RedisPasswordFile: log Redacted instead.
	RedisURL          string `json:"redis_url"`
	RedisPasswordFile string `json:"redis_password_file,omitempty"`
	// RedisCAFile holds the certificates to trust for TLS; empty = the system's.
	RedisCAFile string `json:"redis_ca_file,omitempty"`
	// RedisCA is its content, so that worker processes need not read it again.
	RedisCA string `json:"redis_ca,omitempty"`
	// RedisCertFile and RedisKeyFile hold the client certificate for Redis and its key; empty =
	// none. RedisCert is their content: log Redacted instead.
	RedisCertFile string `json:"redis_cert_file,omitempty"`
	RedisKeyFile  string `json:"redis_key_file,omitempty"`
	RedisCert     string `json:"redis_cert,omitempty"`
	// AllowEviction accepts a server whose maxmemory-policy may drop jobs.
	AllowEviction bool   `json:"allow_eviction,omitempty"`
	Namespace     string `json:"namespace"`
	// DatabaseURL is the PostgreSQL for locks; empty = none. It may hold a password: log Redacted.
	DatabaseURL     string `json:"database_url,omitempty"`
	DatabaseURLFile string `json:"database_url_file,omitempty"`

	WorkerCount int `json:"worker_count"`
	ThreadCount int `json:"thread_count"`
	// JobsPerFork is after how many jobs a worker process is replaced; 0 = no limit.
	JobsPerFork int `json:"jobs_per_fork"`
	// MaxRSS (bytes, or RSSAuto) and MaxAge retire a worker process early; 0 = no limit.
	MaxRSS int64         `json:"max_rss"`
	MaxAge time.Duration `json:"max_age"`
	// MaxRetiring is how many retiring processes may exist in addition to the slots.
	MaxRetiring int `json:"max_retiring"`

	// Queues is the parsed specification, with caps of WorkerCount × ThreadCount.
	Queues selector.Spec `json:"queues"`

	// Interval is how often an idle daemon polls.
	Interval time.Duration `json:"interval"`
	// UntilEmpty: exit when all queues are empty (INTERVAL=0).
	UntilEmpty bool `json:"until_empty"`
	// Waker is whether idle daemons also wait for jobs in Redis: WakerAuto, WakerOn, WakerOff.
	Waker string `json:"waker"`
	// MayStretch: Interval is the default and may grow while nothing is missed.
	MayStretch bool `json:"may_stretch,omitempty"`

	// DrainTimeout turns a drain into a kill; 0 = wait for ever.
	DrainTimeout time.Duration `json:"drain_timeout"`
	// DrainThen is what happens to jobs that DrainTimeout ends: DrainRequeue or DrainFail.
	DrainThen string `json:"drain_then"`
	// TermTimeout is how long a killed job may take before its process is killed.
	TermTimeout time.Duration `json:"resque_term_timeout"`
	// OnMasterDeath is what worker processes do when their master has died: "drain" or "kill".
	OnMasterDeath string `json:"on_master_death"`
	// OnWorkerDeath is what happens to the jobs of a dead worker process: "requeue" or "fail".
	OnWorkerDeath string `json:"on_worker_death"`
	// MaxDeaths is how many worker processes a job may take down before it is recorded as failed;
	// four times as many if the deaths come from outside.
	MaxDeaths int `json:"max_deaths"`
	// FailureBackend is "resque" (one list) or Resque's "multi-queue" (a list per queue).
	FailureBackend string `json:"failure_backend"`
	// HostDeadHook is a command that proves or causes the death of a silent host; empty = none. It
	// is called after HostDeadAfter (0 = two and a half heartbeats) and may take HostDeadTimeout.
	HostDeadHook    []string      `json:"host_dead_hook,omitempty"`
	HostDeadAfter   time.Duration `json:"host_dead_after,omitempty"`
	HostDeadTimeout time.Duration `json:"host_dead_timeout"`
	// LongJobSilence and LongJobWait are how long a running or waiting long job may be silent.
	LongJobSilence time.Duration `json:"long_job_silence"`
	LongJobWait    time.Duration `json:"long_job_wait"`
	// PruneQueues removes the names of queues that have been empty for so long; 0 = never.
	PruneQueues time.Duration `json:"prune_queues"`
	PIDFile     string        `json:"pidfile"`
	// ControlSocket is where the daemon takes requests: a path, "" for a default, or "off".
	ControlSocket string `json:"control_socket"`

	StatsdHost string `json:"statsd_host"`
	StatsdPort int    `json:"statsd_port"`
	StatsdKey  string `json:"statsd_key"`

	// LocketedQueues are patterns of the queues whose jobs take a job lock: ["*"] all, [] none.
	LocketedQueues     []string      `json:"locketed_queues"`
	HeartbeatFrequency time.Duration `json:"heartbeat_frequency"`
	JobLockDuration    time.Duration `json:"job_lock_duration"`
	// JobLockKey is one of jobkey.Styles or a template.
	JobLockKey string `json:"job_lock_key"`
	// Lines is LinesAuto, or "off": locked jobs wait at the tail of their queue.
	Lines  string            `json:"lines"`
	Within queueage.Promises `json:"within"`
	// Fair are the queues whose tenants take turns; jobkey.Others means all other queues.
	Fair map[string]jobkey.Fair `json:"fair"`
	// Limits bound how many jobs run at once, or begin in a time, by name.
	Limits map[string]jobkey.LimitRule `json:"limits"`
	// OnLockLost is what happens to a job that has lost its lock: "fail" or "requeue".
	OnLockLost string `json:"on_lock_lost"`

	// Store is this configuration's store, if there are several. Routes map queues to stores.
	Store  string  `json:"store,omitempty"`
	Routes []Route `json:"routes,omitempty"`

	// UniqueQueues are patterns of queues without equal payloads: ["*"] all, [] none.
	UniqueQueues []string      `json:"unique_queues"`
	Redact       *redact.Rules `json:"redact"`
	// UniqueQueuesStrict refuses inconsistent unique queues, like resque-uniqueue, instead of
	// repairing them.
	UniqueQueuesStrict bool `json:"unique_queues_strict"`

	// EnvKeep are patterns of variables that commands get although they look like secrets, EnvDrop
	// of variables that they don't get. EnvDrop wins.
	EnvKeep []string `json:"env_keep,omitempty"`
	EnvDrop []string `json:"env_drop,omitempty"`

	// Schedules are the file's, by name, without queue if only the program knows their class.
	Schedules []schedule.Definition `json:"schedule,omitempty"`
	// SchedulesElsewhere are the names of schedules whose queue belongs to another store.
	SchedulesElsewhere []string `json:"schedules_elsewhere,omitempty"`
	// PersistentSchedules: resque-scheduler's schedules in Redis are used too.
	PersistentSchedules bool `json:"persistent_schedules,omitempty"`
	// SchedulerLock is the scheduler to take turns with; see SchedulerLockPrefix.
	SchedulerLock string `json:"scheduler_lock"`

	// MaxPayload (bytes) fails jobs with larger payloads.
	MaxPayload int64 `json:"max_payload"`

	LogFormat string `json:"log_format"` // auto, text, json
	LogLevel  string `json:"log_level"`  // debug, info, warn, error
	LogJobs   bool   `json:"log_jobs"`

	// Handlers are the command handlers by class, in the file's spelling.
	Handlers map[string]Handler `json:"handlers"`
	Runners  map[string]Runner  `json:"runners,omitempty"`
}

// Runner is a program whose processes perform jobs one by one; see docs/runner-protocol.md.
type Runner struct {
	// Command is the argv; no shell is involved.
	Command []string `json:"command"`
	// Dir is the working directory; empty = the daemon's.
	Dir string            `json:"dir,omitempty"`
	Env map[string]string `json:"env,omitempty"`
	// Fork: runners are forked from a template process that has booted the application.
	Fork        bool `json:"fork"`
	Concurrency int  `json:"concurrency"`
	// BootTimeout is how long the command may take to become ready.
	BootTimeout time.Duration `json:"boot_timeout"`
	// JobsPerRunner is after how many jobs a process is replaced; 0 = JobsPerFork.
	JobsPerRunner int `json:"jobs_per_runner"`
	// MaxRSS (bytes) and MaxAge replace a larger or older process; 0 = no limit.
	MaxRSS int64         `json:"max_rss,omitempty"`
	MaxAge time.Duration `json:"max_age,omitempty"`
	// KillAfter is the time between cancel and KILL; default 10 s.
	KillAfter time.Duration `json:"kill_after,omitempty"`
	// Classes are names and patterns of the classes that the runner performs; empty = any.
	Classes []string `json:"classes,omitempty"`
}

// Handler is a command handler of the file.
type Handler struct {
	// Command is the argv, without a shell. Runner names a runner to use instead.
	Command []string `json:"command,omitempty"`
	Runner  string   `json:"runner,omitempty"`
	// Queue is where resqued enqueue puts the class's jobs; empty = by flag.
	Queue string `json:"queue,omitempty"`
	// Dir is the working directory; empty = the daemon's.
	Dir string            `json:"dir,omitempty"`
	Env map[string]string `json:"env,omitempty"`
	// Timeout kills the command when it has run for so long; 0 = never.
	Timeout time.Duration `json:"timeout,omitempty"`
	// MaxRun is when a job is asked to make room; 0 = never.
	MaxRun time.Duration `json:"max_run,omitempty"`
	// OnLeaving is the signal, such as USR2, that asks a command to make room; empty = none.
	OnLeaving string `json:"on_leaving,omitempty"`
	// KillAfter is the time between TERM and KILL; default 10 s.
	KillAfter time.Duration `json:"kill_after,omitempty"`
	// AtMostOnce: a job is never run again automatically, even if its worker process dies.
	AtMostOnce bool `json:"at_most_once,omitempty"`
	// Lock is the class lock that jobs take; nil = none.
	Lock *HandlerLock `json:"lock,omitempty"`
	// Retry is when failed jobs run again; nil = never.
	Retry *HandlerRetry `json:"retry,omitempty"`
	// LongJob makes its jobs slices of long jobs; nil = they are not.
	LongJob *HandlerLongJob `json:"long_job,omitempty"`
}

// Threads returns how many jobs the whole daemon runs at a time.
func (c Config) Threads() int { return c.WorkerCount * c.ThreadCount }

// Locked reports whether jobs of a queue take a job lock.
func (c Config) Locked(queue string) bool { return selector.MatchAny(c.LocketedQueues, queue) }

// KeepsEnv reports whether env_keep covers a variable.
func (c Config) KeepsEnv(name string) bool { return selector.MatchAny(c.EnvKeep, name) }

// DropsEnv reports whether env_drop covers a variable.
func (c Config) DropsEnv(name string) bool { return selector.MatchAny(c.EnvDrop, name) }

// Unique reports whether a queue holds a payload at most once.
func (c Config) Unique(queue string) bool { return selector.MatchAny(c.UniqueQueues, queue) }

// At returns a copy for another Redis URL with its password. TLS keeps the certificates.
func (c Config) At(url string) Config {
	if url != c.RedisURL {
		c.RedisURL, c.RedisPasswordFile = url, ""
	}
	if !strings.HasPrefix(url, "rediss") {
		c.RedisCA, c.RedisCert = "", ""
	}
	return c
}

// Redacted returns a copy that may be logged and shown: without passwords in URLs, values of
// environment variables, and contents of files.
func (c Config) Redacted() Config {
	c.RedisCA, c.RedisCert = "", ""
	c.RedisURL = RedactURL(c.RedisURL)
	c.DatabaseURL = redactDatabase(c.DatabaseURL)
	c.Handlers = maps.Clone(c.Handlers)
	for class, h := range c.Handlers {
		h.Env = maps.Clone(h.Env)
		for name := range h.Env {
			h.Env[name] = hidden
		}
		if h.Lock != nil && h.Lock.Redis != "" {
			lock := *h.Lock
			lock.Redis = RedactURL(lock.Redis)
			h.Lock = &lock
		}
		c.Handlers[class] = h
	}
	c.Runners = maps.Clone(c.Runners)
	for name, r := range c.Runners {
		r.Env = maps.Clone(r.Env)
		for variable := range r.Env {
			r.Env[variable] = hidden
		}
		c.Runners[name] = r
	}
	return c
}

// Fingerprint returns 12 hexadecimal digits of the redacted configuration, so that logs don't help
// to guess passwords: changed secrets don't change it.
func (c Config) Fingerprint() string {
	sum := sha256.Sum256(c.redactedJSON())
	return hex.EncodeToString(sum[:6])
}

// KeyDigests returns "key=digest" for each set key, redacted, to find keys that differ.
func (c Config) KeyDigests() string {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(c.redactedJSON(), &values); err != nil {
		panic(err)
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch value := string(values[key]); value {
		case `""`, "0", "false", "null", "[]", "{}":
		default:
			sum := sha256.Sum256([]byte(value))
			list = append(list, key+"="+hex.EncodeToString(sum[:2]))
		}
	}
	return strings.Join(list, " ")
}

func (c Config) redactedJSON() []byte {
	text, err := json.Marshal(c.Redacted())
	if err != nil { // plain data cannot fail
		panic(err)
	}
	return text
}

func (c Config) classes() []string { return slices.Sorted(maps.Keys(c.Handlers)) }

// FailureLists reports whether each queue has its own list of failures.
func (c Config) FailureLists() bool { return c.FailureBackend == "multi-queue" }
