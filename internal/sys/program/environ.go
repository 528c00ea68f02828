package program

import (
	"slices"
	"strings"
)

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
	// plainNames are not secrets, whatever they sound like.
	plainNames = []string{"PWD", "OLDPWD"}
	// ownPrefixes and NOTIFY_SOCKET are the daemon's own: a program that took them for
	// meant for it would do harm.
	ownPrefixes = []string{"RESQUED_", "WATCHDOG_", "LISTEN_"}
)

// EnvRules report by its name whether commands get a variable although it sounds like a
// secret, and whether they do not get it in any case. Drop wins; nil is not a variable.
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
