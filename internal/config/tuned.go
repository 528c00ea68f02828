package config

import (
	"fmt"
	"strings"
)

// Tuning is how many jobs a daemon runs at a time, and how.
type Tuning struct {
	WorkerCount int `json:"worker_count"`
	ThreadCount int `json:"thread_count"`
	JobsPerFork int `json:"jobs_per_fork"`
	// MaxRSS (bytes) is 0 if the memory is unknown or too small.
	MaxRSS int64 `json:"max_rss,omitempty"`
}

// RSSAuto is a MaxRSS that depends on the daemon's control group; see AutoRSS.
const RSSAuto = -1

const (
	rssAuto = "auto"
	// leastAutoRSS is the size below which replacing a worker process frees too little.
	leastAutoRSS = 64 << 20

	fewThreads, manyThreads = 8, 16
	// threadsAimedAt is how many jobs run at a time on a machine with many processors.
	threadsAimedAt = 64
	tunedJobs      = 1000
	leastTunedRSS  = 128 << 20
	mostTunedRSS   = 1 << 30
)

// Tuned returns a tuning for jobs that mostly wait for other servers: a process per processor, 8
// to 16 threads each, replaced after a thousand jobs or when all together use half the memory. The
// arguments are what the daemon may use; memory 0 = unknown.
func Tuned(processors int, memory int64) Tuning {
	t := Tuning{WorkerCount: min(max(processors, 1), maxWorkers), JobsPerFork: tunedJobs}
	t.ThreadCount = min(max(threadsAimedAt/t.WorkerCount, fewThreads), manyThreads)
	const step = 64 << 20
	if rss := memory / 2 / int64(t.WorkerCount) / step * step; rss >= leastTunedRSS {
		t.MaxRSS = min(rss, mostTunedRSS)
	}
	return t
}

// AutoRSS returns the memory above which a worker process is replaced if max_rss is auto: together
// they may use half of the control group's limit (0 = unlimited). 0 = no limit: it is too little.
func (c *Config) AutoRSS(limit int64) int64 {
	const step = 1 << 20
	if rss := limit / 2 / int64(c.WorkerCount+c.MaxRetiring) / step * step; rss >= leastAutoRSS {
		return rss
	}
	return 0
}

// Defaults reports whether the number of jobs was left to the defaults: one per process.
func (r *Resolved) Defaults() bool {
	for _, key := range []string{"worker_count", "thread_count", "jobs_per_fork"} {
		if r.Sources[key].Kind != FromDefault {
			return false
		}
	}
	return r.WorkerCount == 1 && r.ThreadCount == 1 && r.JobsPerFork == 1
}

// DefaultsHint says what to set instead of defaults. program writes a configuration.
func DefaultsHint(t Tuning, program string) string {
	return fmt.Sprintf("The defaults run one job at a time, each in a process of its own, as Resque does: compatible and slow."+
		" For this machine, if jobs can share a process: worker_count: %d, thread_count: %d, jobs_per_fork: %d (%s config init writes them).",
		t.WorkerCount, t.ThreadCount, t.JobsPerFork, program)
}

// Starter is the content of a first configuration file.
type Starter struct {
	// Program is the command that reads it.
	Program string
	// Tuning is for the machine on which it is written.
	Tuning
	// RedisURL and Namespace may be empty for the defaults.
	RedisURL, Namespace string
	// Queues are those of the program's handlers; empty: an example with a handler.
	Queues []string
}

// Text returns the file, which is valid and works unchanged.
func (s Starter) Text() string {
	redisURL, namespace := s.RedisURL, s.Namespace
	if redisURL == "" {
		redisURL = "redis://127.0.0.1:6379/0"
	}
	if namespace == "" {
		namespace = "resque"
	}
	rss := fmt.Sprintf("max_rss: %-16s# memory above which a process is replaced early", FormatSize(s.MaxRSS))
	if s.MaxRSS == 0 {
		rss = "# max_rss: 512MiB        # memory above which a process is replaced early"
	}
	var queues []string
	for _, q := range s.Queues {
		queues = append(queues, quote(q))
	}
	hint := "those of this program's handlers"
	handlers := "# handlers:\n#   Thumb:\n"
	comment := "# "
	if len(queues) == 0 {
		queues, hint, comment = []string{"example"}, "an example: name yours", ""
		handlers = "handlers:\n  Example:\n"
	}
	return fmt.Sprintf(`# A first configuration of %[1]s, with values for the machine on which it was written.
#
#   %[1]s config check    what is wrong with it, or probably not meant
#   %[1]s work            work jobs
#   %[1]s bench           what this machine and this Redis can do
#
# docs/configuration.md has all keys, and configs/resqued.yaml shows them. A flag wins over
# the environment (REDIS_URL, WORKER_COUNT …), the environment over this file.

# Redis, and what all keys in it begin with. A password belongs into a file of its own.
redis_url: %[2]s
namespace: %[3]s
# redis_password_file: /etc/resqued/redis-password

# How many jobs run at a time: processes × threads. A process for each processor; more threads
# where jobs wait for other servers, fewer where they compute. Jobs of one process share its
# memory: code that is not made for that needs thread_count: 1.
worker_count: %[4]d
thread_count: %[5]d
jobs_per_fork: %[6]d      # jobs after which a process is replaced, which gives back what they leaked
%[7]s

# In order of priority. "*" is every queue that exists, "mail:8" at most 8 jobs of mail at a
# time. A job that no handler knows fails, so name only queues whose classes have one.
queues: [%[8]s]  # %[9]s
# queues: [critical, "mail:8", "*"]

# A program for each class. It reads the job as JSON from its standard input.
%[10]s%[11]s    command: [cat]         # or [python3, thumb.py]
%[11]s    queue: example         # where "%[1]s enqueue" puts its jobs
%[11]s    timeout: 2m
`, s.Program, quote(redisURL), quote(namespace), s.WorkerCount, s.ThreadCount, s.JobsPerFork, rss,
		strings.Join(queues, ", "), hint, handlers, comment)
}

// quote returns a text as a YAML value, quoted if necessary.
func quote(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@") == "" && plain(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// plain reports whether YAML reads a text of harmless characters as that text.
func plain(text string) bool {
	var first rune
	for _, first = range text {
		break
	}
	letter := first >= 'a' && first <= 'z' || first >= 'A' && first <= 'Z'
	switch strings.ToLower(text) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return false
	}
	return letter && !strings.HasSuffix(text, ":")
}
