// Package config reads resqued's configuration: flags, environment, file and
// defaults, in that order of precedence. It holds the only viper and is the only
// reader of the environment. A Config is plain data: it is resolved and
// validated once, by Load, and then handed to the worker processes as JSON, so
// that a whole tree runs one and the same configuration.
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

// The values of Config.Waker.
const (
	WakerAuto = "auto" // where the server can, and has connections to spare
	WakerOn   = "on"
	WakerOff  = "off"
)

// Config is a resolved and validated configuration.
type Config struct {
	// RedisURL may hold the password that was read from RedisPasswordFile: log
	// Redacted, never this.
	RedisURL          string `json:"redis_url"`
	RedisPasswordFile string `json:"redis_password_file,omitempty"`
	// RedisCAFile holds the certificates to trust for TLS; empty = the system's.
	RedisCAFile string `json:"redis_ca_file,omitempty"`
	// RedisCA are these certificates, so that worker processes need not read the file again.
	RedisCA string `json:"redis_ca,omitempty"`
	// RedisCertFile and RedisKeyFile hold the certificate that is presented to Redis, and its key;
	// empty = none. RedisCert is what is in them: log Redacted, never this.
	RedisCertFile string `json:"redis_cert_file,omitempty"`
	RedisKeyFile  string `json:"redis_key_file,omitempty"`
	RedisCert     string `json:"redis_cert,omitempty"`
	// AllowEviction accepts a server whose maxmemory-policy may drop jobs.
	AllowEviction bool   `json:"allow_eviction,omitempty"`
	Namespace     string `json:"namespace"`
	// DatabaseURL is the PostgreSQL of locks, also where it was read from
	// DatabaseURLFile; empty = none. It may hold a password: log Redacted, never this.
	DatabaseURL     string `json:"database_url,omitempty"`
	DatabaseURLFile string `json:"database_url_file,omitempty"`

	WorkerCount int `json:"worker_count"`
	ThreadCount int `json:"thread_count"`
	// JobsPerFork is how many jobs a worker process starts before it is
	// replaced; 0 = no limit.
	JobsPerFork int `json:"jobs_per_fork"`
	// MaxRSS (bytes) and MaxAge retire a worker process early; 0 = no limit. MaxRSS may be RSSAuto.
	MaxRSS int64         `json:"max_rss"`
	MaxAge time.Duration `json:"max_age"`
	// MaxRetiring is how many retiring processes may exist beside the N slots.
	MaxRetiring int `json:"max_retiring"`

	// Queues is the queue specification, parsed; its caps are resolved against
	// WorkerCount × ThreadCount.
	Queues selector.Spec `json:"queues"`

	// Interval is how often an idle daemon looks for jobs.
	Interval time.Duration `json:"interval"`
	// UntilEmpty: leave when every queue is empty (INTERVAL=0).
	UntilEmpty bool `json:"until_empty"`
	// Waker is when an idle daemon waits for jobs in Redis besides looking for them:
	// WakerAuto, WakerOn or WakerOff.
	Waker string `json:"waker"`
	// MayStretch: Interval is the default, and may grow while nothing is missed by it.
	MayStretch bool `json:"may_stretch,omitempty"`

	// DrainTimeout turns a drain into a kill; 0 = wait for ever.
	DrainTimeout time.Duration `json:"drain_timeout"`
	// DrainThen is what becomes of the jobs that it ends: DrainRequeue or DrainFail.
	DrainThen string `json:"drain_then"`
	// TermTimeout is how long a killed job may take to stop before its process
	// is killed (RESQUE_TERM_TIMEOUT).
	TermTimeout time.Duration `json:"resque_term_timeout"`
	// OnMasterDeath is what worker processes do when their master is gone:
	// "drain" or "kill".
	OnMasterDeath string `json:"on_master_death"`
	// OnWorkerDeath is what becomes of the jobs of a worker process that dies:
	// "requeue" or "fail".
	OnWorkerDeath string `json:"on_worker_death"`
	// MaxDeaths is how many worker processes a job may take with it before it is
	// recorded as failed; of deaths that come from outside, four times as many.
	MaxDeaths int `json:"max_deaths"`
	// FailureBackend is where failures are recorded: "resque", in the failed list, or
	// "multi-queue", in a list for each queue, as Resque's multi-queue backend does.
	FailureBackend string `json:"failure_backend"`
	// HostDeadHook is a command that proves, or brings about, the death of a host that is silent, and
	// its arguments; empty = none. HostDeadAfter is after how long a silence it is asked, 0 = two and a half
	// beats; HostDeadTimeout how long it may take.
	HostDeadHook    []string      `json:"host_dead_hook,omitempty"`
	HostDeadAfter   time.Duration `json:"host_dead_after,omitempty"`
	HostDeadTimeout time.Duration `json:"host_dead_timeout"`
	// LongJobSilence and LongJobWait are how long a run of a long job gives no sign of life,
	// one that runs and one that waits, before its payload is looked for.
	LongJobSilence time.Duration `json:"long_job_silence"`
	LongJobWait    time.Duration `json:"long_job_wait"`
	// PruneQueues is how long a queue is empty whose name is removed then; 0 = never.
	PruneQueues time.Duration `json:"prune_queues"`
	PIDFile     string        `json:"pidfile"`
	// ControlSocket is where the daemon can be asked for a reload: a path, "" for one of its
	// own, or "off".
	ControlSocket string `json:"control_socket"`

	StatsdHost string `json:"statsd_host"`
	StatsdPort int    `json:"statsd_port"`
	StatsdKey  string `json:"statsd_key"`

	// LocketedQueues are the patterns of the queues whose jobs take a job lock:
	// ["*"] all, [] none.
	LocketedQueues     []string      `json:"locketed_queues"`
	HeartbeatFrequency time.Duration `json:"heartbeat_frequency"`
	JobLockDuration    time.Duration `json:"job_lock_duration"`
	// JobLockKey is one of jobkey.Styles or a template.
	JobLockKey string `json:"job_lock_key"`
	// Lines is LinesAuto, or "off": locked jobs wait at the tail of their queue.
	Lines string `json:"lines"`
	// Within is how long the jobs of queues may wait.
	Within queueage.Promises `json:"within"`
	// Fair are the queues whose tenants take turns; jobkey.Others stands for those that are not named.
	Fair map[string]jobkey.Fair `json:"fair"`
	// OnLockLost is what becomes of a job whose lock is gone: "fail" or
	// "requeue".
	OnLockLost string `json:"on_lock_lost"`

	// Store is the name of the store that this is the configuration of, where there are
	// several; Routes says which queues belong to which.
	Store  string  `json:"store,omitempty"`
	Routes []Route `json:"routes,omitempty"`

	// UniqueQueues are the patterns of the queues that hold a payload at most
	// once: ["*"] all, [] none.
	UniqueQueues []string `json:"unique_queues"`
	// Redact is what is not shown of the arguments of jobs.
	Redact *redact.Rules `json:"redact"`
	// UniqueQueuesStrict refuses a unique queue whose companions are out of step,
	// as resque-uniqueue does, instead of repairing it.
	UniqueQueuesStrict bool `json:"unique_queues_strict"`

	// EnvKeep are patterns of the variables that commands get although they sound like
	// secrets, EnvDrop of those that they do not get although they do not; EnvDrop wins.
	EnvKeep []string `json:"env_keep,omitempty"`
	EnvDrop []string `json:"env_drop,omitempty"`

	// Schedules are those of the file, by name. One whose class no file names has no
	// queue yet.
	Schedules []schedule.Definition `json:"schedule,omitempty"`
	// SchedulesElsewhere are the names of those whose queue belongs to another store.
	SchedulesElsewhere []string `json:"schedules_elsewhere,omitempty"`
	// PersistentSchedules: the schedules that resque-scheduler keeps in Redis count as well.
	PersistentSchedules bool `json:"persistent_schedules,omitempty"`
	// SchedulerLock names the scheduler with which the daemon takes turns; see
	// SchedulerLockPrefix.
	SchedulerLock string `json:"scheduler_lock"`

	// MaxPayload (bytes) refuses larger payloads into failed.
	MaxPayload int64 `json:"max_payload"`

	LogFormat string `json:"log_format"` // auto, text, json
	LogLevel  string `json:"log_level"`  // debug, info, warn, error
	// LogJobs: the start and the end of every job are logged.
	LogJobs bool `json:"log_jobs"`

	// Handlers are the command handlers by class, in the case of the file.
	Handlers map[string]Handler `json:"handlers"`
	// Runners are the runners by name.
	Runners map[string]Runner `json:"runners,omitempty"`
}

