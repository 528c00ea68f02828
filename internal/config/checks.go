package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/resqued/resqued/internal/selector"
)

// pollInterval is how often a daemon polls that exits when its queues are empty (interval 0).
const pollInterval = 100 * time.Millisecond

func (l *loader) readQueues() {
	if l.bad["queues"] {
		return
	}
	list := l.lists["queues"]
	if len(list) == 0 {
		if l.store != nil {
			if l.options.NeedQueues {
				l.refuse("queues", "", fmt.Sprintf("store %s has none: no daemon of this configuration works it", l.store.name))
			}
			return
		}
		if !l.given("queues") && l.useHandlerQueues() {
			return
		}
		refused := func(e Error) bool { return strings.HasPrefix(e.Key, "handlers") } // its queue was refused with it
		if l.options.NeedQueues && !slices.ContainsFunc(l.errs, refused) {
			l.refuse("queues", "", "no queue to work; set QUEUES=critical,mail (in order of priority) or QUEUES=*"+
				" for all, or give --queues, or queues: in the file, or queue: of a handler")
		}
		return
	}
	threads, known := l.result.Threads(), !l.bad["worker_count"] && !l.bad["thread_count"]
	if !known {
		threads = 100 // large enough that no share comes out as 0
	}
	spec, warnings, err := selector.Parse(list, threads)
	if err != nil {
		l.refuseEntries("queues", err)
		return
	}
	l.result.Queues = spec
	for _, w := range warnings {
		if w.Code != selector.CapAbove || known {
			l.warn("queues", w.Code, w.Message)
		}
	}
}

func (l *loader) envSet(key string) []string {
	var errs []error
	for i, entry := range l.lists[key] {
		name, reason := strings.TrimPrefix(entry, "!"), ""
		switch {
		case name == "":
			reason = "the name of a variable is missing"
		case strings.Contains(name, "="):
			reason = "the name alone, without a value; values belong into env of a handler"
		case strings.ContainsFunc(name, unicode.IsSpace):
			reason = "must not hold spaces; a comma separates names"
		case key == "env_keep" && name == entry && OwnVariable(name):
			reason = "commands never get this: it is meant for the daemon itself"
		}
		if reason != "" {
			errs = append(errs, &selector.EntryError{Index: i, Entry: entry, Reason: reason})
		}
	}
	if len(errs) > 0 && !l.bad[key] {
		l.refuseEntries(key, errors.Join(errs...))
	}
	if list := l.queueSet(key); len(list) > 0 {
		return list
	}
	return nil
}

// OwnVariable reports whether a variable, or a glob's prefix, is reserved for the daemon.
func OwnVariable(name string) bool {
	return name == "NOTIFY_SOCKET" || slices.ContainsFunc([]string{"RESQUED_", "WATCHDOG_", "LISTEN_"}, func(p string) bool {
		return strings.HasPrefix(name, p)
	})
}

func (l *loader) queueSet(key string) []string {
	list := l.lists[key]
	if l.bad[key] {
		return nil
	}
	if slices.Equal(list, []string{"!*"}) { // the environment cannot express []
		list = nil
	}
	if err := selector.CheckSet(list); err != nil {
		l.refuseEntries(key, err)
		return nil
	}
	for _, w := range selector.SetWarnings(list) {
		l.warn(key, w.Code, key+": "+w.Message)
	}
	return append([]string{}, list...)
}

// refuseEntries refuses entries of a list, each with its own line of the file.
func (l *loader) refuseEntries(key string, err error) {
	for _, one := range entryErrors(err) {
		l.refuse(key, one.Entry, one.Reason)
		source := &l.errs[len(l.errs)-1].Source
		if source.Kind == FromFile {
			source.Line = one.lineIn(l.file.entries[key], source.Line)
		}
	}
}

// entryError is why an entry, or the list as a whole, is refused.
type entryError struct{ *selector.EntryError }

// lineIn returns the line of the entry, or that of the list.
func (e entryError) lineIn(lines []int, list int) int {
	if e.Index >= 0 && e.Index < len(lines) {
		return lines[e.Index]
	}
	return list
}

