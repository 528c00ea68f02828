// Package redact leaves out of what is shown of a job those of its arguments that not everybody who
// looks may see. It rewrites copies: what is kept, moved or run stays as it was pushed.
package redact

import (
	"bytes"
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

// Shown stands for what is left out.
const Shown = "[redacted]"

const (
	root = "args"
	any1 = "*"  // any element or member
	deep = "**" // any number of them, none included
)

// value and list stand for a value, and for all arguments, in JSON.
var (
	value = []byte(`"` + Shown + `"`)
	list  = []byte(`["` + Shown + `"]`)
)

// Rules say what is left out of the arguments of which classes. Nil = nothing.
type Rules struct{ rules []rule }

// rule is what one class, or the classes of one glob, keep back.
type rule struct {
	class string
	paths [][]string // without "args"
}

// All leaves out the arguments of all classes.
func All() *Rules { return &Rules{[]rule{{class: any1, paths: [][]string{{}}}}} }

// Parse reads rules as String writes them: CLASS=PATH,PATH;CLASS=PATH. A class is a name or a glob.
// A path is args, or args and what leads to a value in them, numbers from 0 on and names of members,
// joined by points; * is any of these, ** any number of them.
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
			continue // it says nothing more
		}
		path = append(path, part)
	}
	if n := len(path); n > 0 && path[n-1] == deep {
		path = path[:n-1] // what is below goes with it
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

// MarshalText and UnmarshalText pass rules on as text.
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
		return one.class == any1 && slices.ContainsFunc(one.paths, func(path []string) bool { return len(path) == 0 })
	})
}

// of returns the paths of all rules for a class. Where several fit it each keeps back its own: a
// rule never shows what another one hides.
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

// Args returns arguments as they may be shown; the rest is as it was, byte by byte. wrappers are the
// classes around an Active Job, inside out, as wire.Envelope has them: their rules count, too. Of a
// wrapper's own arguments those are kept back that its job keeps back.
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
			if i == len(wrappers)-1 { // it leads through the arguments of the wrapper
				paths = append(paths, inside(path, wrapped...)...)
			} else {
				paths = append(paths, path)
			}
		}
	}
	return without(args, paths)
}

// wrapped is the way from the arguments of a wrapper to those of its job.
var wrapped = []string{"0", "arguments"}

// inside returns what is left of a path after some steps; none if it leads elsewhere.
func inside(path []string, steps ...string) (rest [][]string) {
	if len(steps) == 0 || len(path) == 0 {
		return [][]string{path}
	}
	switch path[0] {
	case steps[0], any1:
		return inside(path[1:], steps[1:]...)
	case deep: // it may end at each of these steps, or lead on
		for i := range steps {
			rest = append(rest, inside(path[1:], steps[i:]...)...)
		}
		return append(rest, append([]string{deep}, path[1:]...))
	}
	return nil
}

// without leaves out of arguments what the paths lead to.
func without(args json.RawMessage, paths [][]string) json.RawMessage {
	switch {
	case len(paths) == 0:
		return args
	case slices.ContainsFunc(paths, func(p []string) bool { return len(p) == 0 }), !json.Valid(args):
		return list
	}
	s := rewriter{text: args}
	s.value(paths)
	return s.out.Bytes()
}

// Payload returns a payload as it may be shown. One that is not a job is not shown, because its
// parts are not known.
func (r *Rules) Payload(payload []byte) string {
	if !r.Any() || len(payload) == 0 {
		return string(payload)
	}
	e, err := wire.Parse(payload, 0)
	if err != nil || !json.Valid(payload) {
		return Shown
	}
	class, _ := e.As(e.Wrapper())
	s := rewriter{text: payload, args: func(args []byte) []byte { return r.Args(class, args) }}
	s.value(nil)
	return s.out.String()
}

// Text returns a text about what is not a job, which may have parts of it.
func (r *Rules) Text(text string) string {
	if r.Any() && text != "" {
		return Shown
	}
	return text
}

