package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// gap stands between two columns, and between the parts of the header.
const gap = "  "

// patience is after what time the header says that there is no answer yet.
const patience = 2 * time.Second

// hints are the keys, on the last line: those that are missed least stand before the last two.
const hints = "1 2 3 pane  p pause  K kill  / filter  s sort  r reverse  space freeze  j k move  ? help  q quit"

// helpText explains keys and columns.
const helpText = `1 2 3, Tab   queues, worker processes, running jobs
j k, arrows  move; PgUp, PgDn, Home (g), End (G)
s, r         sort by the next column; the other way round
/            rows with a text only; Enter keeps, Esc ends it
space        freeze what is shown, and leave Redis alone
p            pause the selected queue, or resume it
K            kill the selected job; it asks first
^L           draw the screen again
q, ^C        quit

BUSY     jobs that run, of how many: the cap of a queue
OUT/S    jobs by which the queue gets shorter in a second:
         those taken out less those put in; below 0 it grows
RATE     jobs a process does in a second, from beat to beat;
         RSS and DONE are as old as its BEAT
RECYCLE  after how many jobs the process is replaced

Any key goes back.`

// Render returns the screen as lines, of width columns at most each.
func (m *Model) Render(width, height int, now time.Time) []string {
	if width < 1 || height < 1 {
		return nil
	}
	if m.help {
		var lines []string
		for line := range strings.Lines(helpText) {
			lines = append(lines, view.Cut(strings.TrimRight(line, "\n"), width))
		}
		return lines[:min(len(lines), height)]
	}
	foot, head := m.footer(width), m.header(width, now)
	m.page = max(0, height-len(head)-len(foot)-2) // without tabs and titles
	head = append(head, m.tabs(width))
	// A question stays on the screen whatever else does not.
	foot = foot[:min(len(foot), height)]
	head = head[:min(len(head), height-len(foot))]
	lines := append(head, m.table(width, max(0, height-len(head)-len(foot)))...)
	for len(lines) < height-len(foot) {
		lines = append(lines, "")
	}
	return append(lines, foot...)
}

// header says what is looked at, and its totals.
func (m *Model) header(width int, now time.Time) []string {
	every := "every " + m.Every.String()
	if m.slowed > 0 {
		every = fmt.Sprintf("every %s, to spare Redis", m.slowed.Round(100*time.Millisecond))
	}
	state := part{text: every + gap + now.Format("15:04:05")}
	if m.frozen {
		state = part{text: "frozen", style: yellow}
	}
	name := "resqued top" + gap + wire.Printable(m.Where, maxText) + gap + wire.Printable(m.Namespace, maxText)
	if !m.frozen && m.slowed == 0 && view.Width(name+gap+state.text) > width {
		state.text = now.Format("15:04:05")
	}
	first := view.Cut(name, max(1, width-view.Width(state.text)-len(gap)))
	pad := max(1, width-view.Width(first)-view.Width(state.text))
	lines := []string{view.Cut(first, width)}
	if view.Width(first)+pad+view.Width(state.text) <= width {
		lines[0] = m.paint(bold, first) + strings.Repeat(" ", pad) + m.paint(state.style, state.text)
	}
	trouble := ""
	switch {
	case !m.away.IsZero():
		trouble = fmt.Sprintf("Redis away for %s: %s", view.Left(now.Sub(m.away)), wire.Printable(m.why, maxText))
	case !m.begun.IsZero() && now.Sub(m.begun) >= patience:
		trouble = fmt.Sprintf("Redis has not answered for %s", view.Left(now.Sub(m.begun)))
	}
	if trouble != "" {
		lines = append(lines, m.paint(red, view.Cut(trouble, width)))
	}
	return append(lines, m.flow(m.totals(), width)...)
}