// entryErrors takes apart an error of package selector.
func entryErrors(err error) (errs []entryError) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, one := range all {
		entry, ok := errors.AsType[*selector.EntryError](one)
		if !ok {
			entry = &selector.EntryError{Index: -1, Reason: one.Error()}
		}
		errs = append(errs, entryError{entry})
	}
	return errs
}

func (l *loader) compare() {
	c := &l.result.Config
	if l.ok("heartbeat_frequency", "job_lock_duration") && !l.given("heartbeat_frequency") && c.HeartbeatFrequency >= c.JobLockDuration {
		// The default suits the default lock duration, and is reduced for a shorter one. It limits
		// nothing: processes beat after two sevenths of a lease anyway.
		c.HeartbeatFrequency = max(time.Second, c.JobLockDuration-time.Second)
	}
	if l.ok("heartbeat_frequency", "job_lock_duration") && c.HeartbeatFrequency >= c.JobLockDuration {
		l.refuse("heartbeat_frequency", FormatDuration(c.HeartbeatFrequency), fmt.Sprintf(
			"must be below job_lock_duration, which is %s (%s), or a lock expires before it is extended; set job_lock_duration: %d",
			FormatDuration(c.JobLockDuration), l.result.Sources["job_lock_duration"], int(c.HeartbeatFrequency/time.Second)+5))
	}
	if l.ok("max_retiring", "worker_count") && c.MaxRetiring > c.WorkerCount {
		l.refuse("max_retiring", fmt.Sprint(c.MaxRetiring), fmt.Sprintf(
			"must be at most worker_count, which is %d (%s)", c.WorkerCount, l.result.Sources["worker_count"]))
	}
	if l.ok("interval", "until_empty") && c.Interval == 0 {
		if !c.UntilEmpty && l.given("until_empty") {
			l.refuse("interval", "0", fmt.Sprintf(
				"means until_empty, which is false (%s); set an interval above 0", l.result.Sources["until_empty"]))
		}
		if !c.UntilEmpty {
			l.result.Sources["until_empty"] = l.result.Sources["interval"]
		}
		c.UntilEmpty, c.Interval = true, pollInterval
	}
	if l.ok("statsd_host") && c.StatsdHost == "" {
		for _, key := range []string{"statsd_port", "statsd_key"} {
			l.noEffect(key, ": there is no statsd_host.")
		}
	}
	if l.ok("redis_url", "namespace") && strings.Contains(c.RedisURL, "-cluster://") && !hashTagged(c.Namespace) {
		l.refuse("namespace", c.Namespace, fmt.Sprintf(
			"a Redis Cluster needs all keys in one slot; use a hash-tagged namespace, %q, for every producer and worker", "{"+c.Namespace+"}"))
	}
}

// warnOfDeaths warns if max_deaths has no effect because the first death is the last.
func (l *loader) warnOfDeaths() {
	c, sources := &l.result.Config, l.result.Sources
	if l.ok("on_worker_death", "max_deaths") && c.OnWorkerDeath == "fail" {
		l.noEffect("max_deaths", ": on_worker_death (%s) is fail, so that the first death is the last.", sources["on_worker_death"])
	}
}

func (l *loader) warnOfLocks() {
	c, sources := &l.result.Config, l.result.Sources
	if l.ok("locketed_queues") && len(c.LocketedQueues) == 0 {
		// Leases and heartbeats always follow from job_lock_duration and heartbeat_frequency.
		for _, key := range []string{"job_lock_key", "lines", "on_lock_lost"} {
			if key == "lines" && len(c.Fair) > 0 {
				continue // fair queues use it too
			}
			l.noEffect(key, ": locketed_queues (%s) is empty, so that no job takes a job lock.", sources["locketed_queues"])
		}
	}
	if strings.HasPrefix(c.JobLockKey, "locket:job_locks:") { // as the gem's option needs it
		l.warn("job_lock_key", "prefix_twice", fmt.Sprintf("job_lock_key (%s) begins with locket:job_locks:, which resqued adds itself: the keys of locks have it twice. Leave it out.",
			sources["job_lock_key"]))
	}
	if l.ok("fair", "lines") && len(c.Fair) > 0 && c.Lines != LinesAuto {
		l.noEffect("fair", ": lines (%s) is off.", sources["lines"])
	}
	if l.ok("unique_queues", "unique_queues_strict") && c.UniqueQueuesStrict && len(c.UniqueQueues) == 0 {
		l.noEffect("unique_queues_strict", ": unique_queues (%s) is empty.", sources["unique_queues"])
	}
}

