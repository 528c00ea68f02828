package jobkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/wire"
)

const (
	openBraces  = "{{"
	closeBraces = "}}"
	// maxTemplate bounds a template, in bytes.
	maxTemplate = 1024
	maxIndex    = 9999
	known       = "known are class, queue, args, args.N and args.N.key"
)

// Template is a key with references to parts of a job. It is safe for concurrent use.
type Template struct {
	parts []part
}

type part struct {
	text string
	ref  reference
	// index is the argument of refArg, path the steps below it.
	index int
	path  []string
}

type reference int

const (
	refNone reference = iota
	refClass
	refQueue
	refArgs
	refArg
)

// IsTemplate reports whether a style is a template, valid or not, rather than a name.
func IsTemplate(style string) bool { return strings.Contains(style, openBraces) }

// ParseTemplate reads a template. Double braces enclose class, queue, args (all arguments as JSON),
// args.N (from 0), or args.N.key for an object's field or an array's index, to any depth. Errors
// give the position, in characters from 1, and what is possible there.
func ParseTemplate(text string) (*Template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("is %d bytes long; at most %d", len(text), maxTemplate)
	}
	if !IsTemplate(text) {
		return nil, fmt.Errorf("refers to nothing, so all jobs would have one key; write {{class}}; %s", known)
	}
	t := &Template{}
	for pos := 0; pos < len(text); {
		at, found := strings.Index(text[pos:], openBraces), true
		if at < 0 {
			at, found = len(text)-pos, false
		}
		fixed := text[pos : pos+at]
		if stray := strings.Index(fixed, closeBraces); stray >= 0 {
			return nil, fmt.Errorf("%s: }} without {{ before it", position(text, pos+stray))
		}
		if fixed != "" {
			t.parts = append(t.parts, part{text: fixed})
		}
		if pos += at; !found {
			break
		}
		inside, _, closed := strings.Cut(text[pos+len(openBraces):], closeBraces)
		if !closed {
			return nil, fmt.Errorf("%s: {{ without }} after it", position(text, pos))
		}
		p, err := parsePart(strings.TrimSpace(inside))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", position(text, pos), err)
		}
		t.parts = append(t.parts, p)
		pos += len(openBraces) + len(inside) + len(closeBraces)
	}
	return t, nil
}

// Fill returns the key of a job. A reference to a string becomes its text, to another value its
// pushed JSON without white space outside strings and with minimal escapes, and to a missing
// value nothing. In an Active Job, a path without a value in the arguments is followed in the
// payload: {{args.0.job_id}} is the job's id.
func (t *Template) Fill(queue string, job wire.Envelope) string {
	text, _ := t.fill(queue, &job)
	return text
}

// find is Fill, but fails if a reference has no value, or null.
func (t *Template) find(queue string, job *wire.Envelope) (string, error) {
	text, missing := t.fill(queue, job)
	if missing != "" {
		return "", fmt.Errorf("the job has no {{%s}}", missing)
	}
	return text, nil
}

func (t *Template) fill(queue string, job *wire.Envelope) (text, missing string) {
	var b strings.Builder
	for _, p := range t.parts {
		switch p.ref {
		case refNone:
			b.WriteString(p.text)
		case refClass:
			b.WriteString(job.Class)
		case refQueue:
			b.WriteString(queue)
		case refArgs:
			b.WriteString(compact([]byte(job.Args.String())))
		case refArg:
			value := p.of(job.Args)
			if value == nil && len(p.path) > 0 {
				value = p.of(job.WrapperArgs)
			}
			if len(value) == 0 || string(value) == "null" {
				missing = strings.Join(append([]string{"args", strconv.Itoa(p.index)}, p.path...), ".")
			}
			b.WriteString(show(value))
		}
	}
	return b.String(), missing
}

// of returns the argument, or part of it, that the part refers to; nil = none.
func (p part) of(args resqued.Args) json.RawMessage {
	if p.index >= len(args) {
		return nil
	}
	return follow(args[p.index], p.path)
}

func parsePart(name string) (part, error) {
	switch name {
	case "":
		return part{}, errors.New("{{}} is empty; " + known)
	case "class":
		return part{ref: refClass}, nil
	case "queue":
		return part{ref: refQueue}, nil
	case "args":
		return part{ref: refArgs}, nil
	}
	rest, isArg := strings.CutPrefix(name, "args.")
	if !isArg {
		return part{}, fmt.Errorf("{{%s}} is unknown; %s", wire.Printable(name, 40), known)
	}
	path := strings.Split(rest, ".")
	index, ok := element(path[0])
	if !ok {
		return part{}, fmt.Errorf("{{%s}}: after args. stands the number of an argument, 0 to %d; %s",
			wire.Printable(name, 40), maxIndex, known)
	}
	if slices.Contains(path[1:], "") {
		return part{}, fmt.Errorf("{{%s}}: nothing stands between or after the dots; %s", wire.Printable(name, 40), known)
	}
	return part{ref: refArg, index: index, path: path[1:]}, nil
}

// element reads an array index; "00" and "+1" are not valid.
func element(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= maxIndex && text == strconv.Itoa(n)
}

// follow descends by the steps of path. It returns nil if there is nothing.
func follow(value json.RawMessage, path []string) json.RawMessage {
	for _, step := range path {
		switch {
		case len(value) > 0 && value[0] == '{':
			// The last of duplicate keys counts, as in every common JSON reader.
			var object map[string]json.RawMessage
			if json.Unmarshal(value, &object) != nil {
				return nil
			}
			value = object[step]
		case len(value) > 0 && value[0] == '[':
			n, ok := element(step)
			var list []json.RawMessage
			if !ok || json.Unmarshal(value, &list) != nil || n >= len(list) {
				return nil
			}
			value = list[n]
		default:
			return nil
		}
	}
	return value
}

func show(value json.RawMessage) string {
	if len(value) == 0 {
		return ""
	}
	var text string
	if value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text
	}
	return compact(value)
}

func compact(value []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil { // not JSON, so not from a parser
		return string(value)
	}
	return string(unescape(b.Bytes()))
}

func position(text string, offset int) string {
	return fmt.Sprintf("at character %d", utf8.RuneCountInString(text[:offset])+1)
}

// argument returns the index if the template is exactly one argument, else -1.
func (t *Template) argument() int {
	if len(t.parts) != 1 || t.parts[0].ref != refArg || len(t.parts[0].path) > 0 {
		return -1
	}
	return t.parts[0].index
}
