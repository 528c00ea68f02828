// Package redact hides arguments of jobs from viewers. It rewrites copies; stored jobs stay as
// pushed.
package redact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/wire"
)

// Shown replaces what is hidden.
const Shown = "[redacted]"

const (
	root = "args"
	any1 = "*"  // any element or member
	deep = "**" // any number of elements or members, including none
)

// value and list are the JSON that replaces a value, and all arguments.
var (
	value = []byte(`"` + Shown + `"`)
	list  = []byte(`["` + Shown + `"]`)
)

// Rules say which arguments of which classes are hidden. Nil hides nothing.
type Rules struct{ rules []rule }

// rule is what one class, or the classes of one glob, hide.
type rule struct {
	class string
	paths [][]string // without "args"
}

type contextKey struct{}

// Into returns a context in which arguments are hidden by rules. The context carries them because they depend
// on the viewer.
func Into(ctx context.Context, rules *Rules) context.Context {
	return context.WithValue(ctx, contextKey{}, rules)
}

// From returns the rules of a context; nil hides nothing.
func From(ctx context.Context) *Rules {
	rules, _ := ctx.Value(contextKey{}).(*Rules)
	return rules
}

// All hides the arguments of all classes.
func All() *Rules { return &Rules{[]rule{{class: any1, paths: [][]string{{}}}}} }