// totals are the parts of the header that count.
func (m *Model) totals() []part {
	s := m.snap
	if s == nil {
		return nil
	}
	threads, busy, masters, processes, others := 0, 0, 0, 0, 0
	for _, w := range s.Workers {
		threads, busy = threads+w.Threads, busy+w.Busy
		switch {
		case w.State == view.WorkerGhost:
		case w.Kind == view.KindForeign:
			others++
		default:
			masters, processes = masters+1, processes+len(w.Processes)
		}
	}
	var waiting int64
	var oldest *int64
	some, paused := 0, 0
	for _, q := range s.Queues {
		if q.Size != nil && *q.Size > 0 {
			waiting += *q.Size
			some++
		}
		if q.State == view.QueuePaused {
			paused++
		}
		if q.OldestS != nil && (oldest == nil || *q.OldestS > *oldest) {
			oldest = q.OldestS
		}
	}
	crew := view.Plural(masters, "daemon") + gap + processCount(processes)
	if others > 0 {
		crew += gap + view.Plural(others, "other worker")
	}
	rate := func(what string, total int64, perSecond *float64, style string) part {
		text := what + " " + view.Grouped(total)
		if perSecond != nil {
			text += " +" + rateText(*perSecond)
		}
		if perSecond == nil || *perSecond == 0 {
			style = ""
		}
		return part{text, style}
	}
	parts := []part{
		rate("done", s.Processed, m.rates.done, green), rate("failed", s.Failed, m.rates.failed, red),
		{text: fmt.Sprintf("busy %d/%d", busy, threads)},
		{text: fmt.Sprintf("waiting %s in %s", view.Grouped(waiting), view.Plural(some, "queue"))},
	}
	if oldest != nil {
		parts = append(parts, part{text: "oldest " + view.Age(time.Duration(*oldest)*time.Second)})
	}
	if paused > 0 {
		parts = append(parts, part{fmt.Sprintf("paused %d", paused), yellow})
	}
	style := ""
	if masters+others == 0 && waiting > 0 {
		style = red
	}
	return append(parts, part{crew, style})
}

// processCount counts processes.
func processCount(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// tabs names the panes, and what is filtered.
func (m *Model) tabs(width int) string {
	var parts []part
	for i, name := range paneNames {
		style := ""
		if i == m.pane {
			style = bold + ";4"
		}
		parts = append(parts, part{fmt.Sprintf("%d %s %d", i+1, name, len(m.rows[i])), style})
	}
	if m.filter != "" && !m.typing {
		parts = append(parts, part{"/" + wire.Printable(m.filter, maxText), yellow})
	}
	if p, n := m.panes[m.pane], len(m.rows[m.pane]); n > m.page && m.page > 0 {
		parts = append(parts, part{fmt.Sprintf("%d of %d", p.place+1, n), dim})
	}
	return m.flow(parts, width)[0]
}

// footer has the question, what is being typed, what came of the last command, or the keys.
func (m *Model) footer(width int) []string {
	var style, text string
	switch {
	case m.question != "":
		style, text = yellow, m.question
	case m.typing:
		return []string{view.Cut("/"+wire.Printable(m.filter, maxText)+"▏ Enter keeps it, Esc ends it", width)}
	case m.note != "":
		style, text = bold, m.note
		if m.alarm {
			style = yellow
		}
	default:
		// As many keys as there is room for, the last two whatever happens.
		all := strings.Split(hints, gap)
		for len(all) > 2 && view.Width(strings.Join(all, gap)) > width {
			all = append(all[:len(all)-3], all[len(all)-2:]...)
		}
		return []string{m.paint(dim, view.Cut(strings.Join(all, gap), width))}
	}
	lines := wrap(text, width)
	for i := range lines {
		lines[i] = m.paint(style, lines[i])
	}
	return lines
}

// part is a text with an attribute.
type part struct{ text, style string }

// flow puts parts on as many lines as they need; there is one at least.
func (m *Model) flow(parts []part, width int) []string {
	lines, used := []string{""}, 0
	for _, p := range parts {
		n := view.Width(p.text)
		if used > 0 && used+len(gap)+n > width {
			lines, used = append(lines, ""), 0
		}
		last := len(lines) - 1
		if used > 0 {
			lines[last] += gap
			used += len(gap)
		}
		text := view.Cut(p.text, width-used)
		lines[last] += m.paint(p.style, text)
		used += view.Width(text)
	}
	return lines
}

// wrap breaks a text into lines at blanks.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && view.Width(line)+1+view.Width(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line = view.Cut(line+word, width)
	}
	return append(lines, line)
}

// paint gives a text attributes. Without colours only those that are none are used.
func (m *Model) paint(style, text string) string {
	if !m.Colours && (style == red || style == green || style == yellow) {
		style = ""
	}
	if style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}
