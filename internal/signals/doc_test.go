package signals

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/signals.md")

const page = "../../docs/signals.md"

var columns = []struct {
	head   string
	intent Intent
}{
	{"TERM, INT", Kill},
	{"QUIT", Drain},
	{"USR1", Abort},
	{"USR2", Pause},
	{"CONT", Resume},
	{"HUP", Reload},
}

// TestDocumentation keeps docs/signals.md true: its tables are these tables.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	want := string(text)
	for name, table := range map[string]string{
		"master": markdown(masterTable, Starting, Running, Paused, Draining, Killing),
		"worker": markdown(workerTable, Starting, Waiting, Running, Paused, Retiring, Draining, Killing),
		"dev":    markdownDev(),
	} {
		begin, end := "<!-- "+name+" table -->\n", "<!-- end -->\n"
		before, rest, found := strings.Cut(want, begin)
		require.True(t, found, "%s has no mark %q", page, begin)
		_, after, found := strings.Cut(rest, end)
		require.True(t, found, "%s has no mark %q after %q", page, end, begin)
		want = before + begin + table + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text), "run: go test ./internal/signals -update")
}

func markdown(table Table, states ...State) string {
	var b strings.Builder
	b.WriteString("| state |")
	for _, c := range columns {
		b.WriteString(" " + c.head + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, state := range states {
		b.WriteString("| " + string(state) + " |")
		for _, c := range columns {
			b.WriteString(" " + cell(table, state, c.intent) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func markdownDev() string {
	var b strings.Builder
	b.WriteString("| state | INT (^C) |\n|---|---|\n")
	for _, state := range []State{Starting, Running, Paused, Draining, Killing} {
		fmt.Fprintf(&b, "| %s | %s |\n", state, cell(masterTable, state, Interrupt))
	}
	return b.String()
}

// cell says one step in words.
func cell(table Table, state State, intent Intent) string {
	step := table.step(state, intent, Again)
	text := string(step.Do)
	switch {
	case step.Do == Ignore:
		return "–"
	case step.Do == Enter:
		text = string(step.Next)
	case step.Do == KillJobs && step.Next != state:
		text += ", then " + string(step.Next)
	case step.Do == Reread && state == Paused:
		text += ", stay paused"
	}
	if table.step(state, intent, 0) != step {
		text = fmt.Sprintf("again ≥ %.0f s later: %s", Again.Seconds(), text)
	}
	return text
}
