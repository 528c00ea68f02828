package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// The panes.
const (
	queuesPane = iota
	processesPane
	jobsPane
	panes
)

// paneNames stand on the tabs.
var paneNames = [panes]string{"queues", "processes", "jobs"}

// Colours and other attributes, as ANSI codes.
const (
	bold    = "1"
	dim     = "2"
	reverse = "7"
	red     = "31"
	green   = "32"
	yellow  = "33"
)

// stateColours are those of the states of all panes.
var stateColours = map[string]string{
	view.QueueRuns: green, view.JobRuns: green, view.WorkerBusy: green,
	view.QueueStarved: yellow, view.QueueOrphan: yellow, view.QueuePaused: yellow, view.JobKilled: yellow,
	"starting": yellow, "waiting": yellow, "retiring": yellow, "draining": yellow, "killing": red,
	view.QueueBroken: red, view.WorkerStale: red, view.WorkerGhost: red,
}

// column is one column of a pane.
type column struct {
	title string
	// right columns are numbers: they are aligned to the right, never cut, and sorted from the
	// largest.
	right bool
	// least is to how little a column shrinks that is not right.
	least int
	// drop says which columns are left out first where there is no room: the largest; 0 = never.
	drop int
}

var columns = [panes][]column{
	queuesPane: {
		{title: "QUEUE", least: 12},
		{title: "STATE", least: 7},
		{title: "SIZE", right: true},
		{title: "OLDEST", right: true, drop: 2},
		{title: "BUSY", right: true},
		{title: "OUT/S", right: true, drop: 3},
		{title: "WHY", least: 10, drop: 1},
	},
	processesPane: {
		{title: "HOST", least: 10},
		{title: "PID", right: true},
		{title: "STATE", least: 8},
		{title: "BUSY", right: true},
		{title: "RSS", right: true, drop: 2},
		{title: "DONE", right: true, drop: 3},
		{title: "RATE", right: true, drop: 1},
		{title: "RECYCLE", right: true, drop: 4},
		{title: "BEAT", right: true, drop: 5},
	},
	jobsPane: {
		{title: "CLASS", least: 12},
		{title: "ARGS", least: 10, drop: 2},
		{title: "QUEUE", least: 8, drop: 3},
		{title: "STATE", least: 7, drop: 1},
		{title: "AGE", right: true},
		{title: "WORKER", least: 12, drop: 4},
	},
}

// firstSort is by which column a pane is sorted at first: what is largest, by name, what is oldest.
var firstSort = [panes]int{queuesPane: 2, processesPane: 0, jobsPane: 4}

// cell is one value of a row: what is shown, and by what numbers are sorted.
type cell struct {
	text   string
	num    float64
	colour string
}

// row is one line of a pane. Its key stays when its values change.
type row struct {
	key   string
	cells []cell
	queue *view.Queue
	job   *view.Job
}

// maxText bounds foreign text of a cell in bytes.
const maxText = 200

func text(s string) cell { return cell{text: wire.Printable(s, maxText)} }

func number(n float64, shown string) cell { return cell{text: shown, num: n} }

func stateCell(state string) cell {
	c := text(state)
	c.colour = stateColours[state]
	return c
}

// unknown is the cell of a number that is not known; it is sorted as the least.
func unknown() cell { return cell{num: -1} }

// queueRows returns the rows of the queues. Outs has how fast they get shorter.
func queueRows(queues []*view.Queue, outs map[string]float64) []row {
	rows := make([]row, len(queues))
	for i, q := range queues {
		size, oldest, out := unknown(), unknown(), unknown()
		if q.Size != nil {
			size = number(float64(*q.Size), view.Grouped(*q.Size))
		}
		if q.OldestS != nil {
			oldest = number(float64(*q.OldestS), q.OldestMark()+view.Age(time.Duration(*q.OldestS)*time.Second))
		}
		if rate, ok := outs[q.Queue]; ok {
			out = number(rate, fmt.Sprintf("%.1f", rate))
			if rate == 0 {
				out.text = "0"
			}
		}
		busy := strconv.Itoa(q.Busy)
		if q.Cap != nil {
			busy += "/" + strconv.Itoa(*q.Cap)
		}
		why := q.Why
		if q.Problem != "" {
			why = q.Problem
		}
		rows[i] = row{key: q.Queue, queue: q, cells: []cell{
			text(q.Queue), stateCell(q.State), size, oldest, number(float64(q.Busy), busy), out, text(why),
		}}
	}
	return rows
}

