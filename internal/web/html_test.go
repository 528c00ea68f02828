package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/web"
	"github.com/resqued/resqued/longjob"
)

// site is a dashboard over a namespace of its own.
type site struct {
	*testing.T
	*httptest.Server
	redis *redis.Client
	key   string
	role  web.Role
}

func newSite(t *testing.T, prefix string, fill func(s *site)) *site {
	t.Helper()
	return newSiteOn(t, redistest.Shared(t), "", prefix, fill)
}

// newSiteOn is newSite on a Redis of its own, with a login if there is one ("user:password").
func newSiteOn(t *testing.T, r *redistest.Server, login, prefix string, fill func(s *site)) *site {
	t.Helper()
	ns, at := redistest.Namespace(t), r.URL()
	if user, password, ok := strings.Cut(login, ":"); ok {
		at = r.URLAs(user, password)
	}
	s, err := store.Open(store.Options{URL: at, Namespace: ns, Lease: time.Hour, LockTTL: store.DefaultLease})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	jobs, err := client.New(client.Options{URL: at, Namespace: ns})
	require.NoError(t, err)
	t.Cleanup(func() { _ = jobs.Close() })
	long, err := longjob.NewClient(longjob.ClientOptions{URL: at, Namespace: ns})
	require.NoError(t, err)
	t.Cleanup(func() { _ = long.Close() })
	v := &site{T: t, redis: r.Client(t), key: ns + ":", role: web.Operator}
	fill(v)
	server := web.New(web.Options{
		Store: s, Jobs: jobs, Long: func(context.Context) *longjob.Client { return long }, Namespace: ns, PathPrefix: prefix,
		Who: func(*http.Request) (web.Visitor, error) { return web.Visitor{Name: "operator", Role: v.role}, nil },
	})
	v.Server = httptest.NewServer(server)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); server.Run(ctx) }()
	t.Cleanup(func() { v.Close(); cancel(); <-ended })
	return v
}

// fail writes failure records.
func (s *site) fail(n int, class, exception, message string) {
	pipe := s.redis.Pipeline()
	for i := range n {
		record, err := json.Marshal(map[string]any{
			"failed_at": "2026/11/24 10:00:00 UTC", "payload": map[string]any{"class": class, "args": []any{i}}, "exception": exception, "error": message,
			"backtrace": []string{"/app/a.rb:1"}, "worker": "web-1:1:*", "queue": "mail",
		})
		require.NoError(s, err)
		pipe.RPush(s.Context(), s.key+"failed", record)
	}
	_, err := pipe.Exec(s.Context())
	require.NoError(s, err)
}

// ask sends a request as a browser does, without following what it is led to.
func (s *site) ask(method, path string, form url.Values, header ...string) (status int, body, to string) {
	req, err := http.NewRequestWithContext(s.Context(), method, s.URL+path, strings.NewReader(form.Encode()))
	require.NoError(s, err)
	req.Header.Set("Accept", "text/html,application/xhtml+xml")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(s, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s, err)
	return answer.StatusCode, string(text), answer.Header.Get("Location")
}

func (s *site) get(path string) string {
	s.Helper()
	status, body, _ := s.ask(http.MethodGet, path, nil)
	require.Equal(s, http.StatusOK, status, "%s: %.300s", path, body[max(0, strings.Index(body, "<main")):])
	return body
}

func (s *site) post(path string, pairs ...string) (status int, body, to string) {
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return s.ask(http.MethodPost, path, form)
}

