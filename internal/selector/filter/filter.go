// Package filter selects failed, waiting, delayed and running jobs. It reads the conditions that
// flags, addresses and JSON share, and matches jobs, so that what is listed is what is changed.
package filter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/wire"
)

// Filter has the conditions that a job must meet. client.Filter has the same fields, and says what they mean.
type Filter struct {
	All              bool
	IDs              []string
	Classes, Queues  []string
	Tenants, Workers []string
	Error            string
	Group            string
	Arg              []string
	Args             any
	Match            *regexp.Regexp
	Since, Until     time.Time
	Retried          string
	Limit            int
}

// LeastID is the minimum length of an abbreviated id.
const LeastID = 8

// Any reports whether there is a condition other than All and Limit.
func (f *Filter) Any() bool {
	return len(f.IDs) > 0 || f.Content() || f.Retried == "yes" || f.Retried == "no"
}

// Content reports whether there is a condition on what a job contains or when it came.
func (f *Filter) Content() bool {
	return len(f.Classes)+len(f.Queues)+len(f.Tenants)+len(f.Workers)+len(f.Arg) > 0 || f.Error != "" || f.Group != "" ||
		f.Args != nil || f.Match != nil || !f.Since.IsZero() || !f.Until.IsZero()
}

func (f *Filter) check(kind Kind) error {
	for _, id := range f.IDs {
		if kind == Waiting && len(id) < LeastID {
			return &WordError{"id", id, fmt.Errorf("write %d characters of it or more", LeastID)}
		}
	}
	if f.Group != "" && len(f.Group) < LeastID {
		return &WordError{"group", f.Group, fmt.Errorf("write %d characters of it or more", LeastID)}
	}
	if f.Retried != "" && f.Retried != "yes" && f.Retried != "no" && f.Retried != "any" {
		return &WordError{"retried", f.Retried, errors.New("write yes, no or any")}
	}
	for word, list := range map[string][]string{"class": f.Classes, "queue": f.Queues} {
		if err := checkNames(word, list); err != nil {
			return err
		}
	}
	for _, text := range f.Arg {
		if _, err := parseArgument(text); err != nil {
			return &WordError{"arg", text, err}
		}
	}
	return nil
}

func checkNames(word string, names []string) error {
	positive := len(names) == 0
	for _, name := range names {
		text, excluded := strings.CutPrefix(name, "!")
		positive = positive || !excluded
		if text == "" {
			return &WordError{word, name, errors.New("a name is empty")}
		}
		if err := selector.CheckPattern(text); selector.IsPattern(text) && err != nil {
			return &WordError{word, name, err}
		}
	}
	if !positive {
		return &WordError{word, names[0], errors.New(`only exclusions match nothing; write "*" before them`)}
	}
	return nil
}

// Tenancy returns the tenant of a job of a fair queue, or "".
type Tenancy func(queue string, payload []byte) string

type tenancyKey struct{}

// WithTenants returns a context in which matchers know the tenants of jobs.
func WithTenants(ctx context.Context, t Tenancy) context.Context {
	return context.WithValue(ctx, tenancyKey{}, t)
}

type guessKey struct{}

// WithoutGuesses returns a context in which ids of payloads with hidden arguments, which are digests of them, select
// none: they would tell whether a guess is right. Lists that show such ids are without it.
func WithoutGuesses(ctx context.Context) context.Context {
	return context.WithValue(ctx, guessKey{}, true)
}

type progressKey struct{}

// WithProgress returns a context in which matchers tell how many jobs they have looked at, each after many.
func WithProgress(ctx context.Context, told func(looked int)) context.Context {
	return context.WithValue(ctx, progressKey{}, told)
}

// Matcher reports whether a filter selects a job. It is for one goroutine.
type Matcher struct {
	f     Filter
	kind  Kind
	rules *redact.Rules
	// tenant is set if there is a condition on it.
	tenant Tenancy
	args   []any
	paths  []argument
	error  *regexp.Regexp
	// unguessed: digests of what is hidden select none.
	unguessed bool
	looked    int
	told      func(looked int)
	// needles occur in each record that fits, unless another program escapes them.
	needles [][]byte
}

