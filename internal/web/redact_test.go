package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/web"
)

const secret = "tomato-4711"

// private puts the secret wherever arguments are.
func (f *fixture) private() {
	f.Helper()
	f.Fill("mail")
	payload := `{"class":"Mail","args":["harmless",{"token":"` + secret + `"},12345678901234567890]}`
	for range 3 {
		f.Do("RPUSH", "queue:mail", payload)
	}
	f.Do("RPUSH", "queue:mail", secret)
	record := `{"failed_at":"2026/11/24 01:02:03 UTC","payload":` + payload + `,"exception":"E","error":"e","backtrace":[],"worker":"w","queue":"mail"}`
	f.Do("RPUSH", "failed", record, record, secret)
	f.Do("RPUSH", "delayed:4102444800", strings.Replace(payload, "{", `{"queue":"q",`, 1), secret)
	f.Do("SADD", "workers", "ruby:8:mail")
	f.Do("SET", "worker:ruby:8:mail", `{"queue":"mail","run_at":"2026-01-20T14:56:21Z","payload":`+payload+`}`)
	for _, e := range []store.Event{
		{Kind: store.EventReleased, By: "ann", Via: "cli", Subject: "lock resque:lock:Mail:harmless", Text: "its state was: orphan", Count: 1},
		{Kind: store.EventLockLost, By: "d", Via: "daemon", Text: "Mail of queue mail: resqued: job lock lost: resque:locket:job_locks:Mail[harmless] is held by another or gone", Count: 1},
	} {
		require.NoError(f, f.Store.NoteEvent(f.Context(), e))
	}
	reply, err := f.Store.Exchange(f.Context(), store.ExchangeRequest{Proc: proc, Wants: []store.Want{
		{Token: redistest.Unique(), Worker: "web-1~resqued:9120.0.1-x:mail"},
		{Token: redistest.Unique(), Worker: "web-1~resqued:9120.0.2-x:mail"},
		{Token: redistest.Unique(), Worker: "web-1~resqued:9120.0.3-x:mail"},
	}, Queues: []store.Queue{{Name: "mail", Locked: true}}})
	require.NoError(f, err)
	require.NotEmpty(f, reply.Jobs)
}

// everything requests every route that shows something, for each thing that exists, and returns the
// answers by address.
func (f *fixture) everything() map[string]string {
	f.Helper()
	names := map[string][]string{"{queue}": {"mail", "q"}}
	for list, field := range map[string][2]string{
		"/api/v1/jobs": {"{id}", "id"}, "/api/v1/workers": {"{worker}", "worker"}, "/api/v1/locks": {"{key}", "key"}, "/api/v1/failed": {"{id}", "id"},
	} {
		for _, item := range f.Get(list)["items"].([]any) {
			names[list+field[0]] = append(names[list+field[0]], item.(map[string]any)[field[1]].(string))
		}
	}
	answers := map[string]string{}
	for _, r := range web.Table() {
		if r.Method != http.MethodGet {
			continue
		}
		paths := []string{r.Path}
		if where := placeholder.FindString(r.Path); where != "" {
			paths = nil
			list := strings.TrimSuffix(r.Path, "/"+where)
			if !strings.HasPrefix(list, "/api/v1") {
				list = "/api/v1" + list
			}
			for _, name := range append(names[list+where], names[where]...) {
				paths = append(paths, strings.Replace(r.Path, where, url.PathEscape(name), 1))
			}
		}
		for _, path := range paths {
			for _, query := range []string{"", "?view=flat", "?kind=locket", "?limit=500"} {
				answers[path+query] = f.Ask(http.MethodGet, path+query, "", func(r *http.Request) { r.Header.Set("Accept", "text/html") }).Body.String()
			}
		}
	}
	return answers
}