func TestPages(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSite(t, "/resqued", func(s *site) {
		require.NoError(t, s.redis.SAdd(ctx, s.key+"queues", "mail", "a/b?c", "..", "\xff<b>").Err())
		for i := range 120 {
			require.NoError(t, s.redis.RPush(ctx, s.key+"queue:mail", fmt.Sprintf(`{"class":"Mail","args":[%d,"hello"]}`, i)).Err())
		}
		s.fail(70, "Mail", "Timeout", "no answer")
		s.fail(3, "Import", "<script>alert(1)</script>", "bad \u202e name")
	})
	for _, path := range []string{"/", "/queues", "/queues/mail", "/queues/a%2Fb%3Fc", "/queues/-?name=..", "/queues/%FF%3Cb%3E", "/jobs", "/failed", "/failed?view=flat", "/workers", "/locks", "/longjobs", "/schedule", "/redis"} {
		body := s.get("/resqued" + path)
		assert.Contains(t, body, "</html>", path)
		assert.NotContains(t, body, "<script>", path)
		assert.NotContains(t, body, "\u202e", path)
		assert.NotContains(t, body, "Cannot be shown", path)
	}
	t.Run("the parts of a queue", func(t *testing.T) {
		body := s.get("/resqued/queues/mail")
		assert.Contains(t, body, "1–50 of 120")
		assert.Contains(t, body, `href="/resqued/queues/mail?from=50"`)
		body = s.get("/resqued/queues/mail?from=100")
		assert.Contains(t, body, "101–120 of 120")
		body = s.get("/resqued/queues/mail?arg=0=77")
		assert.Contains(t, body, "All 120 looked at, 1 found")
	})
	t.Run("failures in groups, one by one, and found", func(t *testing.T) {
		body := s.get("/resqued/failed")
		assert.Contains(t, body, ">70<")
		body = s.get("/resqued/failed?view=flat")
		assert.Contains(t, body, "73 in all")
		assert.Equal(t, 50, strings.Count(body, `name="id"`))
		body = s.get("/resqued/failed?view=flat&class=Import")
		assert.Equal(t, 3, strings.Count(body, `name="id"`))
		assert.Contains(t, body, "All 73 looked at, 3 found")
	})
	t.Run("what is not there", func(t *testing.T) {
		for _, path := range []string{"/resqued/queues/mial", "/resqued/nothing", "/resqued/jobs/none", "/resqued/failed/0123456789ab", "/resqued/workers/x:1", "/resqued/operations/9"} {
			status, body, _ := s.ask(http.MethodGet, path, nil)
			assert.Equal(t, http.StatusNotFound, status, path)
			assert.Contains(t, body, "<h1>Not found</h1>", path)
		}
	})
	t.Run("content alone, and only if it has changed", func(t *testing.T) {
		ask := func(etag string) *http.Response {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/resqued/schedule", nil)
			require.NoError(t, err)
			req.Header.Set("Fragment", "1")
			req.Header.Set("If-None-Match", etag)
			answer, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			return answer
		}
		proctest.Await(t, faultPatience, func() bool { // the page says how long ago things were
			answer := ask("none")
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.NotContains(t, string(body), "<html")
			require.Contains(t, string(body), "<h1>Schedule</h1>")
			again := ask(answer.Header.Get("ETag"))
			require.NoError(t, again.Body.Close())
			return again.StatusCode == http.StatusNotModified
		}, "the answer that the page is the same")
	})
	t.Run("files are kept for ever", func(t *testing.T) {
		body := s.get("/resqued/")
		_, rest, ok := strings.Cut(body, `rel="stylesheet" href="`)
		require.True(t, ok)
		at, _, _ := strings.Cut(rest, `"`)
		status, _, _ := s.ask(http.MethodGet, at, nil)
		assert.Equal(t, http.StatusOK, status)
		answer, err := http.Get(s.URL + at) //nolint:noctx // a test
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Contains(t, answer.Header.Get("Cache-Control"), "immutable")
	})
}

