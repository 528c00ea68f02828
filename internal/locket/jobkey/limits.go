package jobkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/wire"
)

// The values of LimitRule.OnLimit and LimitRule.Per; the first ones are the defaults.
var (
	onLimits = [...]string{resqued.LimitWait, resqued.LimitRequeue, resqued.LimitDiscard, resqued.LimitFail, resqued.LimitReplace}
	scopes   = [...]string{resqued.PerFleet, resqued.PerHost, resqued.PerProcess}
)

const (
	// maxUnits bounds concurrency, burst, cost and the number of a rate.
	maxUnits = 1_000_000_000
	// maxRatePeriod bounds the time of a rate: later times would not be whole numbers in Lua.
	maxRatePeriod = 31 * 24 * time.Hour
)

// LimitRule is a limit as the configuration has it.
type LimitRule struct {
	Classes     []string `json:"classes,omitempty"`
	Queues      []string `json:"queues,omitempty"`
	Key         string   `json:"key,omitempty"`
	Concurrency int      `json:"concurrency,omitempty"`
	Rate        string   `json:"rate,omitempty"`
	Burst       int64    `json:"burst,omitempty"`
	// Cost is a number or a template.
	Cost    string `json:"cost,omitempty"`
	OnLimit string `json:"on_limit,omitempty"`
	Per     string `json:"per,omitempty"`
}

// Check returns what is wrong with a rule of that name, or nil.
func (r LimitRule) Check(name string) error {
	_, err := newLimit(name, r)
	return err
}

// Limit is one limit of one job.
type Limit struct {
	// Name is the rule's, Key what it counts by.
	Name, Key   string
	Concurrency int
	// Every is how long a unit takes to come back; 0 = the rate has no limit. Burst is how many units there are at most.
	Every       time.Duration
	Burst, Cost int64
	// OnLimit and Per are one of the values above.
	OnLimit, Per string
}

// Limits determines the limits of jobs. It is safe for concurrent use.
type Limits struct {
	rules  []*limitRule
	panics panics // by rule
}

type limitRule struct {
	Limit
	classes, queues []string
	key, cost       *Template
	keyOf           func(job *resqued.Job) string
	costOf          func(job *resqued.Job) int64
}

var limitName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) })

func checkLimitName(name string) error {
	if !limitName().MatchString(name) {
		return errors.New("the name must be 1 to 64 letters, digits, dots, _ and -")
	}
	return nil
}

func newLimit(name string, r LimitRule) (*limitRule, error) {
	l := &limitRule{
		Limit:   Limit{Name: name, Concurrency: r.Concurrency, Burst: r.Burst, Cost: 1, OnLimit: r.OnLimit, Per: r.Per},
		classes: r.Classes, queues: r.Queues,
	}
	if r.Rate != "" {
		var err error
		if l.Every, err = ParseRate(r.Rate); err != nil {
			return nil, fmt.Errorf("rate %q: %w", wire.Printable(r.Rate, 40), err)
		}
	}
	var err error
	if r.Key != "" {
		if l.key, err = ParseTemplate(r.Key); err != nil {
			return nil, fmt.Errorf("key %q: %w", wire.Printable(r.Key, 80), err)
		}
	}
	if IsTemplate(r.Cost) {
		if l.cost, err = ParseTemplate(r.Cost); err != nil {
			return nil, fmt.Errorf("cost %q: %w", wire.Printable(r.Cost, 80), err)
		}
	} else if r.Cost != "" {
		if l.Cost, err = readCost(r.Cost); err != nil {
			return nil, fmt.Errorf("cost %w", err)
		}
	}
	return l, l.check(r.Cost != "")
}

