package top

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// maxFilter bounds a filter in bytes.
const maxFilter = 100

// Model is what is shown, and how. It does no input and output and knows no time but that which
// it is told.
type Model struct {
	// Where and Namespace name what is looked at, Every is how often.
	Where, Namespace string
	Every            time.Duration
	// KillAfter is how long a killed job may take before its process has to go.
	KillAfter time.Duration
	// Colours may be used.
	Colours bool

	snap  *view.Snapshot
	rates rates
	// slowed is the interval if it is longer than Every.
	slowed time.Duration
	// away is since when there is no answer, why says what the last try met.
	away time.Time
	why  string
	// begun is when the snapshot was begun that is under way; zero = none is.
	begun time.Time

	pane   int
	panes  [panes]paneState
	rows   [panes][]row // sorted; of the others the filter leaves nothing
	page   int          // how many rows the last screen had room for
	filter string
	typing bool
	frozen bool
	help   bool
	// question waits for y, which gives asked.
	question string
	asked    Command
	note     string
	alarm    bool // the note tells of trouble
}

// paneState is how one pane is shown.
type paneState struct {
	sort int
	back bool
	// key is that of the selected row, place where that stands.
	key   string
	place int
	top   int // the first row on the screen
	// natural is how wide the columns were at most, on a screen of width columns: they do not
	// shrink with each snapshot, so that the eye finds them where they were.
	natural []int
	width   int
}

// NewModel returns a model that has seen nothing yet.
func NewModel(m Model) *Model {
	for i := range m.panes {
		m.panes[i].sort = firstSort[i]
	}
	m.page = 1
	return &m
}

// Take takes over a snapshot. What is frozen stays as it is. Slowed is the interval to the next
// one if it is longer than that which was asked for, else 0.
func (m *Model) Take(s *view.Snapshot, slowed time.Duration) {
	m.away, m.why, m.begun, m.slowed = time.Time{}, "", time.Time{}, slowed
	if m.frozen {
		return
	}
	m.rates = m.rates.after(m.snap, s)
	m.snap = s
	m.arrange()
}

// Away notes that there was no answer.
func (m *Model) Away(why string, now time.Time) {
	if m.away.IsZero() {
		m.away = now
	}
	m.why, m.begun = why, time.Time{}
}

// Asked notes that a snapshot was begun.
func (m *Model) Asked(now time.Time) { m.begun = now }

// Say shows what came of a command.
func (m *Model) Say(text string, trouble bool) { m.note, m.alarm = wire.Printable(text, 500), trouble }

// Frozen reports whether no snapshots are wanted.
func (m *Model) Frozen() bool { return m.frozen }

// arrange makes the rows of all panes from the snapshot.
func (m *Model) arrange() {
	if m.snap == nil {
		return
	}
	m.rows = [panes][]row{
		queuesPane:    queueRows(m.snap.Queues, m.rates.out),
		processesPane: processRows(m.snap.Workers, m.rates.process, m.snap.At),
		jobsPane:      jobRows(m.snap.Jobs),
	}
	filter := strings.ToLower(m.filter)
	if m.typing {
		m.panes[m.pane].width = 0
	}
	for i := range m.rows {
		if filter != "" {
			m.rows[i] = slices.DeleteFunc(m.rows[i], func(r row) bool { return !r.matches(filter) })
		}
		p := &m.panes[i]
		sortRows(m.rows[i], columns[i][p.sort], p.sort, p.back)
		m.follow(i)
	}
}

// follow keeps the selection on its row. When that has gone, the one that has come to its place
// is selected.
func (m *Model) follow(pane int) {
	p, rows := &m.panes[pane], m.rows[pane]
	if i := slices.IndexFunc(rows, func(r row) bool { return r.key == p.key }); i >= 0 && p.key != "" {
		p.place = i
		return
	}
	m.move(pane, p.place)
}

// move selects the row at a place, or the nearest one.
func (m *Model) move(pane, place int) {
	p, rows := &m.panes[pane], m.rows[pane]
	p.place, p.key = max(0, min(place, len(rows)-1)), ""
	if len(rows) > 0 {
		p.key = rows[p.place].key
	}
}

// selected returns the selected row, nil if there is none.
func (m *Model) selected() *row {
	if rows := m.rows[m.pane]; len(rows) > 0 {
		return &rows[m.panes[m.pane].place]
	}
	return nil
}

// Press does what a key means, and returns what the loop has to do.
func (m *Model) Press(k Key) Command {
	switch k {
	case KeyInterrupt:
		return Command{Kind: Quit}
	case KeySuspend:
		return Command{Kind: Suspend}
	case KeyRedraw:
		return Command{Kind: Redraw}
	}
	switch {
	case m.question != "":
		return m.answer(k)
	case m.typing:
		m.typeFilter(k)
		return Command{}
	case m.help:
		m.help = false
		return Command{}
	}
	m.note = ""
	if m.walk(k) {
		return Command{}
	}
	p := &m.panes[m.pane]
	switch k {
	case "q":
		return Command{Kind: Quit}
	case "?", "h":
		m.help = true
	case "s":
		p.sort, p.back = (p.sort+1)%len(columns[m.pane]), false
		m.arrange()
	case "r":
		p.back = !p.back
		m.arrange()
	case "/":
		m.typing = true
	case KeyEscape:
		m.filter = ""
		m.arrange()
	case " ":
		if m.frozen = !m.frozen; !m.frozen {
			return Command{Kind: Look}
		}
	case "p":
		return m.pause()
	case "K":
		m.kill()
	}
	return Command{}
}

// walk moves to another pane or row, and reports whether the key is for that.
func (m *Model) walk(k Key) bool {
	place := m.panes[m.pane].place
	switch k {
	case "1", "2", "3":
		m.pane = int(k[0] - '1')
		return true
	case KeyTab:
		m.pane = (m.pane + 1) % panes
		return true
	case KeyBackTab:
		m.pane = (m.pane + panes - 1) % panes
		return true
	case "j", KeyDown:
		place++
	case "k", KeyUp:
		place--
	case KeyPageDown:
		place += m.page
	case KeyPageUp:
		place -= m.page
	case "g", KeyHome:
		place = 0
	case "G", KeyEnd:
		place = len(m.rows[m.pane]) - 1
	default:
		return false
	}
	m.move(m.pane, place)
	return true
}

// typeFilter takes a key of a filter that is being typed; rows are filtered meanwhile.
func (m *Model) typeFilter(k Key) {
	switch {
	case k == KeyEnter:
		m.typing = false
		return
	case k == KeyEscape:
		m.typing, m.filter = false, ""
	case k == KeyClear:
		m.filter = ""
	case k == KeyBackspace:
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-n]
	case len(m.filter) < maxFilter:
		m.filter += k.text()
	}
	m.arrange()
}
