package view

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/wire"
)

type redactKey struct{}

// Redacting returns a context for who may not see all arguments: the queries of this package keep
// them back for it, as the rules say. It is the context that carries the rules, because which they
// are depends on who looks, like the time that he may take.
func Redacting(ctx context.Context, rules *redact.Rules) context.Context {
	return context.WithValue(ctx, redactKey{}, rules)
}

// Rules are those of Redacting; nil = all may be seen.
func Rules(ctx context.Context) *redact.Rules {
	rules, _ := ctx.Value(redactKey{}).(*redact.Rules)
	return rules
}

// Redacted returns the snapshot as it is by further rules.
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

// shown returns the class and the arguments of a job as they may be shown, and its wrappers.
func shown(rules *redact.Rules, e wire.Envelope) (class string, args json.RawMessage, wrappers []string) {
	return e.Class, rules.Args(e.Class, json.RawMessage(e.Args.String()), e.Wrappers...), e.Wrappers
}

// isOf reports whether a job of a class and its wrappers is of any of some classes.
func isOf(classes []string, class string, wrappers []string) bool {
	return slices.Contains(classes, class) || slices.ContainsFunc(wrappers, func(w string) bool { return slices.Contains(classes, w) })
}
