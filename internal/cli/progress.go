package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/view"
)

const (
	// progressAfter is the time before progress is shown, progressEvery how often a terminal shows
	// it, progressLog how often a log does with -v.
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
	progressLog   = 10 * time.Second
)

// progressBar reports on standard error how far a verb is: on a terminal in one line, elsewhere,
// with -v, in a line each ten seconds. It is silent with -q and in the first second.
type progressBar struct {
	stderr   io.Writer
	terminal bool // else lines
	silent   bool
	what     string // "enqueued"
	total    int    // 0: unknown
	now      func() time.Time

	began, shown time.Time
	drawn        bool
}

// progressOf returns a verb's progress; what is its past tense: "retried". Call done at the end.
func (out *output) progressOf(what string, total int) *progressBar {
	terminal := isTerminal(out.stderr)
	return &progressBar{
		stderr: out.stderr, terminal: terminal, silent: out.flags.quiet || !terminal && !out.flags.verbose,
		what: what, total: total, now: time.Now, began: time.Now(),
	}
}

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

// text returns a line: a bar if the total is known, the count, the rate and the remaining time.
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

func (p *progressBar) done() {
	if p.drawn {
		_, _ = io.WriteString(p.stderr, "\r\x1b[K")
		p.drawn = false
	}
}

// interruptible returns a context that ends with the first ^C or TERM: a verb with many changes
// then stops between two steps and reports. A second signal ends the program.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// interrupted returns errInterrupted if a signal has cancelled a call.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}
