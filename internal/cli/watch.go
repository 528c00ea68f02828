package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// watchEvery is the default interval of --watch, watchLeast the shortest.
	watchEvery = 2 * time.Second
	watchLeast = 100 * time.Millisecond
)

func (a *cli) addWatch(c *cobra.Command) {
	every := new(watchInterval)
	c.Flags().Var(every, "watch", fmt.Sprintf("refresh every `interval`, such as 5s (%s)", watchEvery))
	c.Flags().Lookup("watch").NoOptDefVal = watchEvery.String()
	run, check := c.RunE, c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && *every == watchInterval(watchEvery) {
			if _, err := time.ParseDuration(args[len(args)-1]); err == nil {
				return usage("", "%q is not a name; write --watch=%[1]s", args[len(args)-1])
			}
		}
		return check(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if *every == 0 {
			return run(c, args)
		}
		return a.watch(c, args, time.Duration(*every), func() error { return run(c, args) })
	}
}

type watchInterval time.Duration

func (w *watchInterval) String() string {
	if *w == 0 {
		return ""
	}
	return time.Duration(*w).String()
}

// Type names the kind of value in messages of pflag.
func (w *watchInterval) Type() string { return "interval" }

func (w *watchInterval) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < watchLeast {
		return fmt.Errorf("use a duration of %s or more, such as 2s", watchLeast)
	}
	*w = watchInterval(d)
	return nil
}

// watch calls show at each interval until an interrupt, which is not an error. On a terminal each
// result replaces the last; elsewhere they follow each other, as lines with -o json. Later outages
// of Redis or PostgreSQL are reported, and watch continues.
func (a *cli) watch(c *cobra.Command, args []string, every time.Duration, show func() error) error {
	ctx, stop := interruptible(c.Context())
	defer stop()
	c.SetContext(ctx)
	w := &watcher{cli: a, stdout: a.stdout, stderr: a.stderr, every: every, title: strings.Join(append([]string{c.CommandPath()}, args...), " ")}
	w.screen = a.forPeople() && isTerminal(a.stdout) && os.Getenv("TERM") != "dumb"
	defer w.end()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := w.show(show)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

type watcher struct {
	cli            *cli
	stdout, stderr io.Writer
	every          time.Duration
	title          string // the verb without its flags: one may hold a password
	screen         bool   // results replace each other
	begun          bool   // there was a result
	drawn          bool   // the screen is ours
	last           string
	notes          string    // below the last result
	away           time.Time // since when nothing has answered
}

func (w *watcher) show(show func() error) error {
	var out, notes bytes.Buffer
	a := w.cli
	a.stdout, a.stderr = &out, &notes
	if w.screen {
		a.width, _ = terminalSize(w.stdout)
	}
	err := show()
	a.stdout, a.stderr = w.stdout, w.stderr
	var code exitCode
	switch {
	case err == nil, errors.As(err, &code): // of --check: the result shows it
	case !w.begun || errors.Is(err, context.Canceled):
		if out.Len()+notes.Len() > 0 {
			_, _ = w.stderr.Write(notes.Bytes())
			_, _ = w.stdout.Write(out.Bytes())
		}
		return err
	default:
		return w.failed(err)
	}
	if !w.away.IsZero() {
		if !w.screen && a.flags.output != outJSON {
			a.note("it answers again, after %s", view.Left(time.Since(w.away)))
		}
		w.away = time.Time{}
	}
	if w.screen {
		w.last, w.notes = out.String(), notes.String()
		return w.draw("")
	}
	if text := notes.String(); text != w.notes {
		w.notes = text
		_, _ = io.WriteString(w.stderr, text)
	}
	between := ""
	switch {
	case !w.begun:
	case a.flags.yaml:
		between = "---\n"
	case a.flags.output == outTable, a.flags.output == outWide:
		between = "\n"
	}
	w.begun = true
	return a.printText(between + out.String())
}

func (w *watcher) failed(err error) error {
	first := w.away.IsZero()
	if first {
		w.away = time.Now()
	}
	if w.screen {
		p := asProblem(err)
		text := strings.Join(p.lines, "; ")
		if rdb.Unreachable(err) {
			text = fmt.Sprintf("no answer for %s: %s", view.Left(time.Since(w.away)), text)
		}
		return w.draw(w.cli.paint(red, wire.Printable(text, 500)))
	}
	if first {
		w.cli.report(err)
	}
	return nil
}

// draw writes the last result, below a title and perhaps trouble, as far as it fits. It overwrites
// lines in one write and clears only the rest of older ones, so that nothing flickers.
func (w *watcher) draw(trouble string) error {
	_, rows := terminalSize(w.stdout)
	lines := []string{fmt.Sprintf("%s  every %s, %s", wire.Printable(w.title, 200), w.every, time.Now().Format("15:04:05"))}
	if trouble != "" {
		lines = append(lines, trouble)
	}
	lines = append(lines, "")
	body := strings.TrimRight(w.last+w.notes, "\n")
	lines = append(lines, strings.Split(body, "\n")...)
	if rows > 1 && len(lines) > rows {
		more := len(lines) - rows + 1
		lines = append(lines[:rows-1], fmt.Sprintf("… %d more lines", more))
	}
	var b strings.Builder
	if !w.drawn {
		b.WriteString("\x1b[?25l\x1b[?7l\x1b[2J") // no cursor, no wrapped lines, an empty screen
		w.drawn = true
	}
	w.begun = true
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	return w.cli.printText(b.String())
}

// end restores the terminal, with the last result on it.
func (w *watcher) end() {
	if w.drawn {
		_ = w.cli.printText("\x1b[?7h\x1b[?25h\r\n")
	}
}