// Parse reads rules as String writes them: CLASS=PATH,PATH;CLASS=PATH. CLASS is a name or a glob.
// PATH is args, then indexes and member names after dots; * is any one of these, ** any number.
func Parse(text string) (*Rules, error) {
	r := &Rules{}
	for one := range strings.SplitSeq(text, ";") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		class, paths, ok := strings.Cut(one, "=")
		if !ok {
			return nil, fmt.Errorf("%q has no path; write Class=args.0", one)
		}
		if err := r.Add(strings.TrimSpace(class), strings.Split(paths, ",")); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Add adds the paths of a class.
func (r *Rules) Add(class string, paths []string) error {
	if class == "" || strings.ContainsAny(class, "=;") || strings.TrimSpace(class) != class {
		return fmt.Errorf("%q is not a class, and no glob", class)
	}
	if err := selector.CheckPattern(class); err != nil {
		return err
	}
	one := rule{class: class}
	for _, text := range paths {
		path, err := parsePath(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("%s: %w", class, err)
		}
		one.paths = append(one.paths, path)
	}
	if len(one.paths) == 0 {
		return fmt.Errorf("%s: which arguments? Write args for all", class)
	}
	r.rules = append(r.rules, one)
	return nil
}

func parsePath(text string) ([]string, error) {
	parts := strings.Split(text, ".")
	if parts[0] != root {
		return nil, fmt.Errorf("path %q does not begin with args", text)
	}
	path := []string{}
	for _, part := range parts[1:] {
		switch {
		case part == "" || strings.ContainsAny(part, ",;= \t\r\n"):
			return nil, fmt.Errorf("path %q: use args.0.name", text)
		case part == deep && len(path) > 0 && path[len(path)-1] == deep:
			continue // it adds nothing
		}
		path = append(path, part)
	}
	if n := len(path); n > 0 && path[n-1] == deep {
		path = path[:n-1] // hiding a value hides what is below it
	}
	return path, nil
}

// String returns the rules as Parse takes them.
func (r *Rules) String() string {
	if r == nil {
		return ""
	}
	all := make([]string, len(r.rules))
	for i, one := range r.rules {
		paths := make([]string, len(one.paths))
		for j, path := range one.paths {
			paths[j] = strings.Join(append([]string{root}, path...), ".")
		}
		all[i] = one.class + "=" + strings.Join(paths, ",")
	}
	return strings.Join(all, ";")
}

// MarshalText writes rules as String does.
func (r *Rules) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (r *Rules) UnmarshalText(text []byte) error {
	read, err := Parse(string(text))
	if err == nil {
		*r = *read
	}
	return err
}

// Any reports whether there are rules.
func (r *Rules) Any() bool { return r != nil && len(r.rules) > 0 }

// Everything reports whether no argument of any class is shown.
func (r *Rules) Everything() bool {
	return r != nil && slices.ContainsFunc(r.rules, func(one rule) bool {
		return one.class == any1 && whole(one.paths)
	})
}

// of returns the paths of all rules for a class: a rule never shows what another one hides.
func (r *Rules) of(class string) (paths [][]string) {
	if r == nil {
		return nil
	}
	for _, one := range r.rules {
		if one.class == class || one.class == any1 || selector.IsPattern(one.class) && selector.Matches(one.class, class) {
			paths = append(paths, one.paths...)
		}
	}
	return paths
}

// Args returns the arguments as they may be shown; what is not hidden stays the same byte by byte.
// wrappers are the classes around an Active Job, innermost first, as in wire.Envelope; their rules
// apply too. A wrapper's arguments hide what its job's rules hide.
func (r *Rules) Args(class string, args json.RawMessage, wrappers ...string) json.RawMessage {
	if !r.Any() || string(args) == "null" {
		return args
	}
	paths := r.of(class)
	if e := wire.ActiveJob(class, args); len(wrappers) == 0 && len(e.Wrappers) > 0 {
		for _, class := range e.Names()[:len(e.Wrappers)] {
			for _, path := range r.of(class) {
				paths = append(paths, append(slices.Clone(wrapped), path...))
			}
		}
	}
	for i, wrapper := range wrappers {
		for _, path := range r.of(wrapper) {
			if i == len(wrappers)-1 { // the path leads through the wrapper's arguments
				paths = append(paths, inside(path, wrapped...)...)
			} else {
				paths = append(paths, path)
			}
		}
	}
	return without(args, paths)
}

// wrapped leads from a wrapper's arguments to its job's.
var wrapped = []string{"0", "arguments"}

// inside returns what is left of a path after some steps, none if it leads elsewhere.
func inside(path []string, steps ...string) (rest [][]string) {
	if len(steps) == 0 || len(path) == 0 {
		return [][]string{path}
	}
	switch path[0] {
	case steps[0], any1:
		return inside(path[1:], steps[1:]...)
	case deep: // it may end at each of these steps or lead on
		for i := range steps {
			rest = append(rest, inside(path[1:], steps[i:]...)...)
		}
		return append(rest, append([]string{deep}, path[1:]...))
	}
	return nil
}

// without hides what the paths lead to.
func without(args json.RawMessage, paths [][]string) json.RawMessage {
	switch {
	case len(paths) == 0:
		return args
	case whole(paths), !json.Valid(args):
		return list
	}
	s := newRewriter(args)
	s.value(paths)
	return s.result()
}

// whole reports whether a path ends here: the value is hidden as a whole.
func whole(paths [][]string) bool {
	return slices.ContainsFunc(paths, func(path []string) bool { return len(path) == 0 })
}

// Payload returns a payload as it may be shown: nothing of one that is not a job.
func (r *Rules) Payload(payload []byte) string {
	if !r.Any() || len(payload) == 0 {
		return string(payload)
	}
	e, err := wire.Parse(payload, 0)
	if err != nil || !json.Valid(payload) {
		return Shown
	}
	class, _ := e.As(e.Wrapper())
	s := newRewriter(payload)
	s.members(func(name string) {
		if name == root {
			s.read(func(args []byte) []byte { return r.Args(class, args) })
		} else {
			s.read(nil)
		}
	})
	return string(s.result())
}

// Text returns a text that may quote something that is not a job.
func (r *Rules) Text(text string) string {
	if r.Any() && text != "" {
		return Shown
	}
	return text
}

// Key returns a lock's key as it may be shown: a digest, if the job hides arguments or is unknown,
// as keys are made of arguments. args is nil if unknown; an Active Job then has a digest if there
// are any rules, because only its arguments say that it is a mail.
func (r *Rules) Key(kind, class string, args []byte, key string, wrappers ...string) string {
	switch {
	case !r.Any(), class != "" && args != nil && bytes.Equal(r.Args(class, args, wrappers...), args),
		class != "" && args == nil && len(wrappers) == 0 && len(r.of(class)) == 0:
		return key
	}
	return Digest(kind, class, key)
}

// Digest returns the name by which Key shows a hidden key.
func Digest(kind, class, key string) string {
	const digits = 16
	sum := sha256.Sum256([]byte(key))
	return kind + ":" + class + Shown + hex.EncodeToString(sum[:])[:digits]
}

// rewriter copies valid JSON without the values that paths lead to.
type rewriter struct {
	text []byte
	json *json.Decoder // of text
	out  bytes.Buffer
	// done is how much of text has been copied or left out.
	done int
}

func newRewriter(text []byte) *rewriter {
	s := &rewriter{text: text, json: json.NewDecoder(bytes.NewReader(text))}
	s.json.UseNumber() // a number may be too large for a float64
	return s
}

// result returns the copy when the value of text has been read.
func (s *rewriter) result() []byte {
	s.out.Write(s.text[s.done:s.json.InputOffset()])
	return s.out.Bytes()
}

// read reads the next value; if with is not nil, it is replaced.
func (s *rewriter) read(with func(value []byte) []byte) {
	var value json.RawMessage
	_ = s.json.Decode(&value) // it is valid
	if with == nil {
		return
	}
	end := int(s.json.InputOffset())
	s.out.Write(s.text[s.done : end-len(value)])
	s.out.Write(with(value))
	s.done = end
}

// value reads the next value, from which the paths lead on.
func (s *rewriter) value(paths [][]string) {
	switch {
	case len(paths) == 0:
		s.read(nil)
	case whole(paths):
		s.read(func([]byte) []byte { return value })
	default:
		s.members(func(name string) { s.value(below(paths, name)) })
	}
}

// members reads the next value. If it is an object or a list, each reads the value of a member.
func (s *rewriter) members(each func(name string)) {
	begin, _ := s.json.Token()
	if _, ok := begin.(json.Delim); !ok {
		return
	}
	for n := 0; s.json.More(); n++ {
		name := strconv.Itoa(n)
		if begin == json.Delim('{') {
			key, _ := s.json.Token()
			name, _ = key.(string)
		}
		each(name)
	}
	_, _ = s.json.Token() // its end
}

// below returns what is left of paths inside a member.
func below(paths [][]string, name string) (next [][]string) {
	for _, path := range paths {
		if path[0] == deep {
			next = append(next, path)
			path = path[1:]
		}
		if path[0] == name || path[0] == any1 {
			next = append(next, path[1:])
		}
	}
	return next
}