// check completes the defaults and returns what does not fit together.
func (l *limitRule) check(costs bool) error {
	if l.OnLimit == "" {
		l.OnLimit = onLimits[0]
	}
	if l.Per == "" {
		l.Per = scopes[0]
	}
	for _, set := range [][]string{l.classes, l.queues} {
		if err := selector.CheckSet(set); err != nil {
			return err
		}
	}
	switch {
	case checkLimitName(l.Name) != nil:
		return checkLimitName(l.Name)
	case len(l.classes)+len(l.queues) == 0:
		return errors.New(`has neither classes nor queues; write queues: ["*"] for all jobs`)
	case l.Concurrency == 0 && l.Every == 0:
		return errors.New("limits nothing; write concurrency: 5, rate: 100/1m, or both")
	case l.Concurrency < 0 || l.Concurrency > maxUnits:
		return fmt.Errorf("concurrency is %d, must be 1 to %d", l.Concurrency, maxUnits)
	case l.Burst < 0 || l.Burst > maxUnits:
		return fmt.Errorf("burst is %d, must be 1 to %d", l.Burst, maxUnits)
	case l.Burst > 0 && l.Every == 0:
		return errors.New("has a burst but no rate")
	case costs && l.Every == 0:
		return errors.New("has a cost but no rate; concurrency counts jobs")
	case costs && l.Burst == 0:
		return errors.New("has a cost but no burst; a job that costs more than the burst could never run")
	case l.Every > 0 && l.Burst > 0 && l.Cost > l.Burst:
		return fmt.Errorf("the cost is %d, above the burst of %d: no job could ever run", l.Cost, l.Burst)
	case !slices.Contains(onLimits[:], l.OnLimit):
		return fmt.Errorf("on_limit is %q, must be one of %s", wire.Printable(l.OnLimit, 40), strings.Join(onLimits[:], ", "))
	case !slices.Contains(scopes[:], l.Per):
		return fmt.Errorf("per is %q, must be one of %s", wire.Printable(l.Per, 40), strings.Join(scopes[:], ", "))
	case l.OnLimit == resqued.LimitReplace && l.Concurrency == 0:
		return errors.New("on_limit is replace, but there is no concurrency: no running job is in the way")
	}
	l.Burst = max(l.Burst, 1)
	return nil
}

// ParseRate reads a rate, such as 100/1m or 5/s, and returns how long one unit takes to come back.
func ParseRate(text string) (time.Duration, error) {
	number, period, found := strings.Cut(text, "/")
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	period = strings.TrimSpace(period)
	if period != "" && period[0] > '9' {
		period = "1" + period
	}
	per, parsed := time.ParseDuration(period)
	switch {
	case !found || err != nil || parsed != nil:
		return 0, errors.New("must be a number and a time, such as 100/1m")
	case n < 1 || n > maxUnits:
		return 0, fmt.Errorf("the number must be 1 to %d", maxUnits)
	case per <= 0 || per > maxRatePeriod:
		return 0, fmt.Errorf("the time must be more than 0 and at most %dh", int(maxRatePeriod.Hours()))
	}
	every := per / time.Duration(n)
	if every < time.Microsecond {
		return 0, errors.New("is more than a million a second")
	}
	return every, nil
}

func readCost(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > maxUnits {
		return 0, fmt.Errorf("is %q, must be a whole number from 0 to %d", wire.Printable(text, 40), maxUnits)
	}
	return n, nil
}

// LimitsConfig configures Limits.
type LimitsConfig struct {
	// Rules are from the configuration, by name. One takes the place of the program's of the same name.
	Rules map[string]LimitRule
	// Program are the program's rules.
	Program []resqued.Limit
	// Log gets the functions' panics; nil = they are not logged.
	Log *zap.Logger
}

// NewLimits returns Limits, nil if there are none. It fails if a rule has a mistake.
func NewLimits(cfg LimitsConfig) (*Limits, error) {
	l := &Limits{panics: panics{log: cfg.Log, text: "a function of a limit panicked, and the job fails; further panics of it are not logged"}}
	for _, p := range cfg.Program {
		if _, replaced := cfg.Rules[p.Name]; replaced {
			continue
		}
		rule := &limitRule{
			Limit:   Limit{Name: p.Name, Concurrency: p.Concurrency, Burst: int64(p.Burst), Cost: 1, OnLimit: p.OnLimit, Per: p.Per},
			classes: p.Classes, queues: p.Queues, keyOf: p.Key,
		}
		if p.Rate > 0 {
			rule.Every = p.Period / time.Duration(p.Rate)
		}
		if p.Cost != nil {
			rule.costOf = func(job *resqued.Job) int64 { return int64(p.Cost(job)) }
		}
		if err := rule.check(p.Cost != nil); err != nil {
			return nil, fmt.Errorf("limit %q of this program: %w", wire.Printable(p.Name, 80), err)
		}
		l.rules = append(l.rules, rule)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Rules)) {
		rule, err := newLimit(name, cfg.Rules[name])
		if err != nil {
			return nil, fmt.Errorf("limit %q: %w", wire.Printable(name, 80), err)
		}
		l.rules = append(l.rules, rule)
	}
	if len(l.rules) == 0 {
		return nil, nil //nolint:nilnil // most daemons have none
	}
	return l, nil
}