// Matcher returns a matcher for jobs of a kind. Conditions on arguments apply to what the context's
// redact.Rules show of them: a search must not tell what is hidden.
func (f Filter) Matcher(ctx context.Context, kind Kind) (m *Matcher, err error) {
	if err := f.check(kind); err != nil {
		return nil, err
	}
	if kind&Failures == 0 && f.Error+f.Group+f.Retried != "" || kind&(Failures|Running) == 0 && len(f.Workers) > 0 {
		return nil, errors.New("error, group and retried are for failed jobs, worker for failed and running ones")
	}
	m = &Matcher{f: f, kind: kind, rules: redact.From(ctx)}
	m.told, _ = ctx.Value(progressKey{}).(func(looked int))
	m.unguessed, _ = ctx.Value(guessKey{}).(bool)
	if len(f.Tenants) > 0 {
		if m.tenant, _ = ctx.Value(tenancyKey{}).(Tenancy); m.tenant == nil {
			return nil, &WordError{"tenant", f.Tenants[0], errors.New("this program does not know how tenants are told apart")}
		}
	}
	if f.Args != nil {
		list, err := wire.Args(f.Args)
		if err != nil {
			return nil, fmt.Errorf("args: %w", err)
		}
		if m.args, err = decodeAll(list); err != nil {
			return nil, fmt.Errorf("args: %w", err)
		}
	}
	for _, text := range f.Arg {
		one, _ := parseArgument(text) // it was checked
		m.paths = append(m.paths, one)
	}
	text := f.Error
	if inner, ok := strings.CutPrefix(text, "/"); ok && len(inner) > 1 && strings.HasSuffix(inner, "/") {
		if m.error, err = regexp.Compile(inner[:len(inner)-1]); err != nil {
			return nil, &WordError{"error", text, err}
		}
		text = ""
	}
	for _, list := range [][]string{f.Classes, f.Queues, {text}} {
		if len(list) == 1 && literal(list[0]) {
			m.needles = append(m.needles, []byte(list[0]))
		}
	}
	return m, nil
}

func (m *Matcher) look() {
	const every = 1000
	if m.looked++; m.told != nil && m.looked%every == 0 {
		m.told(m.looked)
	}
}

// literal reports whether a text looks the same in JSON from nearly any encoder. UserMailer#welcome, the name
// of a mail, is composed of two.
func literal(text string) bool {
	return text != "" && !selector.IsPattern(text) && !strings.HasPrefix(text, "!") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\/#<>&'`, r) })
}

// invalidPayload occurs in records of bytes that are not a payload, which they hold encoded.
var invalidPayload = []byte("Resqued::InvalidPayload")

// mayFit reports whether the bytes of a record leave it open that it fits, without reading them as JSON.
func (m *Matcher) mayFit(record []byte) bool {
	for _, n := range m.needles {
		if !bytes.Contains(record, n) {
			return bytes.Contains(record, []byte(`\u`)) || bytes.Contains(record, invalidPayload)
		}
	}
	return true
}

// Failure reports whether a failure record fits; the failure lacks its backtrace, and is empty if the bytes
// alone tell that it does not fit.
func (m *Matcher) Failure(record []byte) (failure wire.Failure, ok bool) {
	m.look()
	if !m.mayFit(record) {
		return failure, false
	}
	failure, bad := wire.ParseFailureBrief(record)
	switch {
	case m.f.Retried == "no" && failure.RetriedAt != "", m.f.Retried == "yes" && failure.RetriedAt == "":
		return failure, false
	case !m.f.Content():
		return failure, true
	case bad != nil || !m.failedWith(failure):
		return failure, false
	}
	earliest, latest := failure.Between()
	if !m.between(earliest, latest) || !m.of(failure.Queue, failure.Worker) {
		return failure, false
	}
	payload := failure.Original()
	e, err := wire.Parse(payload, 0)
	if ref, ok := wire.ReferenceOf(e); ok && err == nil {
		e.Class = ref.Class
	}
	if m.f.Group != "" && !strings.HasPrefix(GroupID(ClassOf(e, err), failure.Exception, failure.Queue, Mask(failure.Error)), m.f.Group) {
		return failure, false
	}
	return failure, m.contains(failure.Queue, payload, e, err)
}

func (m *Matcher) failedWith(f wire.Failure) bool {
	if m.error != nil {
		return m.error.MatchString(f.Exception) || m.error.MatchString(f.Error)
	}
	return strings.Contains(f.Exception, m.f.Error) || strings.Contains(f.Error, m.f.Error)
}

// Job is a waiting, delayed or running job.
type Job struct {
	Queue, Worker string
	Payload       []byte
	// At is when it is due or was started. A waiting job's own time counts instead.
	At time.Time
}

// Job reports whether a job fits, and returns its payload as wire.Parse reads it.
func (m *Matcher) Job(j Job) (e wire.Envelope, invalid error, ok bool) {
	m.look()
	if !m.of(j.Queue, j.Worker) {
		return e, nil, false
	}
	e, invalid = wire.Parse(j.Payload, 0)
	if m.kind == Waiting {
		j.At = e.EnqueuedAt
	}
	return e, invalid, m.between(j.At, j.At) && m.named(e, invalid, j.Payload) && m.contains(j.Queue, j.Payload, e, invalid)
}

// of reports whether a job's queue and worker fit.
func (m *Matcher) of(queue, worker string) bool {
	if len(m.f.Queues) > 0 && !selector.MatchAny(m.f.Queues, queue) {
		return false
	}
	if len(m.f.Workers) == 0 {
		return true
	}
	shown := wire.WorkerText(worker)
	return slices.ContainsFunc(m.f.Workers, func(w string) bool { return within(worker, w) || within(shown, w) })
}

