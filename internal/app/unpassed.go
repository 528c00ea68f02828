package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/sys/program"
)

const maxUnpassed = 10

// unneeded are variables that sound like a secret but belong to a login, not to an application.
var unneeded = []string{"SSH_AUTH_SOCK", "GPG_KEY", "XAUTHORITY"}

// unpassed warns of variables that an application may need and that its runners do not get,
// except those that the configuration drops by name.
func unpassed(c config.Config, environ []string) []config.Warning {
	rules := envRules(c)
	var lacking []string
	passed := program.Scrub(environ, rules)
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		own := config.OwnVariable(name) || name == "CREDENTIALS_DIRECTORY"
		if name != "" && !own && !rules.Drop(name) && !slices.Contains(unneeded, name) && !slices.Contains(passed, variable) {
			lacking = append(lacking, name)
		}
	}
	slices.Sort(lacking)
	var warnings []config.Warning
	for _, runner := range slices.Sorted(maps.Keys(c.Runners)) {
		names := slices.DeleteFunc(slices.Clone(lacking), func(name string) bool { _, given := c.Runners[runner].Env[name]; return given })
		if len(names) == 0 {
			continue
		}
		more := ""
		if n := len(names) - maxUnpassed; n > 0 {
			names, more = names[:maxUnpassed], fmt.Sprintf(" and %d more", n)
		}
		list := strings.Join(names, ", ")
		warnings = append(warnings, config.Warning{
			Key: "runners." + runner + ".env", Code: "not_passed",
			Message: fmt.Sprintf("runner %s: of this environment it does not get %s%s, as no command does. Name those that the application needs in env_keep: [%s], and the others in env_drop, which ends this warning.",
				runner, list, more, list),
		})
	}
	return warnings
}