// Of returns the limits of a payload of a queue, in order of their names. The error is why the job must fail: a key or a
// cost cannot be computed, or the cost is above the burst. A payload that is not a job has none.
func (l *Limits) Of(queue string, payload []byte) (limits []Limit, err error) {
	if !slices.ContainsFunc(l.rules, func(rule *limitRule) bool { return rule.works(queue) }) {
		return nil, nil
	}
	env, parsed := wire.Parse(payload, 0)
	if parsed != nil { // the job will fail without running
		return nil, nil
	}
	for _, rule := range l.rules {
		if !rule.works(queue) || len(rule.classes) > 0 && !rule.covers(&env) {
			continue
		}
		limit := rule.Limit
		if limit.Key, limit.Cost, err = l.values(rule, queue, payload, &env); err != nil {
			return limits, fmt.Errorf("%s: %w", rule.Name, err)
		}
		if limit.Every > 0 && limit.Cost > limit.Burst {
			return limits, fmt.Errorf("%s: the job costs %d, above the burst of %d", rule.Name, limit.Cost, limit.Burst)
		}
		limits = append(limits, limit)
	}
	return limits, nil
}

// Closer closes a limit's key until a time; *store.Store implements it.
type Closer interface {
	CloseLimit(ctx context.Context, rule, key string, until time.Time) error
}

// NewHit returns what carries out resqued.LimitHit for a job. Its result is what the job ends with.
func NewHit(limits *Limits, closer Closer) func(ctx context.Context, job *resqued.Job, hit *resqued.LimitHitError) error {
	return func(ctx context.Context, job *resqued.Job, hit *resqued.LimitHitError) error {
		if limits != nil {
			of, err := limits.Of(job.Queue, job.Payload)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(of, func(l Limit) bool { return l.Name == hit.Name }); i >= 0 {
				after := time.Duration(0)
				if on := of[i].OnLimit; on != resqued.LimitWait && on != resqued.LimitReplace {
					after = time.Until(hit.Until) // its own limit would end it
				}
				return cmp.Or(closer.CloseLimit(ctx, hit.Name, of[i].Key, hit.Until), resqued.Requeue(max(after, 0)))
			}
		}
		return fmt.Errorf("%w: LimitHit of %q: the job does not have that limit", resqued.ErrLimit, wire.Printable(hit.Name, 100))
	}
}

// works reports whether a rule may be for jobs of a queue.
func (l *limitRule) works(queue string) bool {
	return len(l.queues) == 0 || selector.MatchAny(l.queues, queue)
}

// covers reports whether a rule is for one of the names of a job's class.
func (l *limitRule) covers(env *wire.Envelope) bool {
	return slices.ContainsFunc(env.Names(), func(class string) bool { return selector.MatchAny(l.classes, class) })
}

// values returns what a rule counts a job by, and its cost.
func (l *Limits) values(r *limitRule, queue string, payload []byte, env *wire.Envelope) (key string, cost int64, err error) {
	job := &resqued.Job{ID: env.ID, Class: env.Class, Queue: queue, Args: env.Args, Payload: payload, EnqueuedAt: env.EnqueuedAt}
	cost = r.Cost
	if r.keyOf != nil {
		var ok bool
		if key, ok = l.panics.call(r.Name, r.keyOf, job); !ok {
			return "", 0, errors.New("the function for its key panicked")
		}
	}
	if r.key != nil {
		if key, err = r.key.find(queue, env); err != nil {
			return "", 0, fmt.Errorf("key: %w", err)
		}
	}
	text := ""
	switch {
	case r.cost != nil:
		if text, err = r.cost.find(queue, env); err == nil {
			cost, err = readCost(text)
		}
	case r.costOf != nil:
		var ok bool
		if text, ok = l.panics.call(r.Name, func(job *resqued.Job) string { return strconv.FormatInt(r.costOf(job), 10) }, job); !ok {
			return "", 0, errors.New("the function for its cost panicked")
		}
		cost, err = readCost(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("cost: %w", err)
	}
	return shorten(key), cost, nil
}