// within reports whether a worker is the named one or on that host or process.
func within(worker, name string) bool {
	rest, ok := strings.CutPrefix(worker, name)
	return ok && (rest == "" || strings.IndexByte(":.", rest[0]) >= 0)
}

// between reports whether a job's time, between two, certainly fits. A job without a time fits no limit.
func (m *Matcher) between(earliest, latest time.Time) bool {
	return (m.f.Since.IsZero() || !earliest.IsZero() && !earliest.Before(m.f.Since)) &&
		(m.f.Until.IsZero() || !latest.IsZero() && latest.Before(m.f.Until))
}

func (m *Matcher) named(e wire.Envelope, invalid error, payload []byte) bool {
	if len(m.f.IDs) == 0 {
		return true
	}
	digest := ""
	if !m.unguessed || !m.hides(e, invalid) {
		digest = Digest(payload)
	}
	return slices.ContainsFunc(m.f.IDs, func(id string) bool {
		return e.ID != "" && strings.HasPrefix(e.ID, id) || strings.HasPrefix(digest, id)
	})
}

// hides reports whether a part of a payload is hidden.
func (m *Matcher) hides(e wire.Envelope, invalid error) bool {
	args := []byte(e.Args.String())
	return m.rules.Any() && (invalid != nil || !bytes.Equal(m.rules.Args(e.Class, args, e.Wrappers...), args))
}

// contains reports whether a job's class, tenant and arguments fit.
func (m *Matcher) contains(queue string, payload []byte, e wire.Envelope, invalid error) bool {
	if m.tenant != nil && !m.rents(queue, payload) {
		return false
	}
	asks := m.f.Args != nil || m.f.Match != nil || len(m.paths) > 0
	if invalid != nil {
		return len(m.f.Classes) == 0 && !asks
	}
	return m.isOf(e) && (!asks || m.shows(e))
}

func (m *Matcher) isOf(e wire.Envelope) bool {
	if len(m.f.Classes) == 0 {
		return true
	}
	fits := false
	for _, name := range e.Names() {
		if selector.Excludes(m.f.Classes, name) {
			return false
		}
		fits = fits || selector.MatchAny(m.f.Classes, name)
	}
	return fits
}

func (m *Matcher) rents(queue string, payload []byte) bool {
	tenant := m.tenant(queue, payload)
	if tenant != "" && m.rules.Any() {
		tenant = redact.Digest("tenant", "", tenant) // made of arguments
	}
	return tenant != "" && slices.Contains(m.f.Tenants, tenant)
}

// shows reports whether the visible arguments fit.
func (m *Matcher) shows(e wire.Envelope) bool {
	args := e.Args
	if m.rules.Any() {
		args, _ = array(m.rules.Args(e.Class, json.RawMessage(args.String()), e.Wrappers...))
	}
	if m.f.Match != nil && !m.f.Match.Match(plainly([]byte(args.String()))) {
		return false
	}
	if m.f.Args == nil && len(m.paths) == 0 {
		return true
	}
	values, err := decodeAll(args)
	return err == nil && (m.f.Args == nil || slices.EqualFunc(m.args, values, equal)) &&
		!slices.ContainsFunc(m.paths, func(p argument) bool { return !p.in(values) })
}

// array returns the elements of a JSON array.
func array(text []byte) (resqued.Args, bool) {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil || list == nil {
		return nil, false
	}
	args := make(resqued.Args, len(list))
	copy(args, list)
	return args, true
}

// plainly returns valid JSON without blanks, with texts as short as they can be: producers differ.
func plainly(text []byte) []byte {
	var compact bytes.Buffer
	if json.Compact(&compact, text) != nil {
		return text
	}
	if text = compact.Bytes(); bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	var out []byte
	for len(text) > 0 {
		if text[0] != '"' {
			n := bytes.IndexByte(text, '"')
			if n < 0 {
				n = len(text)
			}
			out, text = append(out, text[:n]...), text[n:]
			continue
		}
		n := 1
		for text[n] != '"' {
			if text[n] == '\\' {
				n++
			}
			n++
		}
		var value string
		_ = json.Unmarshal(text[:n+1], &value) // it is valid
		out, text = wire.AppendString(out, value), text[n+1:]
	}
	return out
}

// Digest identifies a payload without an id of its own.
func Digest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}

// ClassOf returns the class by which failures are grouped, from a payload and its wire.Parse's error.
func ClassOf(e wire.Envelope, invalid error) string {
	if invalid != nil || e.Class == "" {
		return "(invalid)"
	}
	return e.Class
}

// GroupID names the failures of a class, exception and queue with the same masked message.
func GroupID(class, exception, queue, pattern string) string {
	const digits = 12
	return Digest(fmt.Appendf(nil, "%q %q %q %q", class, exception, queue, pattern))[:digits]
}
