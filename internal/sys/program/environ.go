package program

import (
	"slices"
	"strings"
)

// Variables of the daemon that a command does not get unless the configuration says so: the
// daemon's own databases, what systemd set for the daemon, and what sounds like a secret. A
// handler's env: restores what it needs.
var (
	secretNames = []string{
		"REDIS_URL", "DATABASE_URL", "CREDENTIALS_DIRECTORY", "REDISCLI_AUTH",
	}
	secretParts = []string{
		"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "CREDENTIAL", "API_KEY", "APIKEY",
		"ACCESS_KEY", "PRIVATE_KEY", "REDIS_URL", "DATABASE_URL", "PASSFILE",
	}
	// secretWords are secret when between underscores.
	secretWords = []string{
		"PASS", "PW", "PWD", "PAT", "KEY", "KEYS", "CRED", "CREDS", "DSN", "JWT", "PSK", "PIN", "SALT", "AUTH", "COOKIE", "PRIVATE", "CONNSTR",
	}
	// plainNames are not secrets, although they sound like one.
	plainNames = []string{"PWD", "OLDPWD"}
	// ownPrefixes and NOTIFY_SOCKET are the daemon's own: they would mislead other programs.
	ownPrefixes = []string{"RESQUED_", "WATCHDOG_", "LISTEN_"}
)

// EnvRules report, by name, whether commands get a variable that sounds like a secret (Keep),
// and whether they never get it (Drop). Drop wins; nil matches nothing.
type EnvRules struct {
	Keep, Drop func(name string) bool
}

func (r EnvRules) keeps(name string) bool { return r.Keep != nil && r.Keep(name) }

func (r EnvRules) drops(name string) bool { return r.Drop != nil && r.Drop(name) }

// hides reports whether to leave a variable out; sounds says whether its name or value sounds
// like a secret.
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

// secret reports whether a variable sounds like a secret; name is in capitals.
func secret(name, value string) bool {
	if slices.Contains(plainNames, name) {
		return false
	}
	return slices.ContainsFunc(secretParts, func(p string) bool { return strings.Contains(name, p) }) ||
		slices.ContainsFunc(strings.Split(name, "_"), func(w string) bool { return slices.Contains(secretWords, w) }) ||
		holdsPassword(value)
}

// Unsecret returns the environment for a worker process whose jobs are all commands. It leaves
// out the secrets that commands do not get, because they could read them from /proc; the worker
// process gets its configuration otherwise. PG… stay, because PostgreSQL's client reads them for
// the database of locks; with postgres, even those that rules drop.
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

// needed reports whether the worker process itself needs a variable, for Go's runtime, TLS,
// times, temporary files or the log format.
func needed(upper string) bool {
	switch upper {
	case "PATH", "HOME", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "JOURNAL_STREAM",
		"GOMEMLIMIT", "GOMAXPROCS", "GOGC", "GODEBUG", "GOTRACEBACK":
		return true
	}
	return false
}

// holdsPassword reports whether a value is a URL with a password in it.
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
