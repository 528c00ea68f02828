package pages

import (
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/view"
)

// Chart is values by time, each for a span of the same length.
type Chart struct {
	// Title describes the chart, also for screen readers.
	Title string
	// From is the start of the first span, Step the length of each.
	From time.Time
	Step time.Duration
	// Unit follows the numbers: "/s".
	Unit   string
	Series []Series
	Marks  []Mark
	// Empty is the text while there is nothing to draw.
	Empty string
}

// Series are the values of a line, NaN if unknown. The first one has an area below it.
type Series struct {
	Name   string
	Values []float64
	// Alert draws values above 0 in the colour of alerts.
	Alert bool
}

// Mark is an event at a time, such as a deploy.
type Mark struct {
	At   time.Time
	Text string
}

// The size of a chart in pixels; its width is the page's.
const (
	chartTop    = 10
	chartPlot   = 150
	chartBottom = 22
	chartHeight = chartTop + chartPlot + chartBottom
)

// Any reports whether there are at least two values to draw.
func (c *Chart) Any() bool {
	if c == nil {
		return false
	}
	all := 0
	for _, s := range c.Series {
		_, n := largest(s.Values)
		all += n
	}
	return all >= 2
}

// Nothing is the text of a chart without values.
func (c *Chart) Nothing() string {
	if c == nil || c.Empty == "" {
		return "Nothing is known of this span yet."
	}
	return text(c.Empty, maxTitle)
}

// largest returns the largest known value, and how many are known.
func largest(values []float64) (most float64, n int) {
	for _, v := range values {
		if known(v) {
			if n++; n == 1 || v > most {
				most = v
			}
		}
	}
	return most, n
}

func known(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (c *Chart) spans() (n int) {
	for _, s := range c.Series {
		n = max(n, len(s.Values))
	}
	return n
}

// To is the end of the last span.
func (c *Chart) To() time.Time { return c.From.Add(time.Duration(c.spans()) * c.Step) }

// top is the upper end of the scale, a round number, and the distance of its lines.
func (c *Chart) top() (top, step float64) {
	most := 0.0
	for _, s := range c.Series {
		if v, n := largest(s.Values); n > 0 {
			most = max(most, v)
		}
	}
	if most == 0 {
		return 1, 1
	}
	raw := most / 3
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if step = m * unit; step >= raw {
			break
		}
	}
	return math.Ceil(most/step) * step, step
}

