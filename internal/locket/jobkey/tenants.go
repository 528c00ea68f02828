package jobkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// maxWeight bounds a tenant's weight, maxWeights the number of a queue's tenants with a weight.
	maxWeight, maxWeights = 1000, 1000
	// Others stands for all queues or tenants without an entry.
	Others = "*"
)

// Fair says how a queue's tenants are distinguished, and their weights.
type Fair struct {
	// Key is a template; empty = the program has a function.
	Key     string         `json:"key,omitempty"`
	Weights map[string]int `json:"weights,omitempty"`
}

// UnmarshalJSON also accepts the key alone.
func (f *Fair) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte{'"'}) {
		*f = Fair{}
		return json.Unmarshal(text, &f.Key)
	}
	type plain Fair
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(f))
}

// Check returns what is wrong with f, or nil.
func (f Fair) Check() error {
	if f.Key == "" && len(f.Weights) == 0 {
		return errors.New(`has no key; write key: "{{args.0}}" for a tenant that is the first argument`)
	}
	if f.Key != "" {
		if _, err := ParseTemplate(f.Key); err != nil {
			return fmt.Errorf("key %q: %w", wire.Printable(f.Key, 80), err)
		}
	}
	return checkWeights(f.Weights)
}

func checkWeights(weights map[string]int) error {
	if len(weights) > maxWeights {
		return fmt.Errorf("has %d weights; at most %d", len(weights), maxWeights)
	}
	for _, tenant := range slices.Sorted(maps.Keys(weights)) {
		if w := weights[tenant]; w < 1 || w > maxWeight {
			return fmt.Errorf("the weight of %q is %d, must be 1 to %d", wire.Printable(tenant, 80), w, maxWeight)
		}
	}
	return nil
}

// TenantsConfig configures Tenants.
type TenantsConfig struct {
	// Rules are from the configuration, by queue or Others.
	Rules map[string]Fair
	// Program are the program's rules.
	Program map[string]resqued.Fair
	// Log gets the functions' panics; nil = they are not logged.
	Log *zap.Logger
}

// Tenants determines the tenants of jobs. It is safe for concurrent use.
type Tenants struct {
	rules  map[string]*TenantRule
	panics panics // by rule
}

// TenantRule is how the tenants of a queue are distinguished.
type TenantRule struct {
	name     string
	template *Template
	fn       func(job *resqued.Job) string
	// Argument is the index of the argument that is the tenant, or -1.
	Argument int
	// Weights are the weights of some tenants, Others the weight of all others.
	Weights map[string]int
	Others  int
}

// NewTenants returns Tenants; rules may be empty. It fails if a rule has a mistake, or neither the
// configuration nor the program says how tenants are distinguished.
func NewTenants(cfg TenantsConfig) (*Tenants, error) {
	t := &Tenants{rules: map[string]*TenantRule{}, panics: panics{
		log: cfg.Log, text: "the function that names tenants panicked, the job counts as one without a tenant; further panics of it are not logged",
	}}
	names := slices.AppendSeq(slices.Collect(maps.Keys(cfg.Rules)), maps.Keys(cfg.Program))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f, own := cfg.Rules[name], cfg.Program[name]
		rule := &TenantRule{name: name, fn: own.Tenant, Argument: -1, Others: 1}
		weights := f.Weights
		if weights == nil {
			weights = own.Weights
		}
		switch err := checkWeights(weights); {
		case err != nil:
			return nil, fmt.Errorf("fair queue %q: %w", wire.Printable(name, 80), err)
		case f.Key != "":
			if rule.template, err = ParseTemplate(f.Key); err != nil {
				return nil, fmt.Errorf("fair queue %q: key %q: %w", wire.Printable(name, 80), wire.Printable(f.Key, 80), err)
			}
			rule.Argument = rule.template.argument()
		case rule.fn == nil:
			return nil, fmt.Errorf("fair queue %q has no key, and this program has no function for it (Handlers.Fair)", wire.Printable(name, 80))
		}
		rule.Weights = make(map[string]int, len(weights))
		for tenant, w := range weights {
			if tenant == Others {
				rule.Others = w
			} else {
				rule.Weights[shorten(tenant)] = w // as Tenant returns it
			}
		}
		t.rules[name] = rule
	}
	return t, nil
}

// Rules returns the rules by queue, or Others.
func (t *Tenants) Rules() map[string]*TenantRule { return t.rules }

// Tenant returns the tenant of a payload. It is empty if unnamed, if the payload is not a job, or
// if the queue has no rule. Names above 512 bytes are cut and end with their SHA-1.
func (t *Tenants) Tenant(queue string, payload []byte) string {
	rule := t.rules[queue]
	if rule == nil {
		rule = t.rules[Others]
	}
	if rule == nil {
		return ""
	}
	env, err := wire.Parse(payload, 0)
	if err != nil { // the job will fail without running
		return ""
	}
	if rule.template != nil {
		return shorten(rule.template.Fill(queue, env))
	}
	tenant, _ := t.panics.call(rule.name, rule.fn, &resqued.Job{
		ID: env.ID, Class: env.Class, Queue: queue, Args: env.Args, Payload: payload, EnqueuedAt: env.EnqueuedAt,
	})
	return shorten(tenant)
}
