package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Variables with a special meaning.
const (
	// ConfigVariable names the configuration file.
	ConfigVariable = "RESQUED_CONFIG"
	// credentialsVariable is the directory of the credentials that systemd loads for the unit;
	// passwordCredential is the Redis password among them.
	credentialsVariable = "CREDENTIALS_DIRECTORY"
	passwordCredential  = "redis-password"
	// jobVariable is set for the commands of jobs.
	jobVariable = "RESQUED_JOB_ID"
	// runnerVariable is set for runners, and inherited by what their jobs start.
	runnerVariable = "RESQUED_RUNNER"
)

// environ is an environment. As in environment files, an empty variable counts as not set.
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

// find returns the variable that sets a key, and those that it overrides.
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

// inJob reports whether this process runs in a job, which inherits more of resqued's variables.
func (e environ) inJob() bool { return e[jobVariable] != "" || e[runnerVariable] != "" }

// unknown warns of RESQUED_ variables that look like settings but aren't. They are not errors: for
// a service called resqued, Kubernetes sets RESQUED_SERVICE_HOST and others in every container.
func (e environ) unknown(where string) []Warning {
	if e.inJob() {
		return nil
	}
	known := append([]string{ConfigVariable, StoreVariable}, reserved...)
	for _, k := range keys() {
		known = append(known, k.variables()...)
	}
	var warnings []Warning
	for _, variable := range slices.Sorted(maps.Keys(e)) {
		rest, ours := strings.CutPrefix(variable, "RESQUED_")
		if !ours || slices.Contains(known, variable) {
			continue
		}
		rest = strings.ToLower(rest)
		if meant := suggest(rest); slices.ContainsFunc(keys(), func(k key) bool { return k.name == meant }) {
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

// generic are variables that other programs may have too. A similar name is only reported while
// the key is not set otherwise, and never if it is similar to a foreign one.
var (
	generic = []string{"REDIS_URL", "QUEUES", "QUEUE", "STATSD_HOST", "STATSD_PORT", "STATSD_KEY"}
	foreign = []string{databaseVariable, "INTERVAL", "PIDFILE"}
)

// misspelt warns of variables that nearly have one of Resque's names, such as THREADS_COUNT.
func (l *loader) misspelt(env environ, where string) (warnings []Warning) {
	if env.inJob() {
		return nil
	}
	known := map[string]string{} // variable -> key
	for _, k := range keys() {
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
			if Distance(squashed(variable), squashed(name)) <= most {
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

// squashed is a name without case and underscores.
func squashed(name string) string {
	if len(name) > maxValue {
		return ""
	}
	return strings.ToUpper(strings.ReplaceAll(name, "_", ""))
}
