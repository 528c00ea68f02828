package top

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

// noon is when everything happens.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func queue(name string, size int64, state string) *view.Queue {
	return &view.Queue{Queue: name, Size: &size, State: state}
}

func job(class, proc, token string, age int64) *view.Job {
	return &view.Job{
		ID: token, Short: token, Class: class, Args: json.RawMessage(`[42]`), Queue: "mail", State: view.JobRuns, AgeS: age,
		Worker: "web-1~resqued:9120.0.3-k2f9:mail:,mail", Run: store.RunName{Proc: proc, Token: token}, Started: noon.Add(-time.Duration(age) * time.Second),
	}
}

// snapshot has three queues, two processes and three jobs.
func snapshot(sizes ...int64) *view.Snapshot {
	s := &view.Snapshot{
		At: noon, Processed: 1000, Failed: 3,
		Workers: []*view.Worker{{
			Worker: "web-1:4700", Kind: view.KindResqued, State: "running", Host: "web-1", Busy: 3, Threads: 8,
			Processes: []view.Process{
				{Proc: "p0", PID: 9120, State: "running", Busy: 2, Threads: 4, RSS: 64 << 20, Done: 100, Beat: noon.Add(-time.Second)},
				{Proc: "p1", PID: 9121, State: "retiring", Busy: 1, Threads: 4, RSS: 32 << 20, Done: 50, Beat: noon.Add(-2 * time.Second)},
			},
		}, {Worker: "ruby:7:mail", Kind: view.KindForeign, State: view.WorkerIdle, Host: "ruby", Threads: 1}},
		Jobs: []*view.Job{job("Import", "p0", "1", 600), job("Mail", "p0", "2", 5), job("Mail", "p1", "3", 60)},
	}
	for i, size := range sizes {
		s.Queues = append(s.Queues, queue(string(rune('a'+i)), size, view.QueueRuns))
	}
	return s
}

func newTest(s *view.Snapshot) *Model {
	m := NewModel(Model{Where: "redis://db:6379", Namespace: "resque", Every: time.Second, KillAfter: 10 * time.Second})
	m.Take(s, 0)
	return m
}

func press(m *Model, keys ...Key) (last Command) {
	for _, k := range keys {
		last = m.Press(k)
	}
	return last
}

// keys are the keys of the rows of the pane that is shown.
func keys(m *Model) (all []string) {
	for _, r := range m.rows[m.pane] {
		all = append(all, r.key)
	}
	return all
}

// plain is the screen without attributes.
func plain(m *Model, width, height int) string {
	text := strings.Join(m.Render(width, height, noon), "\n")
	for _, code := range []string{bold, dim, reverse, red, green, yellow, bold + ";4", "0"} {
		text = strings.ReplaceAll(text, "\x1b["+code+"m", "")
	}
	return text
}

func TestSorting(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(1, 30, 2))
	require.Equal(t, []string{"b", "c", "a"}, keys(m), "the longest queue first")
	press(m, "r")
	require.Equal(t, []string{"a", "c", "b"}, keys(m))
	press(m, "s", "s", "s", "s", "s")
	require.Equal(t, []string{"a", "b", "c"}, keys(m), "around to the first column, by name")
	require.Contains(t, plain(m, 80, 24), "QUEUE▴")
	press(m, "r")
	require.Equal(t, []string{"c", "b", "a"}, keys(m))
	require.Contains(t, plain(m, 80, 24), "QUEUE▾")

	press(m, "2")
	require.Equal(t, []string{"ruby:7:mail", "p0", "p1"}, keys(m))
	press(m, "s", "s", "s", "s")
	require.Equal(t, []string{"p0", "p1", "ruby:7:mail"}, keys(m), "by memory; what is not known is the least")
	press(m, "3")
	require.Equal(t, []string{"p0/1", "p1/3", "p0/2"}, keys(m), "the oldest first")
}

