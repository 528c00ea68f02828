package web_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/web"
)

func asForm(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }

// waits returns the payloads in a queue.
func (f *fixture) waits(queue string) []string {
	f.Helper()
	all, err := f.Redis.LRange(f.Context(), f.Namespace+":queue:"+queue, 0, -1).Result()
	require.NoError(f, err)
	return all
}

// The queue is that of the path: a filter cannot name one, and so never becomes one without conditions.
func TestQueueIsInThePath(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Do("SADD", "queues", "mail", "other")
	f.Do("RPUSH", "queue:mail", `{"class":"A","args":[]}`, `{"class":"B","args":[]}`)
	for _, act := range []string{"remove", "move"} {
		answer := f.Ask(http.MethodPost, "/api/v1/queues/mail/jobs/"+act, `{"filter":{"queue":"other"},"to":"`+map[string]string{"move": "other"}[act]+`"}`)
		assert.Equal(t, http.StatusBadRequest, answer.Code, answer.Body)
	}
	assert.Len(t, f.waits("mail"), 2)
}

// An act in the background selects as the list does: hidden arguments stay unsearched, tenants are known.
func TestBackgroundSelectsTheSame(t *testing.T) {
	t.Parallel()
	rules, err := redact.Parse("Pay=args.0")
	require.NoError(t, err)
	f := setup(t, func(o *web.Options) {
		o.Redact = rules
		o.Tenant = func(_ string, payload []byte) string {
			return map[bool]string{true: "acme"}[strings.Contains(string(payload), "acme")]
		}
	})
	hidden, plain, tenant := `{"class":"Pay","args":["secret"]}`, `{"class":"Mail","args":["secret"]}`, `{"class":"Mail","args":["acme"]}`
	f.Do("SADD", "queues", "mail")
	f.Do("RPUSH", "queue:mail", hidden, plain, tenant)
	remove := func(condition string) {
		t.Helper()
		var begun struct{ Operation string }
		answer := f.Ask(http.MethodPost, "/api/v1/queues/mail/jobs/remove", `{"filter":`+condition+`,"background":true}`)
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &begun), answer.Body)
		require.Eventually(t, func() bool { return f.Get("/api/v1/operations/" + begun.Operation)["ended"] == true }, 5*time.Second, 10*time.Millisecond)
	}
	remove(`{"match":"secret"}`)
	assert.Equal(t, []string{hidden, tenant}, f.waits("mail"))
	remove(`{"tenant":"` + redact.Digest("tenant", "", "acme") + `"}`)
	assert.Equal(t, []string{hidden}, f.waits("mail"))
}

// The forms of acts have all conditions of the list, however long they are.
func TestLongConditions(t *testing.T) {
	t.Parallel()
	f := setup(t)
	long := strings.Repeat("long ", 300)
	record := func(arg string) string {
		return `{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"Mail","args":["` + arg + `"]},"exception":"E","error":"e","backtrace":[],"worker":"w","queue":"mail"}`
	}
	f.Do("RPUSH", "failed", record(long), record("short"))
	query := url.Values{"args": {`["` + long + `"]`}}.Encode()
	for _, page := range []string{"/failed?view=flat&", "/failed?"} {
		body := f.Ask(http.MethodGet, page+query, "").Body.String()
		form := regexp.MustCompile(`<form method="post" action="([^"]+)"`).FindStringSubmatch(body)
		require.NotNil(t, form, body)
		asked := f.Ask(http.MethodPost, html.UnescapeString(form[1]), "act=remove-all", asForm).Body.String()
		assert.Contains(t, asked, "Remove 1 failure?", page)
		assert.NotContains(t, asked, "Remove 2", page)
	}
}

