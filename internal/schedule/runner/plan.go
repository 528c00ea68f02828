package runner

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// plan holds a Runner's schedules. One in Redis replaces a configured one, as in resque-scheduler.
type plan struct {
	entries map[string]*entry
	cfg     Config
	// stored are the definitions last read from Redis; digest identifies them to the server.
	stored map[string]string
	digest string
}

func (p *plan) empty() bool { return len(p.cfg.Schedules) == 0 && !p.cfg.Stored }

// hinder notes why ticks cannot be handled.
func (p *plan) hinder(why string) {
	for _, e := range p.entries {
		e.hindered = why
	}
}

func (p *plan) names() []string { return slices.Sorted(maps.Keys(p.entries)) }

func (p *plan) configure(c Config, bad func(name string, err error)) {
	p.cfg = c
	if !c.Stored {
		p.stored, p.digest = nil, ""
	}
	p.make(bad)
	for _, e := range p.entries {
		e.renew() // it is the newest
	}
}

// found takes definitions that were read from Redis.
func (p *plan) found(stored map[string]string, digest string, bad func(name string, err error)) {
	p.stored, p.digest = stored, digest
	p.make(bad)
}

// make builds the entries and keeps those that have not changed.
func (p *plan) make(bad func(name string, err error)) {
	entries := map[string]*entry{}
	add := func(s schedule.Definition, err error) {
		e, old := (*entry)(nil), p.entries[s.Name]
		if err == nil {
			e, err = p.entry(s)
		}
		switch {
		case errors.Is(err, schedule.ErrElsewhere):
		case err != nil:
			bad(s.Name, err)
		case old != nil && old.same(e):
			entries[s.Name] = old
		default:
			entries[s.Name] = e
		}
	}
	for _, s := range p.cfg.Schedules {
		if _, other := p.stored[s.Name]; !other {
			add(s, nil)
		}
	}
	for name, definition := range p.stored {
		s, err := schedule.ParseStored(name, definition, p.cfg.Defaults)
		s.Name = name
		add(s, err)
	}
	p.entries = entries
}

func (p *plan) entry(s schedule.Definition) (*entry, error) {
	timing, err := s.Timing()
	if err != nil {
		return nil, err
	}
	if err := wire.CheckQueue(s.Queue); err != nil {
		return nil, err
	}
	payload, err := wire.EncodePayload(s.Class, json.RawMessage(s.Args))
	if err != nil {
		return nil, err
	}
	shown, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if s.Stored != "" {
		shown = store.Kept(shown)
	}
	e := &entry{Definition: s, timing: timing, payload: payload, shown: string(shown), publish: true}
	e.unique = p.cfg.Unique != nil && p.cfg.Unique(s.Queue)
	e.strict = e.unique && p.cfg.Strict
	if e.IfRunning == "" {
		e.IfRunning = schedule.IfRunningValues[0]
	}
	if e.CatchUp == "" {
		e.CatchUp = schedule.CatchUpValues[0]
	}
	e.job = schedule.Fingerprint(string(payload), e.Queue, e.IfRunning, e.CatchUp)
	return e, nil
}
