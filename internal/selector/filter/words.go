package filter

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/selector"
)

// Kind is what a filter selects from. Kinds may be combined.
type Kind uint8

// The kinds of jobs.
const (
	Failures Kind = 1 << iota
	Waiting
	Delayed
	Running

	everything = Failures | Waiting | Delayed | Running
)

// when names jobs of a kind by what happens at the time that since and until limit.
var when = map[Kind]string{Failures: "those that failed", Waiting: "those enqueued", Delayed: "those due", Running: "those started"}

// Word is a condition as people write it: a flag, a parameter of an address and a key in JSON.
type Word struct {
	Name string
	// Value names the value in help.
	Value string
	// Help says what is selected, as a part of a sentence after "only".
	Help  string
	kinds Kind
	// many: it may be given several times.
	many bool
	set  func(f *Filter, values []string, at moment) error
}

// moment is the time at which a filter is read; ahead: times of day are those to come.
type moment struct {
	now   time.Time
	ahead bool
}

var words = []Word{
	{"class", "classes", "these classes, also * ? [a-z] and !", everything, true, func(f *Filter, v []string, _ moment) error {
		f.Classes = split(v)
		return nil
	}},
	{"queue", "queues", "these queues, also * ? [a-z] and !", everything, true, func(f *Filter, v []string, _ moment) error {
		f.Queues = split(v)
		return nil
	}},
	{"tenant", "tenant", "of this tenant of a fair queue", everything, true, func(f *Filter, v []string, _ moment) error {
		f.Tenants = v
		return nil
	}},
	{"worker", "worker", "on this host, process or worker", Failures | Running, true, func(f *Filter, v []string, _ moment) error {
		f.Workers = v
		return nil
	}},
	{"id", "ids", "these ids, as \"jobs find\" shows them", Waiting, true, func(f *Filter, v []string, _ moment) error {
		f.IDs = split(v)
		return nil
	}},
	{"error", "text", "with this in exception or message; /…/ is a regexp", Failures, false, func(f *Filter, v []string, _ moment) error {
		f.Error = v[0]
		return nil
	}},
	{"group", "id", "of this group, as \"failed\" shows it", Failures, false, func(f *Filter, v []string, _ moment) error {
		f.Group = v[0]
		return nil
	}},
	{"arg", "path=value", "with this argument: 0=42, 0.id=42, **.id=42", everything, true, func(f *Filter, v []string, _ moment) error {
		f.Arg = v
		return nil
	}},
	{"args", "JSON", "with exactly these arguments: [42,\"de\"]", everything, false, func(f *Filter, v []string, _ moment) error {
		list, ok := array([]byte(v[0]))
		if !ok {
			return errors.New(`not a JSON array; write all arguments, such as [42,"de"]`)
		}
		f.Args = list
		return nil
	}},
	{"match", "regexp", "if the arguments as JSON without blanks match", everything, false, func(f *Filter, v []string, _ moment) (err error) {
		f.Match, err = regexp.Compile(v[0])
		return err
	}},
	{"since", "time", "%s then or later: 2h, 10:00, yesterday, RFC 3339", everything, false, func(f *Filter, v []string, at moment) (err error) {
		f.Since, err = at.parse(v[0])
		return err
	}},
	{"until", "time", "%s earlier", everything, false, func(f *Filter, v []string, at moment) (err error) {
		f.Until, err = at.parse(v[0])
		return err
	}},
	{"retried", "no|yes|any", "those retried before, or not", Failures, false, func(f *Filter, v []string, _ moment) error {
		f.Retried = v[0]
		return nil
	}},
}

// Words returns the conditions for jobs of a kind.
func Words(kind Kind) []Word {
	var fitting []Word
	for _, w := range words {
		if w.kinds&kind != 0 {
			if strings.HasPrefix(w.Help, "%s") {
				w.Help = fmt.Sprintf(w.Help, when[kind])
			}
			fitting = append(fitting, w)
		}
	}
	return fitting
}

// WordError is a condition that cannot be read.
type WordError struct {
	Word, Value string
	Reason      error
}

func (e *WordError) Error() string { return fmt.Sprintf("%s %q: %s", e.Word, e.Value, e.Reason) }
func (e *WordError) Unwrap() error { return e.Reason }

// Parse reads the conditions among values for jobs of a kind; empty ones count as missing. Times without a
// zone are in that of now. The error is a *WordError.
func Parse(values url.Values, kind Kind, now time.Time) (Filter, error) {
	var f Filter
	for _, w := range Words(kind) {
		given := slices.DeleteFunc(slices.Clone(values[w.Name]), func(v string) bool { return v == "" })
		if len(given) == 0 {
			continue
		}
		var err error
		if len(given) > 1 && !w.many {
			err = errors.New("it is given twice")
		} else {
			err = w.set(&f, given, moment{now, kind == Delayed})
		}
		if err != nil {
			return Filter{}, &WordError{w.Name, given[len(given)-1], err}
		}
	}
	return f, f.check(kind)
}

// Given returns the conditions among values for jobs of a kind, without empty ones.
func Given(values url.Values, kind Kind) url.Values {
	given := url.Values{}
	for _, w := range Words(kind) {
		for _, v := range values[w.Name] {
			if v != "" {
				given.Add(w.Name, v)
			}
		}
	}
	return given
}

// Each calls do for each condition, in a fixed order.
func Each(values url.Values, do func(word, value string)) {
	for _, w := range words {
		for _, v := range values[w.Name] {
			do(w.Name, v)
		}
	}
}

// Text describes conditions for people: class Mail*, since 10:00.
func Text(values url.Values) string {
	var said []string
	Each(values, func(word, value string) { said = append(said, word+" "+value) })
	return strings.Join(said, ", ")
}

// split cuts values at commas; a comma after a backslash is one of the value.
func split(values []string) (parts []string) {
	for _, value := range values {
		part := ""
		for {
			text, rest, more := strings.Cut(value, ",")
			if more && strings.HasSuffix(text, `\`) {
				part, value = part+strings.TrimSuffix(text, `\`)+",", rest
				continue
			}
			if parts = append(parts, part+text); !more {
				break
			}
			part, value = "", rest
		}
	}
	return parts
}

// Literal returns the condition for exactly this class or queue.
func Literal(name string) string {
	if selector.IsPattern(name) || strings.HasPrefix(name, "!") {
		var b strings.Builder
		for _, c := range []byte(name) {
			if strings.IndexByte(`*?[\`, c) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		if name = b.String(); name[0] == '!' {
			name = `[\!]` + name[1:]
		}
	}
	return strings.ReplaceAll(name, ",", `\,`)
}
