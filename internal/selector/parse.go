package selector

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// maxName limits an entry, in bytes: names are part of every worker id.
const maxName = 1024

// Codes of warnings.
const (
	// CapZero: a share comes to less than one thread and is raised to one.
	CapZero = "cap_zero"
	// Shadowed: an earlier glob takes the queue, so the entry has no effect.
	Shadowed = "shadowed"
	// CapAbove: a cap exceeds the number of threads and limits nothing.
	CapAbove = "cap_above"
	// OneName: an entry probably means several queues, all, or none.
	OneName = "one_name"
)

// Warning is about an entry that is legal but probably a mistake.
type Warning struct {
	Code    string
	Message string
}

// EntryError is why one entry is refused. Parse joins several.
type EntryError struct {
	// Index is the entry's place in the list, from 0; -1 = the whole list.
	Index  int
	Entry  string
	Reason string
}

// Error names the entry and what to write instead.
func (e *EntryError) Error() string {
	if e.Index < 0 {
		return e.Reason
	}
	return fmt.Sprintf("queue %s: %s", strconv.Quote(e.Entry), e.Reason)
}

// A cap is plain digits, perhaps with "%". A suffix that only looks like a number (":-1",
// ":12.5%", ": 8", ":8%%") is refused rather than read as part of a name.
var (
	capForm    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]+%?$`) })
	numberForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*[-+]?[0-9]*\.?[0-9]+[\s%]*$`) })
)

// Parse reads a specification for a master of threads threads. A cap such as "25%" is a share of
// them, rounded down but at least 1. The error joins one *EntryError per refused entry.
func Parse(entries []string, threads int) (Spec, []Warning, error) {
	p := parser{threads: max(threads, 1), first: map[string]string{}}
	for i, entry := range entries {
		if reason := p.add(strings.TrimSpace(entry)); reason != "" {
			p.refuse(i, entry, reason)
		}
	}
	p.checkWhole(entries)
	if len(p.errs) > 0 {
		return Spec{}, nil, errors.Join(p.errs...)
	}
	p.warnShadowed()
	return p.spec, append(p.warnings, SetWarnings(p.spec.Names())...), nil
}

// CheckSet validates a list for MatchAny. The error joins one *EntryError per refused entry.
func CheckSet(entries []string) error {
	var errs []error
	positive := false
	for i, entry := range entries {
		text, excluded := strings.CutPrefix(entry, "!")
		positive = positive || !excluded
		reason := checkText(text)
		if _, _, found := cutCap(text); reason == "" && found {
			reason = "a cap has no meaning here; leave it out"
		}
		if reason != "" {
			errs = append(errs, &EntryError{Index: i, Entry: entry, Reason: reason})
		}
	}
	if len(entries) > 0 && !positive {
		errs = append(errs, &EntryError{Index: -1, Reason: `only exclusions match nothing; write "*" before them`})
	}
	return errors.Join(errs...)
}

// SetWarnings returns warnings about a list that CheckSet accepts.
func SetWarnings(entries []string) (warnings []Warning) {
	for _, entry := range entries {
		if why := doubtful(strings.TrimPrefix(entry, "!")); why != "" {
			warnings = append(warnings, Warning{Code: OneName, Message: why})
		}
	}
	return warnings
}

// doubtful returns why a text is probably not a queue's name, or "".
func doubtful(text string) string {
	switch strings.ToLower(text) {
	case "all", "any", "every":
		return fmt.Sprintf(`%q is the queue of that name; all queues are "*".`, text)
	case "none", "no", "off", "false", "null", "nil":
		return fmt.Sprintf(`%q is the queue of that name; no queue at all is an empty list.`, text)
	}
	if bare := strings.TrimRight(text, "% "); strings.HasSuffix(bare, ":") {
		return fmt.Sprintf("%q is the queue of that name, without a cap, which would be a number: %q.", text, bare+"8")
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r == ';' || unicode.IsSpace(r) }); i >= 0 {
		return fmt.Sprintf("%q is one queue; a comma separates queues, %q does not.", text, text[i:i+1])
	}
	return ""
}

type parser struct {
	threads  int
	spec     Spec
	first    map[string]string // an entry's text, with "!" -> how it was written first
	warnings []Warning
	errs     []error
}

func (p *parser) refuse(index int, entry, reason string) {
	p.errs = append(p.errs, &EntryError{Index: index, Entry: entry, Reason: reason})
}

func (p *parser) warn(code, format string, a ...any) {
	p.warnings = append(p.warnings, Warning{Code: code, Message: fmt.Sprintf(format, a...)})
}

// add takes one entry and returns why it is refused, or "".
func (p *parser) add(entry string) string {
	if text, excluded := strings.CutPrefix(entry, "!"); excluded {
		return p.exclude(strings.TrimSpace(text))
	}
	text, limit, capped := cutCap(entry)
	if reason := checkText(text); reason != "" {
		return reason
	}
	if reason := p.once(text, entry); reason != "" {
		return reason
	}
	pattern := Pattern{Text: text, Glob: IsPattern(text), Source: entry}
	if capped {
		n, reason := p.cap(text, limit)
		if reason != "" {
			return reason
		}
		if n == 0 {
			p.warn(CapZero, "%s is 0 threads; the fork reads 0 as unlimited. Using 1.", entry)
			n = 1
		}
		if n > p.threads {
			p.warn(CapAbove, "%s caps nothing: the threads of the whole daemon are %d.", entry, p.threads)
		}
		pattern.Cap = n
	}
	p.spec.Patterns = append(p.spec.Patterns, pattern)
	return ""
}