// hashTagged reports whether Redis Cluster keeps the namespace's keys in one slot.
func hashTagged(namespace string) bool {
	_, after, open := strings.Cut(namespace, "{")
	tag, _, closed := strings.Cut(after, "}")
	return open && closed && tag != ""
}

func (l *loader) readCertificates() {
	c := &l.result.Config
	c.RedisCA = l.readPEM("redis_ca_file", c.RedisCAFile, "CERTIFICATE")
	cert, key := l.readPEM("redis_cert_file", c.RedisCertFile, "CERTIFICATE"), l.readPEM("redis_key_file", c.RedisKeyFile, "PRIVATE KEY")
	switch {
	case c.RedisCertFile != "" && c.RedisKeyFile == "":
		l.refuse("redis_cert_file", c.RedisCertFile, "needs its key: set redis_key_file")
	case c.RedisKeyFile != "" && c.RedisCertFile == "":
		l.refuse("redis_key_file", c.RedisKeyFile, "needs its certificate: set redis_cert_file")
	case cert != "" && key != "":
		if _, err := tls.X509KeyPair([]byte(cert), []byte(key)); err != nil {
			l.refuse("redis_key_file", c.RedisKeyFile, fmt.Sprintf("not the key, without a passphrase, of the certificate in %s", c.RedisCertFile))
			return
		}
		c.RedisCert = cert + key
	}
}

// readPEM returns only the blocks of a kind from a TLS file, "" if it was refused.
func (l *loader) readPEM(name, path, kind string) string {
	if path == "" || !l.ok("redis_url", name) {
		return ""
	}
	if !strings.HasPrefix(l.result.RedisURL, "rediss") {
		l.refuse(name, path, fmt.Sprintf("redis_url (%s) does not use TLS; write rediss://", l.result.Sources["redis_url"]))
		return ""
	}
	text, err := readLimited(path, nil)
	if err != nil {
		l.refuse(name, path, withoutPath(err).Error())
		return ""
	}
	found := partsOf(text, kind)
	if found == "" || kind == "CERTIFICATE" && !x509.NewCertPool().AppendCertsFromPEM([]byte(found)) {
		l.refuse(name, path, fmt.Sprintf("no PEM %s in it", strings.ToLower(kind)))
		return ""
	}
	if kind == "PRIVATE KEY" {
		l.warnOfReadable(name, path)
	}
	return found
}

// partsOf returns the blocks of a PEM file whose type ends with kind.
func partsOf(text []byte, kind string) string {
	var b strings.Builder
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return b.String()
		}
		if strings.HasSuffix(block.Type, kind) {
			_ = pem.Encode(&b, block) // to memory
		}
		text = rest
	}
}

func isExposed(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0
}

func (l *loader) warnOfReadable(key, path string) {
	if isExposed(path) {
		l.warn(key, "exposed", fmt.Sprintf("Every user of this machine can read %s. Run: chmod o-r %[1]s", path))
	}
}