// "retried: any" alone is all failures, in lists, in acts on them and in the command of the question.
func TestRetriedAny(t *testing.T) {
	t.Parallel()
	f := setup(t)
	record := `{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"Mail","args":[]},"exception":"E","error":"e","backtrace":[],"worker":"w","queue":"mail"`
	f.Do("RPUSH", "failed", record+`}`, record+`,"retried_at":"2026/11/24 02:00:00"}`)
	asked := f.Ask(http.MethodPost, "/failed?view=flat&retried=any", "act=retry-all", asForm)
	assert.Contains(t, asked.Body.String(), "Retry 2 failures?")
	assert.Contains(t, asked.Body.String(), "resqued failed retry --retried=any --all<")
	for body, want := range map[string]int{`{"all":true,"retried":"any"}`: 2, `{"all":true}`: 1, `{"retried":"any"}`: 0, `{"all":true,"class":"Mail"}`: 0} {
		var did struct{ Count int }
		answer := f.Ask(http.MethodPost, "/api/v1/failed/retry", `{"filter":`+body+`,"dry_run":true}`)
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &did), answer.Body)
		assert.Equal(t, want, did.Count, "%s: %s", body, answer.Body)
		assert.Equal(t, want == 0, answer.Code == http.StatusBadRequest, "%s: %s", body, answer.Body)
	}
}

// The API refuses what it does not read of an address: the list would be another one.
func TestUnreadParameters(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail")
	for _, path := range []string{
		"/api/v1/queues/mail/jobs?queue=other", "/api/v1/queues/mail/jobs?name=A", "/api/v1/failed?name=A", "/api/v1/failed/0123456789ab?id=y", "/api/v1/failed?class=A;b", "/api/v1/failed?class=%zz",
		"/api/v1/jobs?match=a;b", "/api/v1/schedule/delayed?class=A&class=%", "/failed?view=flat&class=%zz", "/queues/mail?match=a;b", "/jobs?class=%", "/schedule?class=;",
	} {
		assert.Equal(t, http.StatusBadRequest, f.Ask(http.MethodGet, path, "").Code, path)
	}
	for _, path := range []string{"/failed?view=flat&class=%zz", "/schedule?class=%zz"} {
		assert.Equal(t, http.StatusBadRequest, f.Ask(http.MethodPost, path, "act=remove-all", asForm).Code, path)
	}
	for _, path := range []string{"/api/v1/queues/-?name=mail", "/api/v1/queues/-/jobs?name=mail&class=A", "/api/v1/failed?class=A%3Bb"} {
		assert.Equal(t, http.StatusOK, f.Ask(http.MethodGet, path, "").Code, path)
	}
	for _, r := range web.Table() { // each has an answer
		f.Ask(r.Method, placeholder.ReplaceAllString(r.Path, "x")+"?unknown=1", "")
	}
}

// A visitor that may see no arguments does not see those by which an operator selected.
func TestConditionsInEvents(t *testing.T) {
	t.Parallel()
	role := web.Operator
	f := setup(t, func(o *web.Options) {
		o.HideArgs = true
		o.Who = func(*http.Request) (web.Visitor, error) { return web.Visitor{Name: "ann", Role: role}, nil }
	})
	f.Do("RPUSH", "failed", `{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"Mail","args":["`+secret+`"]},"exception":"E","error":"e","backtrace":[],"worker":"w","queue":"mail"}`)
	answer := f.Ask(http.MethodPost, "/api/v1/failed/remove", `{"filter":{"arg":"0=`+secret+`"}}`)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	require.Contains(t, f.Ask(http.MethodGet, "/api/v1/events", "").Body.String(), secret, "the operator sees it")
	f.Do("RPUSH", "failed", `{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"Mail","args":["`+secret+`"]},"exception":"E","error":"e","backtrace":[],"worker":"w","queue":"mail"}`)
	begun := f.Ask(http.MethodPost, "/failed?view=flat&arg=0="+secret, "act=remove-all&sure=1&expect=1", asForm)
	require.Equal(t, http.StatusSeeOther, begun.Code, begun.Body)
	role = web.Viewer
	page := f.Ask(http.MethodGet, begun.Header().Get("Location"), "")
	require.Equal(t, http.StatusOK, page.Code)
	assert.NotContains(t, page.Body.String(), secret)
	events := f.Ask(http.MethodGet, "/api/v1/events", "").Body.String()
	assert.NotContains(t, events, secret)
	assert.Contains(t, events, "1 failure")
}

