package top

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

const (
	// enterScreen: the alternate screen, no cursor, no wrapped lines.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	// leaveScreen undoes that.
	leaveScreen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// terminal is the screen, and the state to which its terminal goes back.
type terminal struct {
	in, out *os.File
	before  *term.State
	ours    bool
	drawn   []string
	width   int
	height  int
}

// newTerminal takes over a terminal.
func newTerminal(in, out *os.File) (*terminal, error) {
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	t := &terminal{in: in, out: out, before: before}
	return t, t.enter()
}

// enter makes the terminal ours.
func (t *terminal) enter() error {
	if _, err := term.MakeRaw(int(t.in.Fd())); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	t.ours, t.drawn = true, nil
	return t.write(enterScreen)
}

// leave gives the terminal back as it was.
func (t *terminal) leave() {
	if !t.ours {
		return
	}
	t.ours = false
	_ = t.write(leaveScreen)
	_ = term.Restore(int(t.in.Fd()), t.before)
}

// size returns how large the screen is, that of the first terminals if it does not say.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// draw shows lines, of which there are no more than rows. It writes those that have changed, in
// one write so that nothing flickers.
func (t *terminal) draw(lines []string, width, height int) error {
	var b strings.Builder
	if width != t.width || height != t.height || t.drawn == nil {
		t.width, t.height, t.drawn = width, height, nil
		b.WriteString("\x1b[2J")
	}
	for i := range max(len(lines), len(t.drawn)) {
		line := ""
		if i < len(lines) {
			line = lines[i]
		}
		if i < len(t.drawn) && t.drawn[i] == line || i >= len(t.drawn) && line == "" {
			continue
		}
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[2K%s", i+1, line)
	}
	t.drawn = lines
	if b.Len() == 0 {
		return nil
	}
	return t.write(b.String())
}

func (t *terminal) write(text string) error {
	if _, err := t.out.WriteString(text); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	return nil
}