func (p *parser) exclude(text string) string {
	if bare, _, capped := cutCap(text); capped {
		return fmt.Sprintf("an exclusion takes no cap; write %q", "!"+bare)
	}
	if reason := checkText(text); reason != "" {
		return reason
	}
	if reason := p.once("!"+text, "!"+text); reason != "" {
		return reason
	}
	p.spec.Exclude = append(p.spec.Exclude, text)
	return ""
}

func (p *parser) once(text, entry string) string {
	if before, ok := p.first[text]; ok {
		return fmt.Sprintf("%s is listed already, as %q; keep one of them", text, before)
	}
	p.first[text] = entry
	return ""
}

// cutCap splits an entry at its last colon if a number follows.
func cutCap(entry string) (text, limit string, found bool) {
	i := strings.LastIndexByte(entry, ':')
	if i < 0 || !numberForm().MatchString(entry[i+1:]) {
		return entry, "", false
	}
	return strings.TrimSpace(entry[:i]), entry[i+1:], true
}

// Capped reports whether an entry ends like a cap.
func Capped(entry string) bool {
	_, _, found := cutCap(entry)
	return found
}

// cap returns the threads of a limit, 0 for a share of less than one, or why the limit is refused.
func (p *parser) cap(text, limit string) (int, string) {
	if !capForm().MatchString(limit) {
		return 0, fmt.Sprintf(`a cap is a whole number of threads or of per cent above 0; write "%s:8" or "%s:25%%"`+
			` (a queue that is really called so is matched by a glob: %q)`, text, text, Literal(text+":"+limit))
	}
	digits, share := strings.CutSuffix(limit, "%")
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil, n > math.MaxInt32:
		return 0, fmt.Sprintf("the cap is too large; write %q for no cap", text)
	case n == 0:
		return 0, fmt.Sprintf("a cap of 0 would never take a job; write %q for no cap, or leave the queue out", text)
	case share && n > 100:
		return 0, fmt.Sprintf(`a share is at most 100%%; write "%s:%d" for %d threads, or %q for no cap`, text, n, n, text)
	case share:
		return n * p.threads / 100, ""
	}
	return n, ""
}

// Literal returns the entry for exactly the queue of a name: the name or, if that would be read
// otherwise, a glob. In that glob "?" replaces what no entry may hold, such as a comma.
func Literal(name string) string {
	glob := IsPattern(name) || strings.HasPrefix(name, "!") || Capped(name) || strings.TrimSpace(name) != name ||
		!utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r == ',' || unicode.IsControl(r) })
	if !glob {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		_, size := utf8.DecodeRuneInString(name[i:])
		switch last := i+size == len(name); {
		case r == ',' || unicode.IsControl(r) || r == utf8.RuneError && size == 1:
			b.WriteByte('?')
		case strings.ContainsRune(globChars+`\`, r):
			b.WriteString(`\` + string(r))
		case i == 0 && r == '!':
			b.WriteString(`[\!]`)
		case (i == 0 || last) && unicode.IsSpace(r), last && (r == '%' || unicode.IsDigit(r)):
			b.WriteString("[" + string(r) + "]")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func checkText(text string) string {
	switch {
	case text == "":
		return "the name is empty; write a queue's name, or \"*\" for all"
	case len(text) > maxName:
		return fmt.Sprintf("longer than %d bytes; match it by a glob", maxName)
	case strings.Contains(text, ","):
		return "a comma separates queues; write two entries (or \"?\" for a comma in a name)"
	case !utf8.ValidString(text):
		return "not valid UTF-8; match it by a glob"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "holds a control character; match it by a glob"
	case !IsPattern(text) && companion(text):
		return "its key is that of a unique queue; choose a name that does not end in :start_at or :uniqueue"
	}
	if err := CheckPattern(text); err != nil {
		return err.Error()
	}
	return ""
}

// checkWhole refuses what only the list as a whole shows.
func (p *parser) checkWhole(entries []string) {
	if len(entries) == 0 {
		p.refuse(-1, "", "no queue is named; write \"*\" for all")
		return
	}
	if len(p.errs) > 0 {
		return
	}
	if len(p.spec.Patterns) == 0 {
		p.refuse(-1, "", "only exclusions select no queue; write \"*\" before them")
	}
	for _, text := range p.spec.Exclude {
		if strings.Trim(text, "*") == "" {
			p.refuse(-1, "", fmt.Sprintf("%q excludes every queue; name what to exclude", "!"+text))
		}
	}
	for _, pattern := range p.spec.Patterns {
		for _, text := range p.spec.Exclude {
			if !pattern.Glob && matchEntry(text, pattern.Text) || pattern.Text == text {
				p.refuse(-1, "", fmt.Sprintf("%q is listed and also excluded by %q; remove one of them", pattern.Source, "!"+text))
			}
		}
	}
}

func (p *parser) warnShadowed() {
	for i, pattern := range p.spec.Patterns {
		for _, earlier := range p.spec.Patterns[:i] {
			all := strings.Trim(earlier.Text, "*") == ""
			if !all && (pattern.Glob || !earlier.Glob || !Matches(earlier.Text, pattern.Text)) {
				continue
			}
			p.warn(Shadowed, "%s comes after %s, which takes it first, with its own place and cap. Put %[1]s before it.", pattern.Source, earlier.Source)
			break
		}
	}
}