func TestTheSelectionStaysOnItsRow(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(30, 20, 10))
	press(m, "j")
	require.Equal(t, "b", m.selected().key)
	m.Take(snapshot(1, 500, 2), 0)
	require.Equal(t, "b", m.selected().key, "which is the first now")
	require.Zero(t, m.panes[m.pane].place)
	press(m, "G")
	require.Equal(t, "a", m.selected().key)
	m.Take(&view.Snapshot{At: noon, Queues: []*view.Queue{queue("b", 9, view.QueueRuns), queue("c", 8, view.QueueRuns)}}, 0)
	require.Equal(t, "c", m.selected().key, "its row has gone: the one that is nearest to its place")
	m.Take(&view.Snapshot{At: noon}, 0)
	require.Nil(t, m.selected())
	require.Equal(t, Command{}, press(m, "p", "j", "k", KeyPageDown, KeyEnd, KeyHome))
	require.Contains(t, plain(m, 80, 24), "no queues")
}

func TestWalking(t *testing.T) {
	t.Parallel()
	sizes := make([]int64, 26)
	for i := range sizes {
		sizes[i] = int64(100 - i)
	}
	m := newTest(snapshot(sizes...))
	screen := plain(m, 80, 14)
	require.Contains(t, screen, "1 of 26")
	for _, step := range []struct {
		key  Key
		want string
	}{{"j", "b"}, {KeyDown, "c"}, {"k", "b"}, {KeyPageDown, "j"}, {KeyPageUp, "b"}, {KeyEnd, "z"}, {"j", "z"}, {"g", "a"}, {"k", "a"}, {"G", "z"}} {
		press(m, step.key)
		require.Equal(t, step.want, m.selected().key, step.key)
		require.Contains(t, plain(m, 80, 14), "\n"+step.want+"  ", "it is on the screen")
	}
	press(m, KeyTab)
	require.Equal(t, processesPane, m.pane)
	press(m, KeyBackTab, KeyBackTab)
	require.Equal(t, jobsPane, m.pane)
	press(m, "1")
	require.Equal(t, "z", m.selected().key, "each pane keeps its selection")
}

func TestFilter(t *testing.T) {
	t.Parallel()
	s := snapshot()
	s.Queues = []*view.Queue{queue("mail", 3, view.QueueRuns), queue("Mailer", 2, view.QueueOrphan), queue("reports", 1, view.QueueRuns)}
	m := newTest(s)
	press(m, "G", "/", "m", "A", "i")
	require.Equal(t, []string{"mail", "Mailer"}, keys(m), "as it is typed, in upper or lower case")
	require.Contains(t, plain(m, 80, 24), "/mAi▏")
	press(m, "q", KeyBackspace, "l", "e", KeyEnter)
	require.Equal(t, []string{"Mailer"}, keys(m), "q was a character")
	require.Contains(t, plain(m, 80, 24), "/mAile")
	m.Take(s, 0)
	require.Equal(t, []string{"Mailer"}, keys(m), "it holds for what comes")
	require.Equal(t, Command{Kind: Pause, Queue: "Mailer", On: true}, press(m, "p"), "what is hidden is not selected")
	press(m, KeyEscape)
	require.Len(t, keys(m), 3)
	press(m, "/", "o", "r", "p", "h", KeyEnter)
	require.Equal(t, []string{"Mailer"}, keys(m), "in any column")
	press(m, "/", KeyClear, "ü", KeyEscape)
	require.Len(t, keys(m), 3)
	press(m, "/", "x", "y", KeyEnter)
	require.Contains(t, plain(m, 80, 24), "no queues with this text")
}

func TestPause(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(1, 2))
	require.Equal(t, Command{Kind: Pause, Queue: "b", On: true}, press(m, "p"))
	m.snap.Queues[1].State = view.QueuePaused
	require.Equal(t, Command{Kind: Pause, Queue: "b"}, press(m, "p"), "resume")
	require.Equal(t, Command{}, press(m, "3", "p"))
	require.Contains(t, plain(m, 80, 24), "p pauses a queue")
}

