package pages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"html/template"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// Limits of texts on a page, in bytes: any text may be as large as a payload.
const (
	maxLine  = 160
	maxArgs  = 72 // fits one line in most columns
	maxTitle = 400
	maxError = 500
	maxWhole = 64 << 10
)

var funcs = template.FuncMap{
	"name":    func(s string) string { return text(s, view.MaxName) },
	"line":    func(s string) string { return text(filter.Summary(s), maxLine) },
	"full":    func(s string) string { return text(s, maxTitle) },
	"whole":   func(s string) string { return wire.PrintableLines(s, maxWhole) },
	"args":    args,
	"id":      shortID,
	"dom":     dom,
	"daemon":  view.DaemonText,
	"of":      func(page, item any) part { return part{page, item} },
	"worker":  func(id string) string { return text(wire.WorkerText(id), view.MaxName) },
	"count":   count,
	"few":     few,
	"size":    view.Size,
	"rate":    rate,
	"percent": percent,
	"took":    took,
	"millis":  func(ms *float64) string { return took(millis(ms)) },
	"squeeze": squeeze,
	"secs":    func(s int64) string { return view.Age(time.Duration(s) * time.Second) },
	"left":    func(s int64) string { return left(time.Duration(s) * time.Second) },
	"plural":  plural,
	"deref":   deref,
	"shell":   view.Shell,
	"spark":   Spark,
	"chart":   func(c *Chart) template.HTML { return c.SVG(c.From.Location()) },
	"choose":  func(texts ...string) string { return cmp.Or(texts...) },
	"yes": func(b bool) string {
		if b {
			return "yes"
		}
		return "no"
	},
	"bar": bar,
	"sentence": func(s string) string {
		if s == "" {
			return ""
		}
		return strings.ToUpper(s[:1]) + s[1:]
	},
}

// text makes any text safe for a page: at most max bytes, with unprintable parts, such as invalid
// UTF-8 and marks that change the writing direction, escaped.
func text(s string, max int) string { return wire.Printable(s, max) }

// args cuts arguments in the middle: the beginning says which kind of job, the end often which
// job.
func args(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	return middle(wire.ShortArgs(string(raw)), maxArgs)
}

// middle cuts a text in its middle so that most bytes are left.
func middle(s string, most int) string {
	if len(s) <= most {
		return wire.Printable(s, 0)
	}
	head, tail := most*2/3, most/3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	from := len(s) - tail
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return wire.Printable(s[:head], 0) + " … " + wire.Printable(s[from:], 0)
}

// shortID shortens a long id to what is shown.
func shortID(id string) string {
	digest, _, _ := strings.Cut(id, "@") // the place is of no use to readers
	return wire.Printable(digest[:min(len(digest), view.ShortID)], view.MaxName)
}

// dom returns an element's id for a named thing, which so keeps its place and its tick.
func dom(kind, name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%s-%x", kind, h.Sum64())
}

// count groups the digits of a number.
func count(n any) string {
	switch n := n.(type) {
	case int:
		return view.Grouped(int64(n))
	case int64:
		return view.Grouped(n)
	case *int64:
		if n != nil {
			return view.Grouped(*n)
		}
	case *int:
		if n != nil {
			return view.Grouped(int64(*n))
		}
	}
	return "—"
}

// rate writes a rate, "—" if unknown.
func rate(perSecond *float64) string {
	switch {
	case perSecond == nil || math.IsNaN(*perSecond):
		return "—"
	case *perSecond == 0:
		return "0/s"
	}
	return view.Rate(*perSecond)
}

// percent writes a part of a whole.
func percent(part, all any) string {
	p, a := number(part), number(all)
	switch {
	case a <= 0:
		return "—"
	case p == 0:
		return "0 %"
	case p/a < 0.001:
		return "<0.1 %"
	case p/a < 0.1:
		return fmt.Sprintf("%.1f %%", 100*p/a)
	}
	return fmt.Sprintf("%.0f %%", 100*p/a)
}

