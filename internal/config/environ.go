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

// strangers warns of RESQUED_ variables that look like a setting and are none.
// They are no errors: not every variable of that prefix is ours. Kubernetes
// gives every container RESQUED_SERVICE_HOST and others when there is a service
// called resqued, and commands of jobs run with variables of the daemon.
func (e environ) strangers(where string) []Warning {
	if _, inJob := e[jobVariable]; inJob {
		return nil
	}
	known := []string{ConfigVariable, "RESQUED_ROLE", "RESQUED_PROC"}
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

func (l *loader) warnOfStrangers() {
	l.result.Warnings = append(l.result.Warnings, l.env.strangers("environment")...)
	l.result.Warnings = append(l.result.Warnings, l.service.values.strangers(l.service.env)...)
}
