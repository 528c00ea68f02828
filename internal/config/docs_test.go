package config

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	t.Run("it lists the keys of the code, in order, with default, variable and flag", func(t *testing.T) {
		t.Parallel()
		var want [][]string
		for _, k := range keys {
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
			want = append(want, []string{quoted(k.name), quoted(k.def), quoted(variables...), quoted(flags...)})
		}
		var got [][]string
		for _, cells := range rows(t, "| Key | Meaning | Unit | Default | Environment | Flag |") {
			require.Len(t, cells, 6)
			require.NotEmpty(t, cells[1])
			require.NotEmpty(t, cells[2])
			got = append(got, []string{cells[0], cells[3], cells[4], cells[5]})
		}
		require.Equal(t, want, got)
	})

	for what, want := range map[string]struct {
		header string
		fields []string
	}{
		"a handler":         {"| Field | Meaning | Unit | Default |", handlerFields},
		"a handler's lock":  {"| Field of `lock` | Meaning | Unit | Default |", lockFields},
		"a schedule":        {"| Field of a schedule | Meaning | Unit | Default |", scheduleFields},
		"a handler's retry": {"| Field of `retry` | Meaning | Unit | Default |", retryFields},
		"a runner":          {"| Field of a runner | Meaning | Unit | Default |", runnerFields},
		"a long job":        {"| Field of `long_job` | Meaning | Unit | Default |", longJobFields},
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
