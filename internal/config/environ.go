package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Variables that have a meaning of their own.
const (
	// ConfigVariable names the configuration file.
	ConfigVariable = "RESQUED_CONFIG"
	// credentialsVariable is set by systemd to the directory of the credentials
	// that the unit loads; the password for Redis is the one of this name.
	credentialsVariable = "CREDENTIALS_DIRECTORY"
	passwordCredential  = "redis-password"
	// jobVariable is set for the commands of jobs.
	jobVariable = "RESQUED_JOB_ID"
	// runnerVariable is set for runners, and so for what their jobs start.
	runnerVariable = "RESQUED_RUNNER"
)

// environ is an environment. An empty variable counts as not set: that is how a
// line "STATSD_HOST=" of an environment file is meant.
type environ map[string]string

func newEnviron(list []string) environ {
	if list == nil {
		list = os.Environ()
	}
	env := environ{}
	for _, entry := range list {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := env[name]; !twice && value != "" {
			env[name] = value
		}
	}
	return env
}

// find returns the variable that sets a key, and those that it overrules.
func (e environ) find(k key) (name string, overruled []string) {
	for _, variable := range k.variables() {
		value, ok := e[variable]
		switch {
		case !ok:
		case name == "":
			name = variable
		case value != e[name]:
			overruled = append(overruled, variable)
		}
	}
	return name, overruled
}

// inJob reports whether the environment is that of a job, which has more of resqued's variables.
func (e environ) inJob() bool { return e[jobVariable] != "" || e[runnerVariable] != "" }

// unknown warns of RESQUED_ variables that look like a setting and are none.
// They are not errors: not every variable of that prefix is ours. Kubernetes
// gives every container RESQUED_SERVICE_HOST and others when there is a service
// called resqued, and commands of jobs run with variables of the daemon.
func (e environ) unknown(where string) []Warning {
	if e.inJob() {
		return nil
	}
	known := append([]string{ConfigVariable, StoreVariable}, reserved...)
	for _, k := range keys {
		known = append(known, k.variables()...)
	}
	var warnings []Warning
	for _, variable := range slices.Sorted(maps.Keys(e)) {
		rest, ours := strings.CutPrefix(variable, "RESQUED_")
		if !ours || slices.Contains(known, variable) {
			continue
		}
		rest = strings.ToLower(rest)
		if i := slices.IndexFunc(later, func(k string) bool { return rest == k || strings.HasPrefix(rest, k+"_") }); i >= 0 {
			warnings = append(warnings, Warning{
				Key: later[i], Code: "unsupported",
				Message: fmt.Sprintf("%s (%s) has no effect: not supported by this version.", variable, where),
			})
			continue
		}
		if meant := suggest(rest); meant != "" && meant != "handlers" {
			warnings = append(warnings, Warning{
				Key: meant, Code: "unknown_variable",
				Message: fmt.Sprintf("%s (%s) has no effect. Did you mean RESQUED_%s?", variable, where, strings.ToUpper(meant)),
			})
		}
	}
	return warnings
}

func (l *loader) warnOfUnknown() {
	for _, from := range []struct {
		env   environ
		where string
	}{{l.env, "environment"}, {l.service.values, l.service.env}} {
		l.result.Warnings = append(l.result.Warnings, from.env.unknown(from.where)...)
		l.result.Warnings = append(l.result.Warnings, l.misspelt(from.env, from.where)...)
	}
}

// generic are variables of ours that other programs also have, or nearly, so that a near one
// is only taken for a mistake while the key is not set otherwise; foreign ones are never
// looked for.
var (
	generic = []string{"REDIS_URL", "QUEUES", "QUEUE", "STATSD_HOST", "STATSD_PORT", "STATSD_KEY"}
	foreign = []string{databaseVariable, "INTERVAL", "PIDFILE"}
)

// misspelt warns of variables that are nearly one of Resque's names, such as THREADS_COUNT.
func (l *loader) misspelt(env environ, where string) (warnings []Warning) {
	if env.inJob() {
		return nil
	}
	known := map[string]string{} // the key of each variable
	for _, k := range keys {
		for _, name := range k.env {
			known[name] = k.name
		}
	}
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		if _, exact := known[variable]; exact || strings.HasPrefix(variable, "RESQUED_") {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(known)) {
			key, most := known[name], 1
			switch {
			case slices.Contains(foreign, name), slices.Contains(generic, name) && l.result.Sources[key].Kind != FromDefault:
				continue
			case len(name) > 12:
				most = 2
			}
			if distance(squashed(variable), squashed(name)) <= most {
				warnings = append(warnings, Warning{
					Key: key, Code: "unknown_variable",
					Message: fmt.Sprintf("%s (%s) has no effect. Did you mean %s?", variable, where, name),
				})
				break
			}
		}
	}
	return warnings
}

// squashed is a name without what is easily got wrong.
func squashed(name string) string {
	if len(name) > maxValue {
		return ""
	}
	return strings.ToUpper(strings.ReplaceAll(name, "_", ""))
}
