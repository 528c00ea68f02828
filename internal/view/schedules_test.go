package view_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

// Messages about an invalid definition in Redis contain no arguments.
func TestInvalidSchedulesAreRedacted(t *testing.T) {
	const secret = "s3cr3t-4711"
	views(t, func(f *fixture) {
		broken := []string{
			`{"cron":"never","class":"Mail","args":["SECRET"],"queue":"q"}`, `{"cron":["* * * * *",5],"class":"Mail","args":{"a":"SECRET"},"queue":"q"}`,
			`{"cron":"0 3 * * *","class":"Mail","args":["SECRET"`, `{"cron":"0 3 * * *","class":5,"args":"SECRET","queue":"q"}`, `"SECRET"`, `SECRET`, `["SECRET"]`,
			`{"cron":"0 3 * * *","args":"SECRET","class":"Mail"}`, `{"every":"5 fortnights","class":"Mail","args":["SECRET"],"queue":"q"}`,
			`{"cron":"0 3 * * *","class":"Mail","args":["SECRET"],"queue":"q","if_running":"perhaps"}`, `{"class":"Mail","args":["SECRET"],"queue":"q"}`,
			`{"custom_job_class":"Own","class":"Mail","args":["SECRET"],"queue":"q"}`, `{"rails_env":"test","class":"Mail","args":["SECRET"],"queue":"q"}`,
		}
		for i, text := range broken {
			f.do("HSET", "persistent_schedules", fmt.Sprint("s", i), strings.ReplaceAll(text, "SECRET", secret))
		}
		rules, err := redact.Parse("*=args")
		require.NoError(f, err)
		all, _, err := view.Schedules(redact.Into(f.Context(), rules), f.store, view.ScheduleSources{Stored: true})
		require.NoError(f, err)
		require.Len(f, all, len(broken))
		for _, s := range all {
			require.NotEmpty(f, s.Invalid, s.Name)
			text, err := json.Marshal(s)
			require.NoError(f, err)
			require.NotContains(f, string(text), secret)
		}
	})
}

func TestSchedules(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		nightly := schedule.Definition{Name: "nightly", Class: "Report", Queue: "q", Args: json.RawMessage("[1]"), Cron: "0 3 * * *", TimeZone: "UTC"}
		often := schedule.Definition{Name: "often", Class: "Poll", Queue: "q", Every: "1h"}
		others, err := json.Marshal(schedule.Definition{Name: "theirs", Class: "Their", Queue: "q", Cron: "0 4 * * *"})
		require.NoError(f, err)
		f.do("HSET", "resqued:schedules", "theirs", others)
		f.do("HSET", "persistent_schedules", "stored", `{"cron":"*/5 * * * *","class":"Stored","args":[7],"queue":"q"}`, "bad", `{"cron":"never","class":"Bad","queue":"q"}`)
		tick := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
		f.do("HSET", "resqued:cron", "nightly", fmt.Sprintf("1 f-j 0 0 %d 0 enqueued 1 0", tick.UnixMilli()))

		sources := view.ScheduleSources{
			Configured: []schedule.Definition{nightly}, Program: []schedule.Definition{often}, Stored: true,
			Defaults: schedule.Defaults{Queue: func(string) string { return "" }},
		}
		all, now, err := view.Schedules(ctx, f.store, sources)
		require.NoError(f, err)
		require.WithinDuration(f, time.Now(), now, time.Minute)
		byName := map[string]*view.Schedule{}
		var names []string
		for _, s := range all {
			names, byName[s.Name] = append(names, s.Name), s
		}
		require.Equal(f, []string{"bad", "nightly", "often", "stored", "theirs"}, names)
		n := byName["nightly"]
		require.Equal(f, view.FromConfig, n.Source)
		require.Equal(f, "0 3 * * * UTC", n.When)
		require.True(f, n.Next.After(now))
		require.True(f, tick.Equal(*n.Last))
		require.Equal(f, "enqueued", *n.LastOutcome)
		require.Equal(f, schedule.IfRunningValues[0], n.IfRunning, "the default is shown")
		require.Equal(f, view.FromClass, byName["often"].Source)
		require.Equal(f, "every 1h", byName["often"].When)
		require.Equal(f, json.RawMessage("[]"), byName["often"].Args)
		require.Equal(f, view.FromOthers, byName["theirs"].Source)
		require.Equal(f, view.FromRedis, byName["stored"].Source)
		require.NotNil(f, byName["stored"].Next)
		require.NotEmpty(f, byName["bad"].Invalid)
		require.Nil(f, byName["bad"].Next, "its jobs are not enqueued")

		sources.Stored = false
		all, _, err = view.Schedules(ctx, f.store, sources)
		require.NoError(f, err)
		some, err := view.FindSchedules(all, []string{"stored", "often", "stored"})
		require.NoError(f, err)
		require.Len(f, some, 2, "each once")
		require.Equal(f, "persistent_schedules is off", some[0].Invalid)
		require.Nil(f, some[0].Next)
		_, err = view.FindSchedules(all, []string{"nope"})
		requireNotFound(f.T, err, "schedule", "nope", "nightly")
	})
}