// processRows returns the rows of resqued's worker processes and of other workers.
func processRows(workers []*view.Worker, rates map[string]float64, now time.Time) []row {
	var rows []row
	for _, w := range workers {
		host := w.Host
		if host == "" {
			host, _, _ = strings.Cut(w.Worker, ":")
		}
		if w.Kind == view.KindForeign || w.State == view.WorkerGhost {
			pid := unknown()
			if name, err := wire.ParseWorkerID(w.Worker); err == nil {
				pid = number(float64(name.PID), strconv.Itoa(name.PID))
			}
			rows = append(rows, row{key: w.Worker, cells: []cell{
				text(host), pid, stateCell(w.State), number(float64(w.Busy), fmt.Sprintf("%d/%d", w.Busy, w.Threads)),
				unknown(), unknown(), unknown(), unknown(), unknown(),
			}})
			continue
		}
		for _, p := range w.Processes {
			rate, recycle := unknown(), unknown()
			if r, ok := rates[p.Proc]; ok {
				rate = number(r, rateText(r))
			}
			if p.RecycleIn != nil {
				recycle = number(float64(*p.RecycleIn), "in "+view.Grouped(int64(*p.RecycleIn)))
			}
			rows = append(rows, row{key: p.Proc, cells: []cell{
				text(host), number(float64(p.PID), strconv.Itoa(p.PID)), stateCell(p.State),
				number(float64(p.Busy), fmt.Sprintf("%d/%d", p.Busy, p.Threads)), number(float64(p.RSS), view.Size(p.RSS)),
				number(float64(p.Done), view.Grouped(int64(p.Done))), rate, recycle,
				number(now.Sub(p.Beat).Seconds(), view.Since(p.Beat, now)),
			}})
		}
	}
	return rows
}

// jobRows returns the rows of the running jobs.
func jobRows(jobs []*view.Job) []row {
	rows := make([]row, len(jobs))
	for i, j := range jobs {
		age := unknown()
		if !j.Started.IsZero() {
			age = number(float64(j.AgeS), view.Age(time.Duration(j.AgeS)*time.Second))
		}
		key := j.Worker
		if j.State != view.JobForeign {
			key = j.Run.String()
		}
		rows[i] = row{key: key, job: j, cells: []cell{
			text(j.Class), text(string(j.Args)), text(j.Queue), stateCell(j.State), age, text(view.WorkerText(j.Worker)),
		}}
	}
	return rows
}

// rateText formats a rate in jobs by the second.
func rateText(rate float64) string {
	if rate == 0 {
		return "0/s"
	}
	return view.Rate(rate)
}

// matches reports whether a row has a text in one of its cells, in upper or lower case.
func (r *row) matches(filter string) bool {
	return slices.ContainsFunc(r.cells, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), filter) })
}

// sortRows sorts rows by a column: numbers from the largest, texts from A, and the other way
// round with back. Rows that are equal in that are sorted by their keys.
func sortRows(rows []row, c column, i int, back bool) {
	slices.SortFunc(rows, func(a, b row) int {
		n := strings.Compare(a.cells[i].text, b.cells[i].text)
		if c.right {
			n = cmp.Compare(b.cells[i].num, a.cells[i].num)
		}
		if back {
			n = -n
		}
		return cmp.Or(n, strings.Compare(a.key, b.key))
	})
}