// Runner is a program of the file's runners section whose processes stay and perform one job
// after the other; see docs/runner-protocol.md.
type Runner struct {
	// Command is the argv; no shell is involved.
	Command []string `json:"command"`
	// Dir is the working directory; empty = the daemon's.
	Dir string `json:"dir,omitempty"`
	// Env are additional environment variables (NAME: value).
	Env map[string]string `json:"env,omitempty"`
	// Fork: one template process boots the application, and runners are forked from it. Else
	// each runner boots it.
	Fork bool `json:"fork"`
	// Concurrency is how many jobs one process performs at a time.
	Concurrency int `json:"concurrency"`
	// BootTimeout is how long the command may take to be ready.
	BootTimeout time.Duration `json:"boot_timeout"`
	// JobsPerRunner is after how many jobs a process is replaced; 0 = JobsPerFork.
	JobsPerRunner int `json:"jobs_per_runner"`
	// MaxRSS (bytes) and MaxAge replace a process that is larger or older; 0 = no limit.
	MaxRSS int64         `json:"max_rss,omitempty"`
	MaxAge time.Duration `json:"max_age,omitempty"`
	// KillAfter is the time between cancel and KILL; default 10 s.
	KillAfter time.Duration `json:"kill_after,omitempty"`
	// Classes are the classes that the runner performs, with patterns; empty = any.
	Classes []string `json:"classes,omitempty"`
}

