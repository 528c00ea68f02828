package app

import (
	"maps"
	"slices"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
)

// deathPolicy returns what is done with the jobs of worker processes that die, by the
// configuration and the handlers.
func deathPolicy(c config.Config, handlers *resqued.Handlers) store.Policy {
	p := store.Policy{Fail: c.OnWorkerDeath == "fail", MaxDeaths: c.MaxDeaths}
	for _, name := range handlers.Classes() {
		class, _ := handlers.Lookup(name)
		if class.AtMostOnce {
			p.AtMostOnce = append(p.AtMostOnce, name)
		}
		if class.Resumes {
			p.Resumes = append(p.Resumes, name)
		}
		if l := class.Lock; l != nil && (l.Redis != "" || l.Store == resqued.StorePostgres) {
			p.Elsewhere = append(p.Elsewhere, name)
		}
	}
	for name, h := range c.Handlers {
		if h.AtMostOnce {
			p.AtMostOnce = append(p.AtMostOnce, name)
		}
		if h.LongJob != nil {
			p.Resumes = append(p.Resumes, name)
		}
		if l := h.Lock; l != nil && (l.Redis != "" || l.Store == resqued.StorePostgres) {
			p.Elsewhere = append(p.Elsewhere, name)
		}
	}
	slices.Sort(p.AtMostOnce)
	slices.Sort(p.Resumes)
	return p
}

// knownClasses returns the names of all classes that have a handler.
func knownClasses(c config.Config, handlers *resqued.Handlers) []string {
	return slices.AppendSeq(handlers.Classes(), maps.Keys(c.Handlers))
}
