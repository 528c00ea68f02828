package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/wire"
)

// severalStores is the error of a verb that needs one of several stores.
type severalStores struct {
	*problem
	loaded *config.Resolved
}

func (e *severalStores) Unwrap() error { return e.problem }

// hasStores refuses a configuration of several stores where one is needed.
func hasStores(r *config.Resolved, what string) error {
	if len(r.Stores) == 0 {
		return nil
	}
	return &severalStores{loaded: r, problem: usage("", "%s has several stores, and %s one: name it with --%s, one of %s",
		r.File, what, config.StoreFlag, strings.Join(storeNames(r), ", "))}
}

func storeNames(r *config.Resolved) []string {
	names := make([]string, len(r.Stores))
	for i, one := range r.Stores {
		names[i] = one.Store
	}
	return names
}

func homeOf(r *config.Resolved, queue string) (string, error) {
	if home := config.RouteOf(r.Stores[0].Routes, queue); home != "" {
		return home, nil
	}
	return "", usage("Add it to the routes of one, or name one with --"+config.StoreFlag+": "+strings.Join(storeNames(r), ", "),
		"queue %q belongs to no store", wire.Printable(queue, 200))
}

func each(r *config.Resolved) []*config.Resolved {
	if len(r.Stores) > 0 {
		return r.Stores
	}
	return []*config.Resolved{r}
}

// idleSchedules warns of schedules that no master keeps: the daemon does not work their store.
func (a *cli) idleSchedules(r *config.Resolved) (warnings []config.Warning) {
	for _, one := range r.Stores {
		if len(one.Queues.Patterns) > 0 {
			continue
		}
		for _, s := range slices.Concat(one.Schedules, a.program().ClassSchedules(one.Config)) {
			warnings = append(warnings, config.Warning{Key: "stores", Code: "idle_schedule", Message: fmt.Sprintf(
				"schedule %s is kept by no daemon of this configuration: its queue, %s, belongs to store %s, which has no queues here. Give it to a daemon that works that store.",
				s.Name, s.Queue, one.Store)})
		}
	}
	return warnings
}