// warnOfExposed warns of configuration files with a password that every user may read.
func (l *loader) warnOfExposed() {
	exposed := func(key, path string) {
		if isExposed(path) {
			l.warn(key, "exposed", fmt.Sprintf("Every user of this machine can read %s, where %s holds a password. Let only the group of the service read it: chgrp GROUP %[1]s && chmod 640 %[1]s; or keep the password in a file of its own.", path, key))
		}
	}
	for _, one := range []struct {
		key    string
		secret bool
	}{
		{"database_url", hasSecret(l.result.DatabaseURL)},
		{"redis_url", hasSecret(l.result.RedisURL)},
	} {
		switch from := l.result.Sources[one.key]; {
		case !one.secret || !l.ok(one.key):
		case from.Kind == FromFile:
			exposed(one.key, from.Name)
		case from.Kind == FromEnvFile:
			exposed(one.key, from.File)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(l.file.handlers)) {
		h := l.file.handlers[class]
		if h.Lock != nil && hasSecret(h.Lock.Redis) {
			exposed("handlers."+class+".lock.redis", l.file.path)
			return // once is enough
		}
	}
}

// readPassword puts the password from redis_password_file or systemd's credential into the URL.
func (l *loader) readPassword() {
	if !l.ok("redis_url", "redis_password_file") {
		return
	}
	c := &l.result.Config
	given := password(c.RedisURL) != ""
	if given && c.RedisPasswordFile != "" && l.result.Sources["redis_url"].rank() > l.result.Sources["redis_password_file"].rank() {
		l.warn("redis_password_file", "overruled", fmt.Sprintf("redis_password_file (%s) has no effect: redis_url (%s) holds a password too and wins.",
			l.result.Sources["redis_password_file"], l.result.Sources["redis_url"]))
		c.RedisPasswordFile = ""
	}
	if given && l.result.Sources["redis_url"].Kind == FromFlag {
		l.warn("redis_url", "password_in_argv", "--redis-url holds a password, which every user of this machine can see. Use REDIS_URL or redis_password_file.")
	}
	if dir := l.env[credentialsVariable]; c.RedisPasswordFile == "" && dir != "" {
		path := filepath.Join(dir, passwordCredential)
		if _, err := os.Stat(path); err != nil { // the unit has other credentials only
			return
		}
		if given {
			l.warn("redis_password_file", "overruled", fmt.Sprintf("The credential %s has no effect: redis_url (%s) holds a password too and wins.",
				passwordCredential, l.result.Sources["redis_url"]))
			return
		}
		c.RedisPasswordFile = path
		l.result.Sources["redis_password_file"] = Source{Kind: FromEnv, Name: credentialsVariable}
	}
	if c.RedisPasswordFile == "" && !given {
		if path := l.findCredential(); path != "" {
			c.RedisPasswordFile = path
			l.result.Sources["redis_password_file"] = Source{Kind: FromCredential}
		}
	}
	if c.RedisPasswordFile == "" {
		return
	}
	if given {
		l.refuse("redis_password_file", c.RedisPasswordFile, fmt.Sprintf(
			"redis_url (%s) holds a password too; keep one of them", l.result.Sources["redis_url"]))
		return
	}
	pw, err := readSecret(c.RedisPasswordFile, "password")
	if err != nil {
		l.refuse("redis_password_file", c.RedisPasswordFile, err.Error())
		return
	}
	l.warnOfReadable("redis_password_file", c.RedisPasswordFile)
	c.RedisURL = withPassword(c.RedisURL, pw)
}

func (l *loader) takeHandlers() {
	c := &l.result.Config
	c.Handlers = map[string]Handler{}
	for _, class := range slices.Sorted(maps.Keys(l.file.handlers)) {
		h := l.file.handlers[class]
		if r, ok := c.Runners[h.Runner]; ok && h.KillAfter == 0 {
			h.KillAfter = r.KillAfter
		}
		c.Handlers[class] = h
		l.result.Sources["handlers."+class] = l.file.at("handlers." + class)
		if class == anyClass && l.byFlag.Kind != "" {
			l.result.Sources["handlers."+class] = l.byFlag
		}
		if h.Lock != nil && l.ok("namespace") && strings.Contains(h.Lock.Redis, "-cluster://") && !hashTagged(c.Namespace) {
			l.refuse("namespace", c.Namespace, fmt.Sprintf(
				"the locks of %s are kept in a Redis Cluster, which needs all keys in one slot; use a hash-tagged namespace, %q, for every producer and worker",
				class, "{"+c.Namespace+"}"))
		}
	}
	if !l.ok("resque_term_timeout") {
		return
	}
	for _, class := range c.classes() {
		h, most := c.Handlers[class], c.TermTimeout/2
		if r, ok := c.Runners[h.Runner]; ok && h.KillAfter == r.KillAfter { // the runner's own is checked with it
			continue
		}
		if h.KillAfter > most && h.KillAfter != DefaultKillAfter { // not if it is the default
			l.warn("handlers."+class+".kill_after", "kill_after_too_long", fmt.Sprintf(
				"%s: kill_after %s becomes %s, half of resque_term_timeout %s (%s), after which its whole process is killed.",
				class, FormatDuration(h.KillAfter), FormatDuration(most), FormatDuration(c.TermTimeout), l.result.Sources["resque_term_timeout"]))
		}
	}
}
