package config

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/schedule"
)

var update = flag.Bool("update", false, "write the columns of docs/configuration.md that follow from the keys")

// rows returns the tables of docs/configuration.md that have the given columns,
// cells trimmed.
func rows(t *testing.T, columns string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	var found [][]string
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == columns:
			inside = true
		case !strings.HasPrefix(line, "|"):
			inside = false
		case inside && !strings.HasPrefix(line, "|---"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			found = append(found, cells)
		}
	}
	return found
}

func quoted(values ...string) string {
	if len(values) == 0 || values[0] == "" {
		return "none"
	}
	return "`" + strings.Join(values, "`, `") + "`"
}

func TestDocumentation(t *testing.T) {
	t.Parallel()
	t.Run("its rows of keys are those of the code", func(t *testing.T) {
		t.Parallel()
		const page, head = "../../docs/configuration.md", "| Key | Meaning | Unit | Default | Environment | Flag |"
		var want []string
		said := map[string][]string{}
		for _, cells := range rows(t, head) {
			require.Len(t, cells, 6)
			require.NotEmpty(t, cells[1])
			require.NotEmpty(t, cells[2])
			said[cells[0]] = cells
		}
		for _, k := range keys() {
			variables := k.env
			if len(variables) == 0 {
				variables = k.variables()
			}
			flags := []string{"--" + k.flagName()}
			if k.flag == noFlag {
				flags = nil
			}
			if k.short != "" {
				flags = append([]string{"-" + k.short}, flags...)
			}
			cells := said[quoted(k.name)]
			require.NotNil(t, cells, "docs/configuration.md says nothing of %s: add | `%[1]s` | meaning | unit | | | |, and run the test with -update", k.name)
			want = append(want, "| "+strings.Join([]string{cells[0], cells[1], cells[2], quoted(k.def), quoted(variables...), quoted(flags...)}, " | ")+" |")
		}
		// The rows of each table follow its head; a table has those that the page lists there.
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		var made []string
		inside, next := false, 0
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			inside = line == head || inside && strings.HasPrefix(line, "|")
			if inside && strings.HasPrefix(line, "| `") {
				require.Less(t, next, len(want), "docs/configuration.md has a key twice, or one that does not exist")
				line, next = want[next], next+1
			}
			made = append(made, line+"\n")
		}
		if *update {
			require.NoError(t, os.WriteFile(page, []byte(strings.Join(made, "")), 0o644))
			return
		}
		require.Equal(t, string(text), strings.Join(made, ""), "go test ./internal/config -run TestDocumentation -update")
	})

	for what, want := range map[string]struct {
		header string
		fields []string
	}{
		"a handler":         {"| Field | Meaning | Unit | Default |", new(Handler).fields().names()},
		"a handler's lock":  {"| Field of `lock` | Meaning | Unit | Default |", new(HandlerLock).fields().names()},
		"a schedule":        {"| Field of a schedule | Meaning | Unit | Default |", scheduleRules(new(schedule.Definition)).names()},
		"a handler's retry": {"| Field of `retry` | Meaning | Unit | Default |", new(HandlerRetry).fields().names()},
		"a runner":          {"| Field of a runner | Meaning | Unit | Default |", new(Runner).fields().names()},
		"a long job":        {"| Field of `long_job` | Meaning | Unit | Default |", new(HandlerLongJob).fields().names()},
		"a store":           {"| Field of a store | Meaning | Unit | Default |", storeFields},
	} {
		t.Run("it lists the fields of "+what, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, cells := range rows(t, want.header) {
				require.Len(t, cells, 4)
				got = append(got, strings.Trim(cells[0], "`"))
			}
			require.Equal(t, want.fields, got)
		})
	}

	t.Run("it links to a sample that exists", func(t *testing.T) {
		t.Parallel()
		require.FileExists(t, "../../docs/../configs/resqued.yaml")
	})
}
