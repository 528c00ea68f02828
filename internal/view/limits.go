package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// Limit is a limit for one key, or a limit under which nothing runs.
type Limit struct {
	Name string `json:"name"`
	// Key is what the limit counts by, or a digest if arguments are hidden.
	Key string `json:"key"`
	// Running jobs count under it; Most is how many may in each scope, 0 = any number.
	Running int64 `json:"running"`
	Most    int   `json:"most,omitempty"`
	// Closed: none may begin.
	Closed bool `json:"closed,omitempty"`
	// Rate is how many may begin in a time, such as 100/1m.
	Rate    string `json:"rate,omitempty"`
	Waiting int64  `json:"waiting"`
	// Queues are those in which jobs wait.
	Queues []string `json:"queues,omitempty"`
	// Next is when the next may begin, if that depends on a time.
	Next *time.Time `json:"next,omitempty"`
	// Override says what people have set, and until when.
	Override string `json:"override,omitempty"`
	// Rule is the limit as daemons have it, in JSON; empty = no daemon has it.
	Rule string `json:"rule,omitempty"`
	// Holders are the running jobs.
	Holders []string `json:"holders,omitempty"`
}

// Gate returns the name and the key as verbs take them.
func (l *Limit) Gate() string {
	if l.Key == "" {
		return l.Name
	}
	return l.Name + ":" + l.Key
}

// NextS returns in how many seconds the next may begin.
func (l *Limit) NextS() int64 {
	if l.Next == nil {
		return 0
	}
	return max(0, int64(time.Until(*l.Next).Seconds()))
}

// limitRule is what a page needs to know of a rule; see jobkey.LimitRule.
type limitRule struct {
	Concurrency int    `json:"concurrency"`
	Rate        string `json:"rate"`
	Per         string `json:"per"`
}

// LimitRules returns the limits of all daemons by name, in JSON.
func LimitRules(ctx context.Context, s *store.Store) (map[string]string, error) {
	masters, err := s.MasterList(ctx)
	if err != nil {
		return nil, err
	}
	rules := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(masters)) {
		var settings struct {
			Limits map[string]string `json:"limits"`
		}
		if json.Unmarshal([]byte(masters[id]["settings"]), &settings) == nil {
			maps.Copy(rules, settings.Limits)
		}
	}
	return rules, nil
}

