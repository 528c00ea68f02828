package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/view"
)

const (
	// progressAfter is how long work takes before its progress is shown, progressEvery how often
	// a terminal shows it, progressLog how often a log does with -v.
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
	progressLog   = 10 * time.Second
)

// progressBar tells on standard error how far a verb is that changes many things. On a terminal
// that is one line which takes the place of the one before; elsewhere, with -v, a line each ten
// seconds. It is silent with -q, and for what takes less than a second.
type progressBar struct {
	stderr   io.Writer
	terminal bool // else lines
	silent   bool
	what     string // "enqueued"
	total    int    // 0: not known
	now      func() time.Time

	began, shown time.Time
	drawn        bool
}

// progressOf returns the progress of a verb, of which what is the past: "retried". Call done at
// the end.
func (a *cli) progressOf(what string, total int) *progressBar {
	terminal := isTerminal(a.stderr)
	return &progressBar{
		stderr: a.stderr, terminal: terminal, silent: a.flags.quiet || !terminal && !a.flags.verbose,
		what: what, total: total, now: time.Now, began: time.Now(),
	}
}

// at says how many are done.
func (p *progressBar) at(n int) {
	if p.silent {
		return
	}
	now := p.now()
	every := progressLog
	if p.terminal {
		every = progressEvery
	}
	if last := p.shown; last.IsZero() && now.Sub(p.began) < max(progressAfter, every) || now.Sub(last) < every {
		return
	}
	p.shown = now
	text := p.text(n, now)
	if !p.terminal {
		_, _ = io.WriteString(p.stderr, text+"\n")
		return
	}
	p.drawn = true
	columns, _ := terminalSize(p.stderr)
	if columns > 1 {
		text = view.Cut(text, columns-1)
	}
	_, _ = io.WriteString(p.stderr, "\r"+text+"\x1b[K")
}

// text returns one line: a bar where the total is known, the count, the rate and the rest.
func (p *progressBar) text(n int, now time.Time) string {
	rate := float64(n) / max(now.Sub(p.began).Seconds(), 0.001)
	count := view.Grouped(int64(n))
	bar, rest := "", ""
	if p.total > 0 {
		n = min(n, p.total)
		const width = 20
		full := n * width / p.total
		bar = "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "] "
		count += " of " + view.Grouped(int64(p.total))
		if rate > 0 {
			rest = ", " + view.Left(time.Duration(float64(p.total-n)/rate*float64(time.Second))) + " left"
		}
	}
	return fmt.Sprintf("%s%s %s, %s%s", bar, p.what, count, view.Rate(rate), rest)
}

// done removes the line from the terminal.
func (p *progressBar) done() {
	if p.drawn {
		_, _ = io.WriteString(p.stderr, "\r\x1b[K")
		p.drawn = false
	}
}