// A form that searches a queue keeps a name that does not fit a path.
func TestSearchOfOddQueue(t *testing.T) {
	t.Parallel()
	f := setup(t)
	names := []string{"..", "a/b", ".", "mail"}
	for _, name := range names {
		f.Do("SADD", "queues", name)
		f.Do("RPUSH", "queue:"+name, `{"class":"A","args":[]}`)
	}
	for _, name := range names {
		page := f.Ask(http.MethodGet, "/queues/-?name="+url.QueryEscape(name), "")
		form := regexp.MustCompile(`(?s)<form class="filter" role="search" action="([^"?]*)[^"]*">(.*?)</form>`).FindStringSubmatch(page.Body.String())
		require.NotNil(t, form, page.Body)
		sent := url.Values{"class": {"A"}} // a browser sends the fields alone
		for _, field := range regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`).FindAllStringSubmatch(form[2], -1) {
			sent.Add(field[1], field[2])
		}
		found := f.Ask(http.MethodGet, form[1]+"?"+sent.Encode(), "")
		assert.Equal(t, http.StatusOK, found.Code, "%s: %s", name, form[1])
		assert.Contains(t, found.Body.String(), "All 1 looked at", name)
	}
}

// The form of a search has each condition as it was given, to the byte, so that sending it again changes nothing.
func TestFormsKeepConditions(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail")
	given := url.Values{"class": {strings.Repeat("Mail,", 200) + "Post", "a\u00a0b", "\u202eodd"}, "match": {`"<a> & 'b'"`}, "since": {"2h"}}
	for _, page := range []string{"/failed", "/jobs", "/schedule", "/queues/mail"} {
		body := f.Ask(http.MethodGet, page+"?"+given.Encode(), "").Body.String()
		form := regexp.MustCompile(`(?s)<form class="filter".*?</form>`).FindString(body)
		sent := url.Values{}
		for _, field := range regexp.MustCompile(`<input name="([^"]+)" value="([^"]*)"`).FindAllStringSubmatch(form, -1) {
			if field[2] != "" {
				sent.Add(field[1], html.UnescapeString(field[2]))
			}
		}
		assert.Equal(t, given, sent, page)
	}
}

// Nor does the id of a waiting job, a digest of all of it, tell whether a guess of what is hidden is right.
func TestIDIsNoOracle(t *testing.T) {
	t.Parallel()
	rules, err := redact.Parse("Pay=args.0")
	require.NoError(t, err)
	f := setup(t, func(o *web.Options) { o.Redact = rules })
	hidden, own, shown := `{"class":"Pay","args":["4711"]}`, `{"class":"Pay","args":["4711"],"id":"its-own-id"}`, `{"class":"Mail","args":["4711"]}`
	f.Do("SADD", "queues", "mail")
	f.Do("RPUSH", "queue:mail", hidden, own, shown, "no job")
	for id, want := range map[string]int{
		filter.Digest([]byte(hidden)): 0, filter.Digest([]byte(own)): 0, filter.Digest([]byte("no job")): 0, "its-own-": 1, filter.Digest([]byte(shown))[:12]: 1,
	} {
		assert.Len(t, f.Get("/api/v1/queues/mail/jobs?id=" + id)["items"], want, id)
		var did struct{ Count int }
		answer := f.Ask(http.MethodPost, "/api/v1/queues/mail/jobs/remove", `{"filter":{"id":"`+id+`"},"dry_run":true}`)
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &did), answer.Body)
		assert.Equal(t, want, did.Count, id)
	}
}

// A move that finds nothing says so.
func TestNothingIsMoved(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail")
	answer := f.Ask(http.MethodPost, "/queues/mail?class=Nobody", "act=move-all&to=q", asForm)
	require.Equal(t, http.StatusSeeOther, answer.Code)
	assert.Contains(t, f.Ask(http.MethodGet, answer.Header().Get("Location"), "").Body.String(), "0 jobs were moved")
}

// An empty id names nothing, even if there is one job only.
func TestEmptyIDs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Do("ZADD", "delayed_queue_schedule", 4102444800, 4102444800)
	f.Do("RPUSH", "delayed:4102444800", `{"class":"A","args":[],"queue":"q"}`)
	assert.Equal(t, http.StatusBadRequest, f.Ask(http.MethodPost, "/api/v1/schedule/delayed/remove", `{"ids":[""]}`).Code)
	assert.Equal(t, http.StatusBadRequest, f.Ask(http.MethodPost, "/schedule", "act=remove&id=&sure=1", asForm).Code)
	assert.Len(t, f.Get("/api/v1/schedule/delayed")["items"], 1)
}
