package handler

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/memfile"
	"github.com/resqued/resqued/internal/wire"
)

// outputFD is the descriptor on which a command may report.
const outputFD = 3

// Variables of the daemon that a command does not get, unless the configuration says so:
// what names the daemon's own databases, what systemd meant for the daemon, and whatever
// sounds like a secret. A handler's env: gives back what it needs.
var (
	secretNames = []string{
		"REDIS_URL", "DATABASE_URL", "CREDENTIALS_DIRECTORY", "REDISCLI_AUTH",
	}
	secretParts = []string{
		"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "CREDENTIAL", "API_KEY", "APIKEY",
		"ACCESS_KEY", "PRIVATE_KEY", "REDIS_URL", "DATABASE_URL", "PASSFILE",
	}
	// secretWords are such parts between underscores.
	secretWords = []string{
		"PASS", "PW", "PWD", "PAT", "KEY", "KEYS", "CRED", "CREDS", "DSN", "JWT", "PSK", "PIN", "SALT", "AUTH", "COOKIE", "PRIVATE", "CONNSTR",
	}
	// plainNames are no secrets, whatever they sound like.
	plainNames = []string{"PWD", "OLDPWD"}
	// ownPrefixes and NOTIFY_SOCKET are the daemon's own: a program that took them for
	// meant for it would do harm.
	ownPrefixes = []string{"RESQUED_", "WATCHDOG_", "LISTEN_"}
)

// EnvRules report by its name whether commands get a variable although it sounds like a
// secret, and whether they do not get it in any case. Drop wins; nil is no variable.
type EnvRules struct {
	Keep, Drop func(name string) bool
}

func (r EnvRules) keeps(name string) bool { return r.Keep != nil && r.Keep(name) }

func (r EnvRules) drops(name string) bool { return r.Drop != nil && r.Drop(name) }

// hides reports whether a variable is to be left out; sounds says whether its name and value
// are those of a secret.
func (r EnvRules) hides(name string, sounds bool) bool {
	return r.drops(name) || sounds && !r.keeps(name)
}

// Scrub returns an environment without the variables that commands do not get.
func Scrub(environ []string, rules EnvRules) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, value, ok := strings.Cut(variable, "=")
		upper := strings.ToUpper(name)
		return !ok || name == "" || upper == "NOTIFY_SOCKET" ||
			slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(upper, p) }) ||
			rules.hides(name, slices.Contains(secretNames, upper) || secret(upper, value))
	})
}

// secret reports whether a variable sounds like a secret; its name is in capitals.
func secret(name, value string) bool {
	if slices.Contains(plainNames, name) {
		return false
	}
	return slices.ContainsFunc(secretParts, func(p string) bool { return strings.Contains(name, p) }) ||
		slices.ContainsFunc(strings.Split(name, "_"), func(w string) bool { return slices.Contains(secretWords, w) }) ||
		holdsPassword(value)
}

// Unsecret returns the environment for a worker process whose jobs are all commands: without
// what they do not get, as far as it is a secret, because each command could read it from
// /proc. The worker process has its configuration otherwise; only PG… are left, which
// PostgreSQL's own client reads for the database of locks; where postgres says that there is
// one, also those that rules drop.
func Unsecret(environ []string, rules EnvRules, postgres bool) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, value, ok := strings.Cut(variable, "=")
		upper := strings.ToUpper(name)
		if strings.HasPrefix(upper, "PG") {
			return !ok || !postgres && rules.drops(name)
		}
		if needed(upper) {
			return !ok
		}
		return !ok || rules.hides(name, upper == "REDISCLI_AUTH" || secret(upper, value))
	})
}

// needed reports whether a worker process itself needs a variable, whatever commands get:
// Go's runtime, its TLS, times and temporary files, and the form of the log.
func needed(upper string) bool {
	switch upper {
	case "PATH", "HOME", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "JOURNAL_STREAM",
		"GOMEMLIMIT", "GOMAXPROCS", "GOGC", "GODEBUG", "GOTRACEBACK":
		return true
	}
	return false
}

// holdsPassword reports whether a value is an address with a password in it.
func holdsPassword(value string) bool {
	_, rest, ok := strings.Cut(value, "://")
	if !ok {
		return false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	at := strings.LastIndexByte(rest, '@')
	return at > 0 && strings.Contains(rest[:at], ":")
}

// environ returns the environment of one run. The variables of the job come
// last, and the last one of a name counts.
func (c *command) environ(job *resqued.Job, tag string, s *slice) ([]string, error) {
	own := []string{
		"RESQUED_JOB=" + tag,
		"RESQUED_PROC=" + c.runner.proc,
		"RESQUED_FD=" + strconv.Itoa(outputFD),
		"RESQUED_JOB_ID=" + job.ID,
		"RESQUED_JOB_CLASS=" + job.Class,
		"RESQUED_JOB_QUEUE=" + job.Queue,
		"RESQUED_JOB_ATTEMPT=" + strconv.Itoa(job.Attempt),
	}
	if job.MaxAttempts > 0 {
		own = append(own, "RESQUED_JOB_MAX_ATTEMPTS="+strconv.Itoa(job.MaxAttempts))
	}
	if !job.Deadline.IsZero() {
		own = append(own, "RESQUED_JOB_DEADLINE="+wire.Stamp(job.Deadline))
	}
	if job.LockKey != "" {
		own = append(own, "RESQUED_LOCK_KEY="+job.LockKey, "RESQUED_LOCK_FENCE="+strconv.FormatInt(job.Fence(), 10))
	}
	if job.LockSequence != 0 {
		own = append(own, "LOCKER_SEQUENCE="+strconv.FormatInt(job.LockSequence, 10))
	}
	if s != nil {
		own = append(own, s.environ()...)
	}
	for _, variable := range own {
		if name, value, _ := strings.Cut(variable, "="); strings.ContainsRune(value, 0) {
			return nil, &StartError{
				Program: c.Argv[0],
				Err:     fmt.Errorf("%s would hold a NUL byte (%s), which no program can be given", name, wire.Printable(value, shownName)),
			}
		}
	}
	return slices.Concat(c.runner.base, c.Env, own), nil
}

// inputFile returns a file in memory that holds the job as JSON: however
// large the job is, and whether or not the program reads it, neither process waits for the other.
func inputFile(job *resqued.Job, s *slice) (*os.File, error) {
	f, err := memfile.New("resqued-job", encodeJob(job, s))
	if err != nil {
		return nil, fmt.Errorf("the job as a file: %w", err)
	}
	return f, nil
}

// encodeJob returns the line that a command finds on stdin. The arguments keep
// the bytes with which they were pushed.
func encodeJob(job *resqued.Job, s *slice) []byte {
	b := make([]byte, 0, 256+len(job.Payload))
	b = wire.AppendString(append(b, `{"id":`...), job.ID)
	b = wire.AppendString(append(b, `,"class":`...), job.Class)
	b = append(append(b, `,"args":`...), job.Args.String()...)
	b = wire.AppendString(append(b, `,"queue":`...), job.Queue)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(job.Attempt), 10)
	b = append(b, `,"max_attempts":`...)
	if job.MaxAttempts > 0 {
		b = strconv.AppendInt(b, int64(job.MaxAttempts), 10)
	} else {
		b = append(b, "null"...)
	}
	b = wire.AppendTime(append(b, `,"enqueued_at":`...), job.EnqueuedAt)
	b = wire.AppendTime(append(b, `,"deadline":`...), job.Deadline)
	if s != nil {
		b = s.describe(b)
	}
	return append(b, "}\n"...)
}
