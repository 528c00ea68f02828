package top

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/view"
)

func TestAway(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(1))
	m.Asked(noon.Add(-9 * time.Second))
	require.Contains(t, plain(m, 80, 24), "Redis has not answered for 9s")
	m.Away("connection refused", noon.Add(-12*time.Second))
	m.Asked(noon)
	m.Away("i/o timeout\x1b[2J", noon)
	screen := plain(m, 80, 24)
	require.Contains(t, screen, `Redis away for 12s: i/o timeout\x1b[2J`)
	require.Contains(t, screen, "a      run", "the last that was seen stays")
	m.Take(snapshot(1), 7*time.Second)
	require.NotContains(t, plain(m, 80, 24), "away")
	require.Contains(t, plain(m, 80, 24), "every 7s, to spare Redis")
	m.Asked(noon)
	require.NotContains(t, plain(m, 80, 24), "not answered")
}

func TestHelp(t *testing.T) {
	t.Parallel()
	m := newTest(snapshot(1))
	press(m, "?")
	for _, size := range [][2]int{{60, 20}, {100, 30}} {
		screen := plain(m, size[0], size[1])
		require.Contains(t, screen, "Any key goes back.")
		require.NotContains(t, screen, "…")
	}
	require.Equal(t, Command{}, press(m, "q"))
	require.False(t, m.help)
	require.Equal(t, Command{Kind: Quit}, press(m, "q"))
}

func TestForeignTextIsEscaped(t *testing.T) {
	t.Parallel()
	evil := "x\x1b]0;owned\x07\r\n\u202e"
	s := snapshot()
	s.Queues = []*view.Queue{{Queue: evil, State: evil, Why: evil, Problem: evil}}
	s.Workers = []*view.Worker{{Worker: evil, Host: evil, State: evil, Processes: []view.Process{{Proc: evil, State: evil}}}}
	j := job(evil, "p", evil, 1)
	j.Args, j.Queue, j.Worker, j.State = json.RawMessage(evil), evil, evil, evil
	s.Jobs = []*view.Job{j}
	m := newTest(s)
	m.Where, m.Namespace = evil, evil
	m.Away(evil, noon)
	for pane := range panes {
		press(m, Key(fmt.Sprint(pane+1)))
		requireHarmless(t, m)
	}
	press(m, "K")
	require.NotEmpty(t, m.question)
	requireHarmless(t, m)
	press(m, "n")
	m.Say(evil, true)
	requireHarmless(t, m)
}

func requireHarmless(t *testing.T, m *Model) {
	t.Helper()
	for line := range strings.SplitSeq(plain(m, 300, 40), "\n") {
		for _, r := range line {
			require.Truef(t, r >= ' ' && r != 0x7f && r != 0x202e, "%q", line)
		}
	}
}

// TestEveryScreenFits presses any keys at any size.
func TestEveryScreenFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newTest(snapshot(rapid.SliceOfN(rapid.Int64Range(0, 1e12), 0, 26).Draw(t, "sizes")...))
		all := []Key{"1", "2", "3", KeyTab, "j", "k", "s", "r", "/", "a", "日", KeyEnter, KeyEscape, " ", "p", "K", "y", "n", "?", "G", KeyPageUp, KeyPageDown, KeyBackspace}
		for _, k := range rapid.SliceOfN(rapid.SampledFrom(all), 0, 30).Draw(t, "keys") {
			m.Press(k)
			if rapid.Bool().Draw(t, "a snapshot comes") {
				m.Take(snapshot(rapid.SliceOfN(rapid.Int64Range(0, 50), 0, 26).Draw(t, "sizes")...), 0)
			}
			width, height := rapid.IntRange(0, 130).Draw(t, "width"), rapid.IntRange(0, 40).Draw(t, "height")
			screen := plain(m, width, height)
			lines := strings.Split(screen, "\n")
			if len(lines) > max(1, height) {
				t.Fatalf("%d lines on %d:\n%s", len(lines), height, screen)
			}
			for _, line := range lines {
				if view.Width(line) > width {
					t.Fatalf("%d columns on %d: %q", view.Width(line), width, line)
				}
			}
		}
	})
}