// Hidden arguments are in no answer, and no search finds them; the rest is as it was pushed.
func TestRedaction(t *testing.T) {
	t.Parallel()
	shows := func(answers map[string]string, what string) (at []string) {
		for path, text := range answers {
			if strings.Contains(text, what) {
				at = append(at, path)
			}
		}
		return at
	}
	open := setup(t)
	open.private()
	require.Greater(t, len(shows(open.everything(), secret)), 20, "the fixture has it in many places")

	rules, err := redact.Parse("Mail=args.1.token")
	require.NoError(t, err)
	role := web.Operator
	change := func(o *web.Options) {
		o.Redact = rules
		o.Who = func(*http.Request) (web.Visitor, error) { return web.Visitor{Name: "ann", Role: role}, nil }
		o.Checks.Schedules.Configured = []schedule.Definition{{Name: "nightly", Cron: "0 3 * * *", Class: "Mail", Queue: "runs", Args: json.RawMessage(`["harmless",{"token":"` + secret + `"}]`)}}
	}
	f := setup(t, change)
	f.private()
	answers := f.everything()
	assert.Empty(t, shows(answers, secret))
	assert.Greater(t, len(shows(answers, "[redacted]")), 20)
	assert.Contains(t, answers["/api/v1/queues/mail/jobs"], `"args":["harmless",{"token":"[redacted]"},12345678901234567890]`)

	t.Run("a search is not an oracle", func(t *testing.T) {
		for _, path := range []string{"/api/v1/queues/mail/jobs?match=", "/api/v1/failed?match=", "/queues/mail?match=", "/failed?view=flat&match=", "/failed?match=", "/api/v1/failed/groups?match="} {
			hit, miss := f.Ask(http.MethodGet, path+secret, "").Body.String(), f.Ask(http.MethodGet, path+strings.ToUpper(secret), "").Body.String()
			if strings.HasPrefix(path, "/api") {
				assert.JSONEq(t, miss, hit, path)
			}
			assert.NotContains(t, hit, "[redacted]", path)
		}
		assert.Contains(t, f.Ask(http.MethodGet, "/api/v1/failed?match=harmless", "").Body.String(), "[redacted]", "what is shown is found")
	})
	t.Run("nor is the key of a lock", func(t *testing.T) {
		locks, err := f.Redis.Keys(t.Context(), f.Namespace+":*"+secret+"*").Result()
		require.NoError(t, err)
		require.NotEmpty(t, locks)
		for _, key := range locks {
			answer := f.Ask(http.MethodGet, "/api/v1/locks/-?name="+url.QueryEscape(key), "")
			assert.Equal(t, http.StatusNotFound, answer.Code, answer.Body)
			assert.NotContains(t, strings.ReplaceAll(answer.Body.String(), url.QueryEscape(key), ""), "held")
		}
	})
	t.Run("acts are on what was pushed", func(t *testing.T) {
		var id string
		for _, item := range f.Get("/api/v1/failed")["items"].([]any) {
			if one := item.(map[string]any); one["class"] == "Mail" {
				id = one["id"].(string)
			}
		}
		before, err := f.Store.Length(t.Context(), "mail")
		require.NoError(t, err)
		v, _ := f.Post("/api/v1/failed/retry", `{"ids":["`+id+`"]}`)
		require.EqualValues(t, 1, v["count"])
		pushed, err := f.Store.Payloads(t.Context(), "mail", before, 1)
		require.NoError(t, err)
		require.Contains(t, string(pushed[0]), secret)
		_, code := f.Post("/api/v1/schedule/nightly/run", "")
		require.Equal(t, http.StatusOK, code)
		pushed, err = f.Store.Payloads(t.Context(), "runs", 0, 1)
		require.NoError(t, err)
		require.Contains(t, string(pushed[0]), secret)
	})
	t.Run("what is kept for others is none either", func(t *testing.T) {
		role := web.Operator
		f := setup(t, func(o *web.Options) {
			o.HideArgs = true
			o.Who = func(*http.Request) (web.Visitor, error) { return web.Visitor{Name: "ann", Role: role}, nil }
		})
		f.private()
		worker := f.Get("/api/v1/workers")["items"].([]any)[0].(map[string]any)["worker"].(string)
		require.NoError(t, f.Store.NoteEvent(t.Context(), store.Event{
			Kind: store.EventLockLost, By: worker, Via: "daemon", Count: 1,
			Text: worker + ": Mail of queue mail: resqued: job lock lost: resque:locket:job_locks:Mail[harmless] is held by another or gone",
		}))
		html := func(r *http.Request) { r.Header.Set("Accept", "text/html") }
		require.Contains(t, f.Ask(http.MethodGet, "/failed", "", html).Body.String(), "no failure record")
		at := "/workers/" + url.PathEscape(worker)
		require.Contains(t, f.Ask(http.MethodGet, at, "", html).Body.String(), "Mail[harmless]")
		role = web.Viewer
		text := f.Ask(http.MethodGet, at, "", html).Body.String()
		require.Contains(t, text, "job lock lost")
		require.NotContains(t, text, "harmless")
		for _, path := range []string{"/failed", "/api/v1/failed/groups"} {
			require.NotContains(t, f.Ask(http.MethodGet, path, "", html).Body.String(), secret, path)
			f.Server.GroupMore(t.Context()) // as for very many
			require.NotContains(t, f.Ask(http.MethodGet, path, "", html).Body.String(), secret, path)
		}
	})
	t.Run("viewers may see nothing at all", func(t *testing.T) {
		f := setup(t, change, func(o *web.Options) { o.HideArgs = true })
		f.private()
		role = web.Viewer
		answers := f.everything()
		assert.Empty(t, shows(answers, secret))
		assert.Empty(t, shows(answers, "12345678901234567890"), fmt.Sprint(shows(answers, "12345678901234567890")))
		assert.Empty(t, shows(answers, "harmless"))
		assert.Contains(t, answers["/api/v1/events"], "Mail of queue mail: resqued: job lock lost")
		role = web.Operator
		answers = f.everything()
		assert.NotEmpty(t, shows(answers, "12345678901234567890"))
		assert.Contains(t, answers["/api/v1/events"], "lock:Mail:harmless")
	})
}