// Handler is a command handler of the file's handlers section.
type Handler struct {
	// Command is the argv; no shell is involved. Runner is the name of a runner in its place.
	Command []string `json:"command,omitempty"`
	Runner  string   `json:"runner,omitempty"`
	// Queue is where resqued enqueue puts the class's jobs; empty = by flag.
	Queue string `json:"queue,omitempty"`
	// Dir is the working directory; empty = the daemon's.
	Dir string `json:"dir,omitempty"`
	// Env are additional environment variables (NAME: value).
	Env map[string]string `json:"env,omitempty"`
	// Timeout kills the command when it runs longer; 0 = never.
	Timeout time.Duration `json:"timeout,omitempty"`
	// MaxRun is after which time a job is asked to make room; 0 = never.
	MaxRun time.Duration `json:"max_run,omitempty"`
	// OnLeaving is the signal, such as USR2, that asks a command to make room; empty = none.
	OnLeaving string `json:"on_leaving,omitempty"`
	// KillAfter is the time between TERM and KILL; default 10 s.
	KillAfter time.Duration `json:"kill_after,omitempty"`
	// AtMostOnce: a job never runs again by itself, not even when its worker process
	// has died.
	AtMostOnce bool `json:"at_most_once,omitempty"`
	// Lock is the class lock that jobs take; nil = none.
	Lock *HandlerLock `json:"lock,omitempty"`
	// Retry is when failed jobs run again; nil = never.
	Retry *HandlerRetry `json:"retry,omitempty"`
	// LongJob makes its jobs slices of long jobs; nil = they are not.
	LongJob *HandlerLongJob `json:"long_job,omitempty"`
}

// Threads returns how many jobs the whole daemon can run at a time.
func (c Config) Threads() int { return c.WorkerCount * c.ThreadCount }

// Locked reports whether jobs of a queue take a job lock.
func (c Config) Locked(queue string) bool { return selector.MatchAny(c.LocketedQueues, queue) }

// KeepsEnv reports whether env_keep names a variable.
func (c Config) KeepsEnv(name string) bool { return selector.MatchAny(c.EnvKeep, name) }

// DropsEnv reports whether env_drop names a variable.
func (c Config) DropsEnv(name string) bool { return selector.MatchAny(c.EnvDrop, name) }

// Unique reports whether a queue holds a payload at most once.
func (c Config) Unique(queue string) bool { return selector.MatchAny(c.UniqueQueues, queue) }

// At returns a copy for the Redis of a URL. Another one has its password in the URL, and the same
// certificates if it uses TLS.
func (c Config) At(url string) Config {
	if url != c.RedisURL {
		c.RedisURL, c.RedisPasswordFile = url, ""
	}
	if !strings.HasPrefix(url, "rediss") {
		c.RedisCA, c.RedisCert = "", ""
	}
	return c
}

// Redacted returns a copy that may be logged and shown: without the passwords in
// URLs, without the values of the handlers' and runners' variables, and without what stands in files.
func (c Config) Redacted() Config {
	c.RedisCA, c.RedisCert = "", ""
	c.RedisURL = redactURL(c.RedisURL)
	c.DatabaseURL = redactDatabase(c.DatabaseURL)
	c.Handlers = maps.Clone(c.Handlers)
	for class, h := range c.Handlers {
		h.Env = maps.Clone(h.Env)
		for name := range h.Env {
			h.Env[name] = hidden
		}
		if h.Lock != nil && h.Lock.Redis != "" {
			lock := *h.Lock
			lock.Redis = redactURL(lock.Redis)
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

// Fingerprint returns 12 hexadecimal digits that differ between configurations.
// It is made of the redacted configuration, so that passwords cannot be guessed from a
// log: a change of nothing but secrets does not show in it.
func (c Config) Fingerprint() string {
	sum := sha256.Sum256(c.redactedJSON())
	return hex.EncodeToString(sum[:6])
}

// KeyDigests returns "key=digest" for each key whose value is not empty, from the redacted
// configuration: two daemons can be told apart by key.
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
	if err != nil { // plain data: nothing in it can fail
		panic(err)
	}
	return text
}

func (c Config) classes() []string { return slices.Sorted(maps.Keys(c.Handlers)) }

// FailureLists reports whether failures are recorded in a list for each queue.
func (c Config) FailureLists() bool { return c.FailureBackend == "multi-queue" }
