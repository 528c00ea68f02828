package app

import (
	"maps"
	"slices"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
)

// deathPolicy returns what happens to the jobs of dead worker processes, by the configuration
// and the handlers.
func deathPolicy(c config.Config, handlers *resqued.Handlers) store.Policy {
	classes := classesOf(c, handlers)
	return store.Policy{
		Fail: c.OnWorkerDeath == "fail", MaxDeaths: c.MaxDeaths,
		AtMostOnce: classList(classes, func(class resqued.Class) bool { return class.AtMostOnce }),
		Resumes:    classList(classes, func(class resqued.Class) bool { return class.Resumes }),
		Elsewhere: classList(classes, func(class resqued.Class) bool {
			return class.Lock != nil && (class.Lock.Redis != "" || class.Lock.Store == resqued.StorePostgres)
		}),
	}
}

// classList returns the sorted classes and patterns for which is holds. Exceptions that precede
// such a pattern are added with a "!", as wire.ClassIn expects.
func classList(classes map[string]resqued.Class, is func(class resqued.Class) bool) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if is(classes[name]) {
			list = append(list, name)
		}
	}
	patterns := selector.Patterns(list)
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if !is(classes[name]) && (selector.MatchAny(patterns, name) || selector.IsPattern(name) && len(patterns) > 0) {
			list = append(list, "!"+name)
		}
	}
	return list
}

func knownClasses(c config.Config, handlers *resqued.Handlers) []string {
	return slices.Sorted(maps.Keys(classesOf(c, handlers)))
}