func TestDelayed(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		c, err := client.New(client.Options{URL: f.url, Namespace: f.ns})
		require.NoError(f, err)
		defer func() { require.NoError(f, c.Close()) }()
		for i, class := range []string{"Late", "Soon", "Soon"} {
			_, err := c.Enqueue(ctx, class, []any{i}, client.Queue("q"+class), client.In(time.Duration(3-i)*time.Hour))
			require.NoError(f, err)
		}

		jobs, cursor, err := view.Delayed(ctx, f.store, matching(f.T, filter.Delayed), store.DelayedPlace{}, 10)
		require.NoError(f, err)
		require.Empty(f, cursor)
		require.Len(f, jobs, 3)
		next := jobs[0]
		require.Equal(f, "Soon", next.Class, "the one that comes next is first")
		require.Equal(f, json.RawMessage("[2]"), next.Args)
		require.Equal(f, "qSoon", next.Queue)
		require.Equal(f, "once", next.When)
		require.Equal(f, next.ID[:view.ShortID], next.Name)
		require.WithinDuration(f, time.Now().Add(time.Hour), *next.Next, time.Minute)

		some, cursor, err := view.Delayed(ctx, f.store, matching(f.T, filter.Delayed, "class", "Soon"), store.DelayedPlace{}, 1)
		require.NoError(f, err)
		require.Len(f, some, 1)
		place, err := store.ParseDelayedPlace(cursor)
		require.NoError(f, err)
		others, cursor, err := view.Delayed(ctx, f.store, matching(f.T, filter.Delayed, "class", "Soon"), place, 1)
		require.NoError(f, err)
		require.Empty(f, cursor)
		require.Len(f, others, 1)
		require.Equal(f, json.RawMessage("[1]"), others[0].Args)
		late, _, err := view.Delayed(ctx, f.store, matching(f.T, filter.Delayed, "queue", "qLate"), store.DelayedPlace{}, 10)
		require.NoError(f, err)
		require.Len(f, late, 1)

		found, err := view.FindDelayed(ctx, f.store, []string{next.Name, late[0].ID}, nil, matching(f.T, filter.Delayed))
		require.NoError(f, err)
		require.Len(f, found, 2)
		found, err = view.FindDelayed(ctx, f.store, nil, nil, matching(f.T, filter.Delayed, "class", "Soon"))
		require.NoError(f, err)
		require.Len(f, found, 2)
		_, err = view.FindDelayed(ctx, f.store, []string{"zz"}, []string{"nightly"}, matching(f.T, filter.Delayed))
		requireNotFound(f.T, err, "schedule or delayed job", "zz", "nightly", next.Name)
		_, err = view.FindDelayed(ctx, f.store, []string{""}, nil, matching(f.T, filter.Delayed))
		var several *view.AmbiguousError
		require.ErrorAs(f, err, &several)
		require.Len(f, several.Matches, 3)
	})
}