func number(n any) float64 {
	switch n := n.(type) {
	case int:
		return float64(n)
	case int64:
		return float64(n)
	case float64:
		return n
	case time.Duration:
		return float64(n)
	}
	return 0
}

// bar draws a part of a whole.
func bar(part, all any, what string) template.HTML {
	n := 0
	if a := number(all); a > 0 {
		n = int(math.Round(100 * min(1, max(0, number(part)/a))))
	}
	return template.HTML(fmt.Sprintf( //nolint:gosec // a number, and a text of a template
		`<svg class="bar-of" role="meter" aria-label="%s" aria-valuemin="0" aria-valuemax="100" aria-valuenow="%d" aria-valuetext="%s"><rect width="%d%%" height="6"/></svg>`,
		template.HTMLEscapeString(what), n, percent(part, all), n))
}

// took writes how long something has taken, with the digits that matter.
func took(d time.Duration) string {
	switch {
	case d <= 0:
		return "—"
	case d < time.Millisecond:
		return "<1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return left(d)
}

// left is view.Left without a second unit that is zero.
func left(d time.Duration) string {
	said := view.Left(d)
	for _, zero := range []string{"00s", "00m", "00h"} {
		if short := strings.TrimSuffix(said, zero); short != "" {
			said = short
		}
	}
	return said
}

func plural(count any, what string) string {
	n := int64(number(count))
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return view.Grouped(n) + " " + what + "s"
}

// deref returns a number, 0 if it is unknown.
func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// written writes an instant, a time or a pointer to one, with words for it and itself as a tooltip.
func (f *Frame) written(at any, words func(t time.Time) string) template.HTML {
	t, _ := at.(time.Time)
	if p, ok := at.(*time.Time); ok && p != nil {
		t = *p
	}
	if t.IsZero() {
		return "—"
	}
	return f.clock(t, words(t))
}

// Ago writes an instant as its age.
func (f *Frame) Ago(at any) template.HTML {
	return f.written(at, func(t time.Time) string {
		if d := f.Now.Sub(t); d >= 0 {
			return view.Age(d) + " ago"
		}
		return "in " + left(t.Sub(f.Now))
	})
}

// Old writes an instant as its age alone.
func (f *Frame) Old(at any) template.HTML {
	return f.written(at, func(t time.Time) string { return view.Since(t, f.Now) })
}

// Until writes the time left until an instant.
func (f *Frame) Until(at any) template.HTML {
	return f.written(at, func(t time.Time) string {
		if !t.After(f.Now) {
			return "due"
		}
		return "in " + left(t.Sub(f.Now))
	})
}

// Clock writes an instant as clock time, with the day if it is not today.
func (f *Frame) Clock(at any) template.HTML { return f.written(at, f.moment) }

// read writes how long before the page something was read.
func (f *Frame) read(at time.Time) template.HTML {
	made := f.Made
	if made.IsZero() {
		made = f.Now
	}
	d := made.Sub(at)
	if d < time.Second {
		return f.clock(at, "just now")
	}
	return f.clock(at, view.Age(d)+" ago")
}

// moment is a clock time, with the day if it is not today.
func (f *Frame) moment(t time.Time) string {
	t = t.In(f.Now.Location())
	form := "15:04:05"
	if t.YearDay() != f.Now.YearDay() || t.Year() != f.Now.Year() {
		form = "2 Jan 15:04:05"
	}
	return t.Format(form)
}

func (f *Frame) clock(t time.Time, shown string) template.HTML {
	t = t.In(f.Now.Location())
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // times only
		t.UTC().Format(time.RFC3339), t.Format("Mon 2 Jan 2006 15:04:05 MST"), template.HTMLEscapeString(shown)))
}

// fewServers is how many of a queue's workers its page lists.
const fewServers = 20

func few(all []view.QueueServer) []view.QueueServer { return all[:min(len(all), fewServers)] }
