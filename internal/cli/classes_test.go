package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/webtest"
)

// TestClasses: the span before is compared, and the order is what was asked for.
func TestClasses(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	f := &surfaces{webtest.SetupOn(t, server), server.URL()}
	ran := func(ago time.Duration, class string, runs, failed uint64) {
		sum := &history.Sum{}
		for i := range runs {
			what := history.Processed
			if i < failed {
				what |= history.Failed
			}
			sum.Add(what, time.Millisecond, time.Second)
		}
		_, err := f.Store.AddHistory(t.Context(), []history.Series{{Minute: time.Now().Add(-ago).Unix() / 60, Sums: map[history.Name]*history.Sum{
			history.AllJobs(): sum, {Kind: history.Class, Name: class}: sum,
		}}})
		require.NoError(t, err)
	}
	ran(10*time.Minute, "Mail", 100, 1)
	ran(20*time.Minute, "Pay", 10, 5)
	ran(80*time.Minute, "Mail", 30, 20)
	var list struct {
		Items []struct {
			Class        string
			Runs, Failed int
			Before       *struct{ Runs, Failed int }
		}
	}
	require.NoError(t, json.Unmarshal(f.shell("classes", "--by", "failed", "-o", "json"), &list))
	require.Len(t, list.Items, 2)
	require.Equal(t, []string{"Pay", "Mail"}, []string{list.Items[0].Class, list.Items[1].Class})
	require.Zero(t, list.Items[0].Before.Runs)
	require.Equal(t, []int{100, 1, 30, 20}, []int{list.Items[1].Runs, list.Items[1].Failed, list.Items[1].Before.Runs, list.Items[1].Before.Failed})
	require.Contains(t, string(f.shell("classes", "--since", "90m", "--until", "70m")), "Mail ")
	page := f.Ask("GET", "/classes?since=90m&until=70m", "").Body.String()
	require.Contains(t, page, ">Mail<")
	require.NotContains(t, page, ">Pay<")
	items := f.Get("/api/v1/classes?since=90m&until=70m")["items"].([]any)
	require.Len(t, items, 1)
	require.InEpsilon(t, 30, items[0].(map[string]any)["runs"], 1e-9)
	require.Equal(t, 400, f.Ask("GET", "/classes?since=tomorrow", "").Code)
	require.Equal(t, 400, f.Ask("GET", "/api/v1/classes?until=10m", "").Code)
	require.NoError(t, json.Unmarshal(f.shell("classes", "--since", "21m", "--until", "19m", "-o", "json"), &list))
	require.Equal(t, []int{10, 0}, []int{list.Items[0].Runs, list.Items[0].Before.Runs}, "nothing counts twice")
	require.NoError(t, json.Unmarshal(f.shell("classes", "--since", "20d", "-o", "json"), &list))
	require.Nil(t, list.Items[0].Before, "the history does not reach there")
}