func TestForms(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSite(t, "", func(s *site) {
		require.NoError(t, s.redis.SAdd(ctx, s.key+"queues", "mail", "a/b").Err())
		require.NoError(t, s.redis.RPush(ctx, s.key+"queue:a/b", `{"class":"Mail","args":[]}`, `{"class":"Mail","args":[1]}`).Err())
		s.fail(5, "Mail", "Timeout", "no answer")
	})
	length := func(key string) int64 {
		n, err := s.redis.LLen(ctx, s.key+key).Result()
		require.NoError(t, err)
		return n
	}
	ids := func(query string) (ids []string) {
		for _, part := range strings.Split(s.get("/failed?view=flat"+query), `name="id" value="`)[1:] {
			id, _, _ := strings.Cut(part, `"`)
			ids = append(ids, id)
		}
		return ids
	}

	t.Run("pause and resume", func(t *testing.T) {
		status, _, to := s.post("/queues/a%2Fb", "act", "pause")
		require.Equal(t, http.StatusSeeOther, status)
		assert.Contains(t, s.get(to), "The queue waits, on all machines.")
		status, _, to = s.post("/queues/a%2Fb", "act", "resume")
		require.Equal(t, http.StatusSeeOther, status)
		assert.Contains(t, s.get(to), "The queue is no longer paused.")
	})
	t.Run("purge asks, and asks again when the number has changed", func(t *testing.T) {
		status, body, _ := s.post("/queues/a%2Fb", "act", "purge")
		require.Equal(t, http.StatusOK, status)
		assert.Contains(t, body, "Purge 2 jobs of a/b?")
		assert.Contains(t, body, `name="expect" value="2"`)
		assert.Contains(t, body, `action="/queues/a%2Fb"`)
		require.NoError(t, s.redis.RPush(ctx, s.key+"queue:a/b", `{"class":"Mail","args":[2]}`).Err())
		_, body, _ = s.post("/queues/a%2Fb", "act", "purge", "sure", "1", "expect", "2")
		assert.Contains(t, body, "Their number has changed since you were asked.")
		assert.EqualValues(t, 3, length("queue:a/b"))
		status, _, to := s.post("/queues/a%2Fb", "act", "purge", "sure", "1", "expect", "3")
		require.Equal(t, http.StatusSeeOther, status)
		assert.Contains(t, to, "did=purged&n=3")
		assert.Zero(t, length("queue:a/b"))
	})
	t.Run("retry of those that are ticked", func(t *testing.T) {
		all := ids("")
		require.Len(t, all, 5)
		status, _, to := s.post("/failed?view=flat", "act", "retry", "id", all[0], "id", all[1])
		require.Equal(t, http.StatusSeeOther, status)
		assert.Contains(t, s.get(to), "2 failures were retried.")
		assert.EqualValues(t, 2, length("queue:mail"))
		_, body, _ := s.post("/failed?view=flat", "act", "retry")
		assert.Contains(t, body, "nothing is picked")
	})
	t.Run("removal of one asks", func(t *testing.T) {
		id := ids("")[4]
		_, body, _ := s.post("/failed/"+id, "act", "remove")
		assert.Contains(t, body, "Remove 1 failure?")
		status, _, _ := s.post("/failed/"+id, "act", "remove", "sure", "1")
		require.Equal(t, http.StatusSeeOther, status)
		assert.EqualValues(t, 4, length("failed"))
	})
	t.Run("all that fit, with progress", func(t *testing.T) {
		s.fail(30, "Report", "Timeout", "no answer")
		_, body, _ := s.post("/failed?class=Report&view=flat", "act", "retry-all")
		assert.Contains(t, body, "Retry 30 failures?")
		assert.Contains(t, body, `action="/failed?class=Report&amp;view=flat"`)
		status, _, to := s.post("/failed?class=Report&view=flat", "act", "retry-all", "sure", "1", "expect", "30")
		require.Equal(t, http.StatusSeeOther, status)
		require.Eventually(t, func() bool { return strings.Contains(s.get(to), "Done. 30 of 30") }, 20*time.Second, 20*time.Millisecond)
		assert.EqualValues(t, 32, length("queue:mail"))
		_, _, to = s.post("/failed?class=Report&view=flat", "act", "retry-all")
		assert.Contains(t, to, "n=0", "all were retried before")
		_, body, _ = s.post("/failed?class=Report&view=flat", "act", "retry-all", "again", "1")
		assert.Contains(t, body, "Retry 30 failures?")
		assert.Contains(t, body, `name="again" value="1"`)
	})
	t.Run("a viewer has no forms, and may send none", func(t *testing.T) {
		s.role = web.Viewer
		defer func() { s.role = web.Operator }()
		for _, path := range []string{"/queues/mail", "/failed?view=flat", "/jobs", "/schedule"} {
			assert.NotContains(t, s.get(path), `method="post" action`+`="`+path, path)
			assert.NotContains(t, s.get(path), `name="act"`, path)
		}
		for _, path := range []string{"/queues/mail", "/jobs", "/jobs/x", "/failed", "/failed/x", "/workers/x", "/locks/x", "/longjobs/x", "/schedule", "/schedule/x", "/operations/1"} {
			status, body, _ := s.post(path, "act", "pause")
			assert.Equal(t, http.StatusForbidden, status, path)
			assert.Contains(t, body, "only an operator may do that", path)
		}
	})
	t.Run("another site's page may send none", func(t *testing.T) {
		status, _, _ := s.ask(http.MethodPost, "/queues/mail", url.Values{"act": {"pause"}}, "Sec-Fetch-Site", "cross-site")
		assert.Equal(t, http.StatusForbidden, status)
	})
	t.Run("an address says nothing of its own", func(t *testing.T) {
		body := s.get("/queues?did=" + url.QueryEscape("Send your password to evil.example"))
		assert.NotContains(t, body, "evil.example")
	})
}

// TestPartsFailAlone: a key of a wrong type, and a server that is away, leave the rest of a page.
func TestPartsFailAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", func(s *site) { require.NoError(t, s.redis.Set(t.Context(), s.key+"failed", "no list", 0).Err()) })
	body := s.get("/failed")
	assert.Contains(t, body, "Cannot be shown:")
	assert.Contains(t, body, "<h1>Failed</h1>")
	assert.Contains(t, s.get("/queues"), "<h1>Queues</h1>")
}