// Key returns the key of a lock as it may be shown. Keys are made of the arguments, so one of a job
// that keeps some back, or of which nothing is known, is named by a digest. Args are nil if they are
// not known; a mail is not known without them, so an Active Job has a digest then if there are any rules.
func (r *Rules) Key(kind, class string, args []byte, key string, wrappers ...string) string {
	switch {
	case !r.Any(), class != "" && args != nil && bytes.Equal(r.Args(class, args, wrappers...), args),
		class != "" && args == nil && len(wrappers) == 0 && len(r.of(class)) == 0:
		return key
	}
	return Digest(kind, class, key)
}

// Digest returns the name by which Key shows a key.
func Digest(kind, class, key string) string {
	const digits = 16
	sum := sha256.Sum256([]byte(key))
	return kind + ":" + class + Shown + hex.EncodeToString(sum[:])[:digits]
}

// rewriter copies valid JSON, with the values left out to which paths lead.
type rewriter struct {
	text []byte
	pos  int
	out  bytes.Buffer
	// args, if not nil, rewrites the member args of the object that text is.
	args func(args []byte) []byte
}

// value copies the next value. The paths lead on from it.
func (s *rewriter) value(paths [][]string) {
	s.space()
	for _, path := range paths {
		if len(path) == 0 {
			s.skip()
			s.out.Write(value)
			return
		}
	}
	switch c := s.text[s.pos]; {
	case c == '{' && (len(paths) > 0 || s.args != nil):
		args := s.args
		s.args = nil
		s.members('}', func(int) string { return s.key() }, func(name string) {
			if args == nil || name != root {
				s.value(below(paths, name))
				return
			}
			s.space()
			begin := s.pos
			s.skip()
			s.out.Write(args(s.text[begin:s.pos]))
		})
	case c == '[' && len(paths) > 0:
		s.members(']', strconv.Itoa, func(name string) { s.value(below(paths, name)) })
	default:
		begin := s.pos
		s.skip()
		s.out.Write(s.text[begin:s.pos])
	}
}

// members copies what stands between brackets; name returns what the n-th is called.
func (s *rewriter) members(end byte, name func(n int) string, each func(name string)) {
	s.copy()
	for n := 0; ; n++ {
		s.space()
		switch s.text[s.pos] {
		case end:
			s.copy()
			return
		case ',':
			s.copy()
			s.space()
		}
		each(name(n))
	}
}

// key copies a name and the colon behind it.
func (s *rewriter) key() string {
	begin := s.pos
	s.skip()
	var name string
	_ = json.Unmarshal(s.text[begin:s.pos], &name) // it is valid
	s.out.Write(s.text[begin:s.pos])
	s.space()
	s.copy()
	return name
}

// below returns where paths lead in a member.
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

func (s *rewriter) copy() {
	s.out.WriteByte(s.text[s.pos])
	s.pos++
}

func (s *rewriter) space() {
	for s.pos < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.pos]) >= 0 {
		s.copy()
	}
}

// skip goes to the end of the next value.
func (s *rewriter) skip() {
	for depth := 0; s.pos < len(s.text); {
		switch c := s.text[s.pos]; c {
		case '"':
			for s.pos++; s.text[s.pos] != '"'; s.pos++ {
				if s.text[s.pos] == '\\' {
					s.pos++
				}
			}
			s.pos++
		case '{', '[':
			depth++
			s.pos++
		case '}', ']', ',':
			if depth == 0 {
				return // the end of what a number or a word stands in
			}
			if c != ',' {
				depth--
			}
			s.pos++
		case ' ', '\t', '\r', '\n', ':':
			if depth == 0 {
				return
			}
			s.pos++
		default:
			for s.pos < len(s.text) && strings.IndexByte(" \t\r\n,:]}", s.text[s.pos]) < 0 {
				s.pos++
			}
		}
		if depth == 0 {
			return
		}
	}
}