// Limits returns all limits, those for which jobs wait first.
func Limits(ctx context.Context, s *store.Store) ([]Limit, error) {
	rules, err := LimitRules(ctx, s)
	if err != nil {
		return nil, err
	}
	infos, overrides, err := s.Limits(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	over := map[string]store.Override{}
	for _, o := range overrides {
		if o.Until.After(now) {
			over[o.Name] = o
		}
	}
	var out []Limit
	used := map[string]bool{}
	add := func(name, key string) *Limit {
		used[name], used[name+":"+key] = true, true
		l := Limit{Name: name, Key: key, Rule: rules[name]}
		var rule limitRule
		if json.Unmarshal([]byte(l.Rule), &rule) == nil {
			l.Most, l.Rate = rule.Concurrency, rule.Rate
		}
		for _, gate := range []string{name + ":" + key, name} { // the first counts
			if o, ok := over[gate]; ok {
				l.apply(&o)
				break
			}
		}
		_, l.Key, _ = strings.Cut(shownGate(ctx, name+":"+key), ":")
		out = append(out, l)
		return &out[len(out)-1]
	}
	for i := range infos {
		name, key, _ := strings.Cut(infos[i].Gate, ":")
		l := add(name, key)
		l.Running, l.Waiting = infos[i].Total()
		l.Queues = slices.Sorted(maps.Keys(infos[i].Waiting))
		if next := infos[i].Next; !next.IsZero() {
			l.Next = &next
		}
		for _, scope := range slices.Sorted(maps.Keys(infos[i].Running)) {
			for _, run := range infos[i].Running[scope] {
				l.Holders = append(l.Holders, run.String())
			}
		}
	}
	for _, gate := range slices.Sorted(maps.Keys(over)) {
		if name, key, _ := strings.Cut(gate, ":"); !used[gate] {
			add(name, key)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if !used[name] {
			add(name, "")
		}
	}
	slices.SortStableFunc(out, func(a, b Limit) int { return int(min(1, b.Waiting)) - int(min(1, a.Waiting)) })
	return out, nil
}

func (l *Limit) apply(o *store.Override) {
	var texts []string
	if o.Concurrency != nil {
		l.Most = *o.Concurrency
		texts = append(texts, "concurrency "+strconv.Itoa(l.Most))
		if l.Most == 0 {
			texts, l.Closed = []string{"none begins"}, true
		}
	}
	if o.Every > 0 {
		l.Rate = rateText(o.Every)
		texts = append(texts, "rate "+l.Rate)
	}
	if o.Burst > 0 {
		texts = append(texts, fmt.Sprintf("burst %d", o.Burst))
	}
	l.Override = strings.Join(texts, ", ") + " until " + o.Until.UTC().Format(time.RFC3339)
}

// OverrideOf returns an override, or what is wrong with its values: concurrency may be missing, and 0 lets no job begin.
func OverrideOf(name string, concurrency *int, rate string, burst int64, until time.Time) (o store.Override, err error) {
	o = store.Override{Name: name, Until: until, Concurrency: concurrency, Burst: burst}
	if rate != "" {
		if o.Every, err = jobkey.ParseRate(rate); err != nil {
			return o, fmt.Errorf("rate %q %w", wire.Printable(rate, 40), err)
		}
	}
	switch {
	case concurrency == nil && rate == "":
		return o, errors.New("it has neither a concurrency nor a rate")
	case concurrency != nil && *concurrency < 0 || burst < 0:
		return o, errors.New("concurrency and burst must not be negative")
	}
	return o, nil
}

// rateText writes a rate whose units take that long to come back.
func rateText(every time.Duration) string {
	for _, period := range []time.Duration{time.Second, time.Minute, time.Hour} {
		if n := period / every; n > 0 && n*every == period {
			return fmt.Sprintf("%d/%s", n, map[time.Duration]string{time.Second: "1s", time.Minute: "1m", time.Hour: "1h"}[period])
		}
	}
	return "1/" + every.String()
}

// LimitStore reads limits.
type LimitStore interface {
	Limits(ctx context.Context) ([]store.LimitInfo, []store.Override, error)
}

// limitsOf returns the limits for which jobs wait, nil if none of the queues has lines. Without them, only the reason is
// missing.
func limitsOf(ctx context.Context, s QueueStore, queues []store.QueueInfo) []store.LimitInfo {
	reader, ok := s.(LimitStore)
	if !ok || !slices.ContainsFunc(queues, func(q store.QueueInfo) bool { return q.Lined > 0 }) {
		return nil
	}
	infos, _, _ := reader.Limits(ctx)
	for i := range infos {
		infos[i].Gate = shownGate(ctx, infos[i].Gate)
	}
	return infos
}

// shownGate returns a limit's name and key as people may see it: keys are made of arguments.
func shownGate(ctx context.Context, gate string) string {
	name, key, _ := strings.Cut(gate, ":")
	if key != "" && redact.From(ctx).Any() {
		return name + ":" + redact.Digest("limit", "", key)
	}
	return gate
}

// limitsInWay returns the limits for which jobs of a queue wait, those of most jobs first.
func limitsInWay(infos []store.LimitInfo, queue string) (gates []string) {
	waits := map[string]int64{}
	for i := range infos {
		if n := infos[i].Waiting[queue]; n > 0 {
			gates = append(gates, infos[i].Gate)
			waits[infos[i].Gate] = n
		}
	}
	slices.SortStableFunc(gates, func(a, b string) int { return cmp.Compare(waits[b], waits[a]) })
	return gates
}

// limitsText names up to three limits.
func limitsText(gates []string) string {
	names := make([]string, min(len(gates), maxReasons))
	for i := range names {
		names[i] = strings.TrimSuffix(wire.Printable(gates[i], MaxName), ":")
	}
	text := "limit " + strings.Join(names, ", ")
	if more := len(gates) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
