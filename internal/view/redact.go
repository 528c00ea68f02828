package view

import (
	"encoding/json"
	"slices"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/wire"
)

// Redacted returns a copy of the snapshot with further rules applied.
func (v *Snapshot) Redacted(rules *redact.Rules) *Snapshot {
	out := *v
	out.Jobs = slices.Clone(v.Jobs)
	for i, j := range v.Jobs {
		one := *j
		one.Args, one.rules = rules.Args(j.Class, j.Args, j.Wrappers...), rules
		out.Jobs[i] = &one
	}
	out.Workers = slices.Clone(v.Workers)
	for i, w := range v.Workers {
		out.Workers[i] = w.redacted(rules)
	}
	return &out
}

func (v *Worker) redacted(rules *redact.Rules) *Worker {
	out := *v
	if v.Job != nil {
		one := v.Job.redacted(rules)
		out.Job = &one
	}
	out.Processes = make([]Process, len(v.Processes))
	for i, p := range v.Processes {
		jobs := p.Jobs
		p.Jobs = nil
		for _, j := range jobs {
			p.Jobs = append(p.Jobs, j.redacted(rules))
		}
		out.Processes[i] = p
	}
	return &out
}

func (v ThreadJob) redacted(rules *redact.Rules) ThreadJob {
	v.Args = rules.Args(v.Class, v.Args, v.Wrappers...)
	return v
}

// shown returns a job's class, its arguments as they may be shown, and its wrappers.
func shown(rules *redact.Rules, e wire.Envelope) (class string, args json.RawMessage, wrappers []string) {
	return e.Class, rules.Args(e.Class, json.RawMessage(e.Args.String()), e.Wrappers...), e.Wrappers
}