func TestTheKillQuestion(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(1))
	require.Equal(t, Command{}, press(m, "K"), "not of a queue")
	press(m, "3")
	for _, no := range []Key{"n", "q", KeyEnter, KeyEscape, "K", " "} {
		require.Equal(t, Command{}, press(m, "K"))
		require.Contains(t, plain(m, 200, 24), `Kill Import[42] (1)? y/n It is told to stop`)
		require.Contains(t, plain(m, 200, 24), "after 10s its process has to go. The 1 job beside it may finish first")
		require.Equal(t, Command{}, press(m, no), "anything but y means no: %s", no)
		require.Contains(t, plain(m, 80, 24), "nothing was killed")
	}
	asked := m.selected().job
	press(m, "K")
	m.Take(&view.Snapshot{At: noon, Jobs: []*view.Job{job("Other", "p1", "9", 9999)}}, 0)
	require.Equal(t, "Other", m.selected().job.Class)
	require.Equal(t, Command{Kind: Kill, Job: asked}, press(m, "y"), "the job that was asked about, whatever has moved since")
	require.Equal(t, Command{}, press(m, "y"), "once")

	press(m, "K")
	require.Contains(t, plain(m, 80, 24), "alone in its process")
	require.Equal(t, Command{Kind: Quit}, press(m, KeyInterrupt), "^C quits at a question, too")
	press(m, "n")

	foreign := job("Ruby", "", "", 9)
	foreign.State = view.JobForeign
	m.Take(&view.Snapshot{At: noon, Jobs: []*view.Job{foreign}}, 0)
	press(m, "K")
	require.Contains(t, plain(m, 80, 24), "only its own program")
	require.Equal(t, Command{}, press(m, "y"))
}

func TestTheQuestionIsSeenOnTheSmallestScreen(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(1))
	press(m, "3", "K")
	require.Contains(t, strings.Join(strings.Fields(plain(m, 20, 3)), " "), "Kill Import[42] (1)? y/n")
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(1))
	require.Equal(t, Command{}, press(m, " "))
	require.True(t, m.Frozen())
	m.Take(snapshot(700), 0)
	screen := plain(m, 80, 24)
	require.Contains(t, screen, "frozen")
	require.NotContains(t, screen, "700")
	require.Equal(t, Command{Kind: Look}, press(m, " "))
	m.Take(snapshot(700), 0)
	require.Contains(t, plain(m, 80, 24), "700")
}

func TestRates(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(500, 10))
	require.NotContains(t, plain(m, 100, 24), "+", "one snapshot tells of no speed")
	next := snapshot(480, 14)
	next.At, next.Processed, next.Failed = noon.Add(2*time.Second), 1500, 0
	next.Workers[0].Processes[0].Beat = noon.Add(9 * time.Second) // ten seconds later
	next.Workers[0].Processes[0].Done = 350
	m.Take(next, 0)
	screen := plain(m, 100, 24)
	require.Contains(t, screen, "done 1,500 +250.0/s  failed 0  busy 3/9", "a counter that was set back has no rate")
	require.Regexp(t, `a +run +480 .* 10\.0 `, screen)
	require.Regexp(t, `b +run +14 .* -2\.0 `, screen)
	press(m, "2")
	require.Regexp(t, `web-1 +9120 +running +2/4 +64M +350 +25\.0/s`, plain(m, 100, 24))
	last := snapshot(480, 14)
	last.At, last.Workers = noon.Add(3*time.Second), next.Workers
	m.Take(last, 0)
	require.Regexp(t, `9120 .* 350 +25\.0/s`, plain(m, 100, 24), "until the next beat")
	require.Regexp(t, `9121 .* 50 +— `, plain(m, 100, 24))
}
