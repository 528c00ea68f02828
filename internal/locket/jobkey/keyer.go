package jobkey

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// maxKey bounds a key of a template or function, in bytes.
	maxKey = 512
	// keptKey is how many bytes of a longer key stay readable before its checksum.
	keptKey = 200
)

// Config configures a Keyer.
type Config struct {
	// Style is one of Styles or a template.
	Style string
	// Classes are the names of the registered classes. Class returns the class registered for a
	// name and its wrappers, like handler.Set.Lookup. A class may have its own JobLockKey.
	Classes []string
	Class   func(name string, wrappers ...string) (*resqued.Class, bool)
	// All computes the keys of classes without their own function; nil = Style.
	All func(job *resqued.Job) string
	// Log gets the functions' panics; nil = they are not logged.
	Log *zap.Logger
}

// Keyer computes job-lock keys, without the prefix locket:job_locks:. It is safe for concurrent use.
type Keyer struct {
	style    string
	ruby     wire.RubyStyle
	template *Template
	classes  map[string]func(job *resqued.Job) string
	// patterns: some functions belong to patterns of classes, which class resolves.
	patterns bool
	class    func(name string, wrappers ...string) (*resqued.Class, bool)
	all      func(job *resqued.Job) string
	panics   panics // by class, "" = All

	mu    sync.Mutex
	cache cache
}

// New returns a Keyer. It fails for an unknown style or a bad template.
func New(cfg Config) (*Keyer, error) {
	k := &Keyer{
		style: cfg.Style, class: cfg.Class, all: cfg.All, classes: map[string]func(job *resqued.Job) string{},
		panics: panics{log: cfg.Log, text: "the function for job lock keys panicked, job_lock_key is used instead; further panics of it are not logged"},
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
			// Scripts know neither patterns nor the class#action names of mails.
			k.patterns = k.patterns || selector.IsPattern(name) || strings.Contains(name, "#")
		}
	}
	return k, nil
}

// NeedsGo reports whether the keys of all classes must be computed in Go. If not, that is only
// needed for ByClass, and Redis computes the others.
func (k *Keyer) NeedsGo() bool {
	return k.patterns || k.all != nil || k.template != nil || k.style == Ruby || k.style == Ruby34
}

// ByClass returns the classes with their own function, sorted.
func (k *Keyer) ByClass() []string { return slices.Sorted(maps.Keys(k.classes)) }

// Name returns the key for a payload of a queue; see Key.
func (k *Keyer) Name(queue string, payload []byte) string {
	key, _ := k.Key(queue, payload)
	return key
}

// Key returns the key for a payload of a queue. Equal payloads have equal keys. A class's function
// takes precedence over All, and All over the style; the style also replaces empty keys of
// functions. Keys of templates and functions above 512 bytes are cut and end with their SHA-1.
// Keys of the styles Ruby and Ruby34 are never cut: they must equal those of resque-locket. A key
// may contain any bytes.
//
// The key is always usable. ok is false if it is a substitute: the payload cannot be read, the
// function panicked, or the template was empty.
func (k *Keyer) Key(queue string, payload []byte) (key string, ok bool) {
	id := identify(queue, payload)
	k.mu.Lock()
	found, known := k.cache.get(id)
	k.mu.Unlock()
	if known {
		return found.key, found.ok
	}
	// Not under the lock: the program's functions may be slow.
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
	if err != nil { // the job will fail without running
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
		if key, ok = k.panics.call(name, fn, job, zap.String("job_lock_key", k.style)); key != "" {
			return shorten(key), true
		}
	}
	key, styled := k.styled(queue, payload, &env)
	return key, ok && styled
}

// styled returns the key of the configured style. Templates need env.
func (k *Keyer) styled(queue string, payload []byte, env *wire.Envelope) (key string, ok bool) {
	switch {
	case k.template != nil:
		if key := k.template.Fill(queue, *env); key != "" {
			return shorten(key), true
		}
		// Otherwise all jobs without the argument would share a lock.
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

// panics calls functions of the program and logs the first panic of each.
type panics struct {
	log  *zap.Logger // nil = none is logged
	text string

	mu   sync.Mutex
	seen map[string]bool
}

// call returns the result of a function; ok is false if it panicked.
func (p *panics) call(name string, fn func(job *resqued.Job) string, job *resqued.Job, fields ...zap.Field) (result string, ok bool) {
	defer func() {
		reason := recover()
		if reason == nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.log == nil || p.seen[name] {
			return
		}
		if p.seen == nil {
			p.seen = map[string]bool{}
		}
		p.seen[name] = true
		p.log.Error(p.text, append(fields, zap.String("class", wire.Printable(job.Class, 80)), zap.String("queue", wire.Printable(job.Queue, 80)),
			zap.String("panic", wire.Printable(fmt.Sprint(reason), 500)), zap.Stack("stack"))...)
	}()
	return fn(job), true
}

func shorten(key string) string {
	if len(key) <= maxKey {
		return key
	}
	return key[:keptKey] + ":" + checksum([]byte(key))
}
