package jobkey

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// maxKey is how long a key of a template or of a function may be, in bytes.
	maxKey = 512
	// keptKey is how much of a longer one stays readable before its checksum.
	keptKey = 200
)

// Config is what a Keyer computes keys from.
type Config struct {
	// Style is one of Styles or a template.
	Style string
	// Classes are the names of the registered classes, and Class returns what is
	// registered for one and its wrappers, as handler.Set.Lookup does. A class may bring a function
	// of its own (JobLockKey).
	Classes []string
	Class   func(name string, wrappers ...string) (*resqued.Class, bool)
	// All computes the keys of classes without a function of their own; nil = Style.
	All func(job *resqued.Job) string
	// Log gets the panics of functions; nil = they are not logged.
	Log *zap.Logger
}

// Keyer computes the keys of job locks, without the prefix locket:job_locks:. It is safe
// for concurrent use.
type Keyer struct {
	style    string
	ruby     wire.RubyStyle
	template *Template
	classes  map[string]func(job *resqued.Job) string
	// patterns: the functions of some classes are those of patterns, and class finds them.
	patterns bool
	class    func(name string, wrappers ...string) (*resqued.Class, bool)
	all      func(job *resqued.Job) string
	log      *zap.Logger

	mu       sync.Mutex
	cache    cache
	panicked map[string]bool // by class, "" = All
}

// New returns a Keyer. It fails on an unknown style and on a template with a mistake.
func New(cfg Config) (*Keyer, error) {
	k := &Keyer{
		style: cfg.Style, class: cfg.Class, all: cfg.All, log: cfg.Log,
		classes: map[string]func(job *resqued.Job) string{}, panicked: map[string]bool{},
	}
	if k.log == nil {
		k.log = zap.NewNop()
	}
	switch {
	case k.style == Ruby34:
		k.ruby = wire.Ruby34
	case IsTemplate(k.style):
		template, err := ParseTemplate(k.style)
		if err != nil {
			return nil, fmt.Errorf("job_lock_key %q: %w", wire.Printable(k.style, 80), err)
		}
		k.template = template
	case !slices.Contains(Styles, k.style):
		return nil, fmt.Errorf("job_lock_key %q is not known", wire.Printable(k.style, 80))
	}
	for _, name := range cfg.Classes {
		if class, ok := cfg.Class(name); ok && class.JobLockKey != nil {
			k.classes[name] = class.JobLockKey
			// A script knows neither patterns nor what is shown of mail.
			k.patterns = k.patterns || selector.IsPattern(name) || strings.Contains(name, "#")
		}
	}
	return k, nil
}

// NeedsGo reports whether the keys of all classes have to be computed in Go. If not, only
// those of the classes in ByClass have to, and Redis computes the others.
func (k *Keyer) NeedsGo() bool {
	return k.patterns || k.all != nil || k.template != nil || k.style == Ruby || k.style == Ruby34
}

// ByClass returns the classes that have a function of their own, sorted.
func (k *Keyer) ByClass() []string {
	names := make([]string, 0, len(k.classes))
	for name := range k.classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Name returns the key for a payload of a queue; see Key.
func (k *Keyer) Name(queue string, payload []byte) string {
	key, _ := k.Key(queue, payload)
	return key
}

// Key returns the key for a payload of a queue. Equal payloads always have the same key. A
// function of the class takes precedence over All, and All over the style; the style is also
// used where a function returns an empty key. Keys of templates and functions that are
// longer than 512 bytes are cut and end with their SHA-1. Keys of the styles Ruby and Ruby34
// never are, because they have to equal those of resque-locket. A key may hold any bytes.
//
// The key can always be used. ok is false if it is a substitute: the payload cannot be read,
// the function has panicked, or the template came to nothing.
func (k *Keyer) Key(queue string, payload []byte) (key string, ok bool) {
	id := identify(queue, payload)
	k.mu.Lock()
	found, known := k.cache.get(id)
	k.mu.Unlock()
	if known {
		return found.key, found.ok
	}
	// Not under the lock: functions of the program take the time they take.
	key, ok = k.compute(queue, payload)
	k.mu.Lock()
	k.cache.put(id, entry{key: key, ok: ok})
	k.mu.Unlock()
	return key, ok
}

func (k *Keyer) compute(queue string, payload []byte) (key string, ok bool) {
	if k.all == nil && k.template == nil && len(k.classes) == 0 {
		return k.styled(queue, payload, nil)
	}
	env, err := wire.Parse(payload, 0)
	if err != nil { // it will be failed, not run
		return classArgs(payload), false
	}
	ok = true
	name, fn := "", k.all
	for _, class := range env.Names() {
		if own := k.classes[class]; own != nil {
			name, fn = class, own
			break
		}
	}
	if name == "" && k.patterns {
		if class, ok := k.class(env.Class, env.Wrappers...); ok && selector.IsPattern(class.Name) && class.JobLockKey != nil {
			name, fn = class.Name, class.JobLockKey
		}
	}
	if fn != nil {
		job := &resqued.Job{ID: env.ID, Queue: queue, Payload: payload, EnqueuedAt: env.EnqueuedAt}
		job.Class, job.Args = env.As(name)
		if key, ok = k.call(name, fn, job); key != "" {
			return shorten(key), true
		}
	}
	key, styled := k.styled(queue, payload, &env)
	return key, ok && styled
}

// styled returns the key that the configured style gives. Templates need env.
func (k *Keyer) styled(queue string, payload []byte, env *wire.Envelope) (key string, ok bool) {
	switch {
	case k.template != nil:
		if key := k.template.Fill(queue, *env); key != "" {
			return shorten(key), true
		}
		// All jobs without the argument would have one lock.
		return classArgs(payload), false
	case k.style == Ruby || k.style == Ruby34:
		key, err := wire.Inspect(payload, k.ruby)
		if err != nil {
			return classArgs(payload), false
		}
		return key, true
	case k.style == Payload:
		return wholePayload(payload), true
	default:
		return classArgs(payload), true
	}
}

// call calls a function of the program. The first panic of each is logged.
func (k *Keyer) call(name string, fn func(job *resqued.Job) string, job *resqued.Job) (key string, ok bool) {
	defer func() {
		reason := recover()
		if reason == nil {
			return
		}
		key, ok = "", false
		k.mu.Lock()
		again := k.panicked[name]
		k.panicked[name] = true
		k.mu.Unlock()
		if !again {
			k.log.Error("the function for job lock keys panicked, job_lock_key is used instead; further panics of it are not logged",
				zap.String("class", wire.Printable(job.Class, 80)), zap.String("queue", wire.Printable(job.Queue, 80)),
				zap.String("panic", wire.Printable(fmt.Sprint(reason), 500)), zap.String("job_lock_key", k.style), zap.Stack("stack"))
		}
	}()
	return fn(job), true
}

// shorten keeps a key from growing with the arguments.
func shorten(key string) string {
	if len(key) <= maxKey {
		return key
	}
	return key[:keptKey] + ":" + checksum([]byte(key))
}