// SVG draws the chart in steps. Lines and areas stretch with the page; texts do not.
func (c *Chart) SVG(zone *time.Location) template.HTML {
	n := c.spans()
	if n == 0 {
		return ""
	}
	top, step := c.top()
	y := func(v float64) float64 { return chartPlot * (1 - v/top) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" height="%d" width="100%%" role="img" aria-label="%s">`, chartHeight, template.HTMLEscapeString(text(c.Title, maxLine)+". "+c.Summary()))
	for v := 0.0; v <= top*1.001; v += step {
		at := chartTop + y(v)
		fmt.Fprintf(&b, `<line class="grid" x1="0" x2="100%%" y1="%.1f" y2="%.1f"/>`, at, at)
		if v > 0 {
			fmt.Fprintf(&b, `<text class="tick" x="0" y="%.1f">%s</text>`, at+12, template.HTMLEscapeString(c.amount(v)))
		}
	}
	fmt.Fprintf(&b, `<svg x="0" y="%d" width="100%%" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none" overflow="visible">`, chartTop, chartPlot, n, chartPlot)
	for i, s := range c.Series {
		values := s.Values
		if s.Alert { // don't draw zeros
			values = slices.Clone(values)
			for j, v := range values {
				if v == 0 {
					values[j] = math.NaN()
				}
			}
		}
		line, area := steps(values, y)
		class := "s" + strconv.Itoa(i)
		if s.Alert {
			class = "alert"
		} else if i == 0 {
			fmt.Fprintf(&b, `<path class="area" d="%s"/>`, area)
		}
		fmt.Fprintf(&b, `<path class="line %s" d="%s"/>`, class, line)
	}
	b.WriteString(`</svg>`)
	whole := c.To().Sub(c.From)
	place := func(t time.Time) float64 { return 100 * float64(t.Sub(c.From)) / float64(whole) }
	for _, m := range c.Marks {
		if x := place(m.At); x >= 0 && x <= 100 {
			fmt.Fprintf(&b, `<g class="mark"><line x1="%.2f%%" x2="%.2f%%" y1="%d" y2="%d"/><circle cx="%.2f%%" cy="%d" r="3"/><title>%s</title></g>`,
				x, x, chartTop, chartTop+chartPlot, x, chartTop, template.HTMLEscapeString(m.At.In(zone).Format("15:04:05")+" "+text(m.Text, maxLine)))
		}
	}
	for _, t := range ticks(c.From.In(zone), c.To().In(zone)) {
		x := place(t.at)
		anchor := "middle"
		if x < 4 {
			continue
		} else if x > 96 {
			anchor = "end"
		}
		fmt.Fprintf(&b, `<line class="grid" x1="%.2f%%" x2="%.2f%%" y1="%d" y2="%d"/><text class="tick" x="%.2f%%" y="%d" text-anchor="%s">%s</text>`,
			x, x, chartTop+chartPlot, chartTop+chartPlot+4, x, chartHeight-4, anchor, t.text)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers, and texts that are escaped
}

// steps returns the line through the values, with gaps, and the area below it.
func steps(values []float64, y func(float64) float64) (line, area string) {
	var l, a, part strings.Builder // part is the line since the last gap
	begun := 0
	end := func() {
		if part.Len() > 0 {
			l.WriteString(part.String())
			fmt.Fprintf(&a, "%sV%dH%dZ", part.String(), chartPlot, begun)
			part.Reset()
		}
	}
	for i, v := range values {
		if !known(v) {
			end()
			continue
		}
		at := strconv.FormatFloat(y(v), 'f', 1, 64)
		if part.Len() == 0 {
			begun = i
			fmt.Fprintf(&part, "M%d %sH%d", i, at, i+1)
		} else {
			fmt.Fprintf(&part, "V%sH%d", at, i+1)
		}
	}
	end()
	return l.String(), a.String()
}

type tick struct {
	at   time.Time
	text string
}

// ticks are four to eight round times.
func ticks(from, to time.Time) []tick {
	whole := to.Sub(from)
	for _, s := range []struct {
		step time.Duration
		form string
	}{
		{10 * time.Second, "15:04:05"},
		{30 * time.Second, "15:04:05"},
		{time.Minute, "15:04"},
		{2 * time.Minute, "15:04"},
		{5 * time.Minute, "15:04"},
		{10 * time.Minute, "15:04"},
		{15 * time.Minute, "15:04"},
		{30 * time.Minute, "15:04"},
		{time.Hour, "15:04"},
		{3 * time.Hour, "15:04"},
		{6 * time.Hour, "15:04"},
		{24 * time.Hour, "2 Jan"},
		{7 * 24 * time.Hour, "2 Jan"},
	} {
		if whole/s.step > 6 {
			continue
		}
		_, zone := from.Zone()
		shift := time.Duration(zone) * time.Second
		first := from.Add(shift).Truncate(s.step).Add(-shift)
		var all []tick
		for t := first; !t.After(to); t = t.Add(s.step) {
			if !t.Before(from) {
				all = append(all, tick{t, t.Format(s.form)})
			}
		}
		return all
	}
	return nil
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(math.Round(v/1e4)/100, 'f', -1, 64) + "M"
	case v >= 1e4:
		return strconv.FormatFloat(math.Round(v/1e2)/10, 'f', -1, 64) + "k"
	case v >= 100:
		return view.Grouped(int64(math.Round(v)))
	}
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

// seconds is the unit of run times. Less than a second is shown in milliseconds.
const seconds = " s"

func (c *Chart) amount(v float64) string {
	if c.Unit == seconds && v > 0 && v < 1 {
		return short(math.Round(v*1000)) + " ms"
	}
	if v >= 10 {
		return short(math.Round(v*10)/10) + c.Unit
	}
	return short(math.Round(v*100)/100) + c.Unit
}

// Last is the newest known value of a series with its unit.
func (c *Chart) Last(s Series) string {
	for _, v := range slices.Backward(s.Values) {
		if known(v) {
			return c.amount(v)
		}
	}
	return "—"
}

// Summary describes the chart in words.
func (c *Chart) Summary() string {
	var parts []string
	for _, s := range c.Series {
		if most, n := largest(s.Values); n > 0 {
			parts = append(parts, fmt.Sprintf("%s: now %s, at most %s", text(s.Name, 80), c.Last(s), c.amount(most)))
		}
	}
	return "The last " + left(c.To().Sub(c.From)) + ". " + strings.Join(parts, ". ") + "."
}

// JSON is what the script needs to show the value under the pointer.
func (c *Chart) JSON() string {
	type series struct {
		Name   string            `json:"name"`
		Values []json.RawMessage `json:"values"`
	}
	all := []series{}
	for _, s := range c.Series {
		values := make([]json.RawMessage, len(s.Values))
		for i, v := range s.Values {
			if known(v) { // a missing one is null
				values[i] = strconv.AppendFloat(nil, math.Round(v*1000)/1000, 'g', -1, 64)
			}
		}
		all = append(all, series{text(s.Name, 80), values})
	}
	out, _ := json.Marshal(struct { // none of it fails
		From   int64    `json:"from"`
		Step   int64    `json:"step"`
		Unit   string   `json:"unit"`
		Series []series `json:"series"`
	}{c.From.UnixMilli(), c.Step.Milliseconds(), c.Unit, all})
	return string(out)
}

// Spark draws a small line without a scale for a table cell.
func Spark(values []float64) template.HTML {
	const height = 18
	most, n := largest(values)
	if n < 2 {
		return ""
	}
	if most <= 0 {
		most = 1
	}
	line, area := steps(values, func(v float64) float64 { return 1 + (height-2)*(1-v/most) })
	return template.HTML(fmt.Sprintf( //nolint:gosec // numbers only
		`<svg class="spark" width="72" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true"><path class="area" d="%s"/><path class="line s0" d="%s"/></svg>`,
		height, len(values), height, area, line))
}
