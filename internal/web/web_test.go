package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web"
	"github.com/resqued/resqued/longjob"
)

var update = flag.Bool("update", false, "write openapi.json")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Probing()) }

// fixture is a server with a Redis of its own.
type fixture struct {
	*testing.T
	ns     string
	store  *store.Store
	jobs   *client.Client
	server *web.Server
	// options are those of the server.
	options web.Options
	do      func(command, key string, args ...any)
	redis   *redis.Client
}

const (
	proc   = "web-1:boot:9120-1:0.1"
	master = "web-1:boot:9120-1"
)

func setup(t *testing.T, change ...func(*web.Options)) *fixture {
	t.Helper()
	return setupOn(t, redistest.Shared(t), change...)
}

func setupOn(t *testing.T, server *redistest.Server, change ...func(*web.Options)) *fixture {
	t.Helper()
	f := &fixture{T: t, ns: redistest.Namespace(t)}
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: f.ns, Lease: time.Hour, LockTTL: store.DefaultLease})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	jobs, err := client.New(client.Options{URL: server.URL(), Namespace: f.ns})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, jobs.Close()) })
	redis := server.Client(t)
	f.store, f.jobs, f.redis = s, jobs, redis
	f.do = func(command, key string, args ...any) {
		t.Helper()
		require.NoError(t, redis.Do(context.Background(), append([]any{command, f.ns + ":" + key}, args...)...).Err())
	}
	o := web.Options{
		Store: s, Jobs: jobs, Namespace: f.ns, Version: "test",
		Long: func(ctx context.Context) *longjob.Client {
			return longjob.ClientFrom(longstore.New(s.Redis()).InContext(ctx), resqued.New())
		},
		Who:    func(*http.Request) (web.Visitor, error) { return web.Visitor{Name: "ann", Role: web.Operator}, nil },
		Checks: view.Checks{Unique: func(string) bool { return false }},
	}
	for _, c := range change {
		c(&o)
	}
	f.server, f.options = web.New(o), o
	return f
}

// fill puts one thing of each kind into Redis.
func (f *fixture) fill(name string) {
	f.Helper()
	quoted, err := json.Marshal(strings.ToValidUTF8(name, "?"))
	require.NoError(f, err)
	payload := fmt.Sprintf(`{"class":%s,"args":[%[1]s,12345678901234567890,0.10]}`, quoted)
	for _, q := range []string{name, "q"} {
		f.do("SADD", "queues", q)
		f.do("RPUSH", "queue:"+q, payload, "no job")
	}
	require.NoError(f, f.store.Register(f.Context(), store.Registration{
		Proc: proc, Workers: []string{"web-1~resqued:9120.0.0-x:q"},
		Info: map[string]string{"host": "web-1", "pid": "9120", "slot": "0", "state": "running", "threads": "1", "queues": name, "version": name},
	}))
	_, err = f.store.PutMaster(f.Context(), store.MasterInfo{ID: master, TTL: time.Hour, Fields: map[string]string{
		"state": "running", "host": "web-1", "slots": "1", "threads": "1", "queues": name, "version": name,
		store.FieldTemplates: `[{"runner":"app","state":"ready","pid":7}]`,
	}})
	require.NoError(f, err)
	reply, err := f.store.Exchange(f.Context(), store.ExchangeRequest{Proc: proc, Wants: []store.Want{{Token: redistest.Unique(), Worker: "web-1~resqued:9120.0.0-x:q"}}, Queues: []store.Queue{{Name: "q", Locked: true}}})
	require.NoError(f, err)
	require.Len(f, reply.Jobs, 1)
	record, err := json.Marshal(map[string]any{
		"failed_at": "2026/11/24 01:02:03 UTC", "payload": json.RawMessage(payload), "exception": name, "error": name,
		"backtrace": []string{name}, "worker": name, "queue": strings.ToValidUTF8(name, "?"),
	})
	require.NoError(f, err)
	f.do("RPUSH", "failed", record, "no record")
	f.do("SADD", "workers", "ruby:7:"+name)
	f.do("SET", "worker:ruby:7:"+name, payload)
	sum := &history.Sum{}
	for i := range 20 {
		sum.Add(history.Processed, time.Duration(i)*time.Millisecond, time.Second)
	}
	sum.Add(history.Processed|history.Failed, time.Minute, time.Hour)
	_, err = f.store.AddHistory(f.Context(), []history.Series{{Minute: time.Now().Unix()/60 - 2, Sums: map[history.Name]*history.Sum{
		history.AllJobs(): sum, {Kind: history.Class, Name: strings.ToValidUTF8(name, "?")}: sum, {Kind: history.Queue, Name: "q"}: sum,
	}}})
	require.NoError(f, err)
	require.NoError(f, f.store.NoteEvent(f.Context(), store.Event{Kind: store.EventDied, By: name, Via: "daemon", Subject: name, Text: name, Count: 1}))
	f.do("ZADD", "delayed_queue_schedule", 4102444800, "4102444800")
	f.do("RPUSH", "delayed:4102444800", strings.Replace(payload, "{", `{"queue":"q",`, 1))
}

func (f *fixture) ask(method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	f.Helper()
	r := httptest.NewRequestWithContext(f.Context(), method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "127.0.0.1:5678", "127.0.0.1:40000"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	return w
}

// get returns the answer to a request that must succeed.
func (f *fixture) get(path string) map[string]any {
	f.Helper()
	answer := f.ask(http.MethodGet, path, "")
	text := answer.Body.String()
	require.Equal(f, http.StatusOK, answer.Code, "%s: %s", path, text)
	var v map[string]any
	require.NoError(f, json.Unmarshal([]byte(text), &v), path)
	return v
}

// post returns the answer to an act, and its status.
func (f *fixture) post(path, body string) (map[string]any, int) {
	f.Helper()
	answer := f.ask(http.MethodPost, path, body)
	var v map[string]any
	require.NoError(f, json.Unmarshal(answer.Body.Bytes(), &v), path)
	return v, answer.Code
}

var placeholder = regexp.MustCompile(`{\w+}`)

// Every route asks for the role that it says, and none answers another site's page.
func TestRoles(t *testing.T) {
	t.Parallel()
	visitor := web.Visitor{Role: web.Viewer}
	f := setup(t, func(o *web.Options) { o.Who = func(*http.Request) (web.Visitor, error) { return visitor, nil } })
	acts := 0
	for _, r := range web.Table() {
		path := placeholder.ReplaceAllString(r.Path, "x")
		answer := f.ask(r.Method, path, "")
		assert.Equal(t, r.Role == web.Operator, answer.Code == http.StatusForbidden, "%s %s: %s", r.Method, path, answer.Body)
		assert.Less(t, answer.Code, 500, path)
		assert.Contains(t, answer.Header().Get("Content-Security-Policy"), "default-src 'none'")
		assert.Equal(t, r.Method != http.MethodGet, r.Role == web.Operator, "%s changes something, or not", path)
		cross := f.ask(r.Method, path, "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
		if r.Method != http.MethodGet {
			acts++
			assert.Equal(t, http.StatusForbidden, cross.Code, path)
			assert.Contains(t, cross.Body.String(), "cross_site")
		}
		foreign := f.ask(r.Method, path, "", func(r *http.Request) { r.Host = "evil.example" })
		assert.Equal(t, http.StatusMisdirectedRequest, foreign.Code, path)
	}
	assert.Greater(t, acts, 10)
}

// The description has every route and nothing else, and every answer is as it says.
func TestDescription(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.fill("mail")
	text, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	// The JSON is the same description.
	same, err := doc.MarshalJSON()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", same, 0o600))
	}
	require.Equal(t, string(same), f.ask(http.MethodGet, "/api/v1/openapi.json", "").Body.String(), "run: go test ./internal/web -run TestDescription -update")
	described := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described[method+" /api/v1"+path] = true
		}
	}
	for _, r := range web.Table() {
		if strings.HasPrefix(r.Path, "/api/v1/") {
			assert.True(t, described[r.Method+" "+r.Path], "%s %s is not described", r.Method, r.Path)
			delete(described, r.Method+" "+r.Path)
		}
	}
	assert.Empty(t, described, "described, and not there")

	// As many things as are promised can be asked for, and not one more.
	for path, item := range doc.Paths.Map() {
		if item.Get == nil || item.Get.Parameters.GetByInAndName("query", "limit") == nil {
			continue
		}
		most := int(*item.Get.Parameters.GetByInAndName("query", "limit").Schema.Value.Max)
		asked := "/api/v1" + strings.ReplaceAll(path, "{queue}", "mail") + "?limit="
		assert.Equal(t, http.StatusOK, f.ask(http.MethodGet, asked+strconv.Itoa(most), "").Code, path)
		assert.Equal(t, http.StatusBadRequest, f.ask(http.MethodGet, asked+strconv.Itoa(most+1), "").Code, path)
	}

	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	failures := f.get("/api/v1/failed")["items"].([]any)
	id := failures[1].(map[string]any)["id"].(string)
	job := f.get("/api/v1/jobs")["items"].([]any)[1].(map[string]any)["id"].(string)
	for _, one := range []string{
		"GET /live", "GET /live?since=5", "GET /overview", "GET /attention", "GET /doctor", "GET /queues", "GET /queues/mail", "GET /queues/mail/jobs",
		"GET /queues/mail/jobs?class=mail&limit=1", "GET /jobs", "GET /jobs?class=mail&older=10m", "GET /jobs/" + url.PathEscape(job), "GET /failed", "GET /failed?class=mail&args=12345",
		"GET /failed?limit=1&cursor=1", "GET /failed/groups", "GET /failed/" + id, "GET /parked", "GET /workers", "GET /workers/web-1:9120", "GET /locks", "GET /locks?kind=locket", "GET /locks/waiting",
		"GET /locks/unique", "GET /longjobs", "GET /longjobs/none", "GET /schedule", "GET /schedule/delayed", "GET /schedule/delayed?limit=1&cursor=s4102444800,1,0123456789abcdef", "GET /schedule/delayed?cursor=1", "GET /redis", "GET /queues/none", "GET /locks/none",
		"GET /failed?cursor=-1", "GET /jobs?older=long", "POST /queues/mail/pause", "POST /queues/mail/resume", "POST /pause", "POST /resume",
		`POST /jobs {"class":"A","args":[1],"queue":"mail"}`, `POST /jobs {"class":"","args":[1]}`, "POST /jobs/none/kill", `POST /failed/retry {"ids":["` + id + `"]}`,
		`POST /failed/retry {"filter":{"class":"mail"},"dry_run":true}`, `POST /failed/remove {"filter":{"all":true},"expect":1}`, `POST /failed/remove {"filter":{"all":true},"expect":2}`,
		"POST /locks/none/release", "POST /longjobs/none/cancel", "POST /longjobs/none/requeue", "POST /schedule/none/run", "POST /queues/mail/purge",
		"GET /classes", "GET /classes?span=30d", "GET /classes?span=1y", "GET /classes/mail", "GET /classes/none", "GET /history", "GET /history?series=class:mail&step=1m", "GET /history?series=x", "GET /history?step=2m",
		"GET /history?from=5&to=4", "GET /history?step=1m&from=2026-01-01T00:00:00Z", "GET /history?step=1h&from=1&to=99999999999", "GET /history?from=noon", "GET /queues/mail/levels", "GET /queues/none/levels",
		"GET /events", "GET /events?kind=paused,purged&limit=1", "GET /events?kind=nothing", "GET /events?cursor=x", "GET /processes/" + url.PathEscape(proc), "GET /processes/none", "GET /operations/none", "DELETE /operations/none",
		"POST /queues/mail/repair", "DELETE /queues/mail", `POST /schedule/delayed/run {"ids":["none"]}`, `POST /schedule/delayed/remove {}`, "POST /workers/none/drain", "POST /workers/web-1:9120/pause", "POST /workers/web-1:9120/jump",
		`POST /failed/retry {"filter":{"all":true},"background":true}`, "GET /operations/1",
	} {
		method, rest, _ := strings.Cut(one, " ")
		path, body, _ := strings.Cut(rest, " ")
		answer := f.ask(method, "/api/v1"+path, body)
		text := answer.Body.String()
		request, err := http.NewRequestWithContext(t.Context(), method, "/api/v1"+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		route, params, err := router.FindRoute(request)
		require.NoError(t, err, one)
		require.NoError(t, openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, Route: route, PathParams: params},
			Status:                 answer.Code, Header: answer.Header(), Body: io.NopCloser(strings.NewReader(text)),
		}), "%s: %s", one, text)
		assert.Less(t, answer.Code, 500, "%s: %s", one, text)
	}
}

// Numbers of arguments are as they were pushed.
func TestNumbers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.fill("mail")
	for _, path := range []string{"/api/v1/queues/mail/jobs", "/api/v1/jobs", "/api/v1/failed", "/api/v1/schedule/delayed"} {
		assert.Contains(t, f.ask(http.MethodGet, path, "").Body.String(), `["mail",12345678901234567890,0.10]`, path)
	}
}

// Whatever strangers name their things, and whoever asks for what, no answer is a fault of the
// server.
func TestHostile(t *testing.T) {
	t.Parallel()
	values := []string{"x", "-", "%00", "%ff", "..%2f..", "%2e%2e", strings.Repeat("a", 5000), "-1", "9999999999999999999"}
	queries := []string{"", "?name=%ff", "?limit=-1", "?limit=1e9", "?cursor=99999999999999999999", "?cursor=-5", "?class=%ff", "?args=" + strings.Repeat("a", 5000), "?since=x", "?%zz", "?kind=%00"}
	for n, name := range []string{"<script>alert(1)</script>", "a/b?c#d", "bad \xff\xfe UTF-8", "\u202eabc", `"quoted\`, "new\nline", strings.Repeat("x", 64<<10), "-", "..", "%2F"} {
		f := setup(t)
		f.fill(name)
		for _, r := range web.Table() {
			if r.Method != http.MethodGet {
				continue
			}
			for v, value := range values {
				path := placeholder.ReplaceAllString(r.Path, strings.ReplaceAll(value, "$", ""))
				for q, query := range queries {
					if v > 0 && (path == r.Path || n > 0 && q > 0) {
						continue // asked already, or as good as: with the first name every pair is asked
					}
					answer := f.ask(r.Method, path+query, "")
					require.Less(t, answer.Code, 500, "%s%s: %s", path, query, answer.Body.String())
				}
			}
		}
		for _, path := range []string{"/api/v1/jobs", "/api/v1/failed/retry"} {
			for _, body := range []string{"{", "[]", "null", `{"class":1}`, `{"ids":[""]}`, `{"ids":["a"]}`, `{"ids":["x"],"filter":{"all":true}}`, `{"filter":{}}`, `{"x":1}`, `{"class":"A"} {}`, `{"class":"A","args":{}}`, `{"class":"A","queue":"","args":[]}`, `{"class":"A","queue":"q","args":null}`, "{\"class\":\"A\xff\",\"queue\":\"q\"}", "{\"class\":\"A\",\"queue\":\"q\xff\"}", strings.Repeat(" ", 70<<10)} {
				answer := f.ask(http.MethodPost, path, body)
				require.GreaterOrEqual(t, answer.Code, 400, body[:min(len(body), 50)])
				require.Less(t, answer.Code, 500, "%s: %s", body[:min(len(body), 50)], answer.Body.String())
			}
		}
		answer := f.ask(http.MethodPost, "/api/v1/jobs", "", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
		require.Equal(t, http.StatusUnsupportedMediaType, answer.Code)
	}
}

// An id that is nearly nothing would name many failures.
func TestShortIDs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i := range 64 {
		f.do("RPUSH", "failed", fmt.Sprint("record ", i))
	}
	for _, id := range []string{"", "a", "@", "@0000000", "a@0000000", "a@xxxxxxxxx"} {
		_, code := f.post("/api/v1/failed/remove", `{"ids":["`+id+`"]}`)
		assert.Equal(t, http.StatusBadRequest, code, id)
		form := f.ask(http.MethodPost, "/failed", url.Values{"act": {"remove"}, "sure": {"1"}, "id": {id}}.Encode(), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
		assert.Equal(t, http.StatusBadRequest, form.Code, id)
	}
	all := f.ask(http.MethodPost, "/failed/aaaaaaaa@1", "act=remove-all", func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
	assert.Equal(t, http.StatusBadRequest, all.Code, "the page of one failure has no act on all")
	assert.EqualValues(t, 64, f.get("/api/v1/failed")["total"])
}

// The server is known under the names that it is told, however they are written.
func TestHosts(t *testing.T) {
	t.Parallel()
	f := setup(t, func(o *web.Options) { o.Hosts = []string{"Jobs.Example.:443"} })
	for host, known := range map[string]bool{
		"jobs.example": true, "JOBS.EXAMPLE.:5678": true, "evil.example": false, "jobs.example.evil": false, "[evil.example]": false, "0x7f.1": false,
		"LocalHost.:1": true, "[::1]:5678": true, "192.0.2.1": true,
	} {
		answer := f.ask(http.MethodGet, "/healthz", "", func(r *http.Request) { r.Host = host })
		require.Equal(t, known, answer.Code == http.StatusOK, "%s: %d", host, answer.Code)
	}
}

// A page that has not changed is not sent again, also behind a proxy that makes its tag a weak one;
// to an operator it is another than to a viewer.
func TestTags(t *testing.T) {
	t.Parallel()
	visitor := web.Visitor{Role: web.Viewer}
	f := setup(t, func(o *web.Options) { o.Who = func(*http.Request) (web.Visitor, error) { return visitor, nil } })
	f.fill("mail")
	ask := func(tag string) *httptest.ResponseRecorder {
		return f.ask(http.MethodGet, "/failed?view=flat", "", func(r *http.Request) {
			r.Header.Set("Fragment", "1")
			r.Header.Set("If-None-Match", tag)
		})
	}
	tag := ask("").Header().Get("ETag")
	require.Equal(t, http.StatusNotModified, ask(tag).Code)
	require.Equal(t, http.StatusNotModified, ask("W/"+tag).Code)
	visitor.Role = web.Operator
	require.Equal(t, http.StatusOK, ask(tag).Code)
}

// Acts do what they say.
func TestActs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.fill("mail")
	v, code := f.post("/api/v1/queues/mail/pause", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "paused", v["outcome"])
	paused, _, err := f.store.Paused(t.Context(), "mail")
	require.NoError(t, err)
	require.True(t, paused["mail"])
	v, _ = f.post("/api/v1/queues/mail/resume", "")
	require.Equal(t, "resumed", v["outcome"])

	v, _ = f.post("/api/v1/jobs", `{"class":"Mail","args":[12345678901234567890],"queue":"new"}`)
	require.Equal(t, "new", v["queue"])
	payloads, err := f.store.Payloads(t.Context(), "new", 0, 1)
	require.NoError(t, err)
	require.Contains(t, string(payloads[0]), "[12345678901234567890]")

	id := f.get("/api/v1/failed")["items"].([]any)[1].(map[string]any)["id"].(string)
	v, _ = f.post("/api/v1/failed/retry", `{"ids":["`+id+`"]}`)
	require.EqualValues(t, 1, v["count"])
	n, err := f.store.Length(t.Context(), "mail")
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	v, _ = f.post("/api/v1/failed/remove", `{"filter":{"all":true},"dry_run":true}`)
	require.Equal(t, map[string]any{"outcome": "would_be_removed", "count": 2.0}, v)
	_, code = f.post("/api/v1/failed/remove", `{"filter":{"all":true},"expect":1}`)
	require.Equal(t, http.StatusConflict, code)
	v, _ = f.post("/api/v1/failed/remove", `{"filter":{"all":true},"expect":2}`)
	require.EqualValues(t, 2, v["count"])

	job := f.get("/api/v1/jobs")["items"].([]any)[1].(map[string]any)["id"].(string)
	v, _ = f.post("/api/v1/jobs/"+url.PathEscape(job)+"/kill", "")
	require.Equal(t, store.KillAsked, v["outcome"], "%v", v)
	v, _ = f.post("/api/v1/queues/mail/purge", "")
	require.EqualValues(t, 3, v["count"])

	// Each act is among the events, with who did it, the newest first.
	var acts []string
	for _, item := range f.get("/api/v1/events")["items"].([]any) {
		if e := item.(map[string]any); e["via"] == "web" {
			require.Equal(t, "ann@127.0.0.1", e["by"])
			acts = append(acts, fmt.Sprintf("%s %s", e["kind"], e["subject"]))
		}
	}
	require.Equal(t, []string{"purged queue mail", "killed jobs", "removed failures", "retried failures", "resumed queue mail", "paused queue mail"}, acts)
}

// A page of failures goes on where the one before has ended, whatever comes meanwhile.
func TestPagesOfFailures(t *testing.T) {
	t.Parallel()
	f := setup(t)
	record := func(i int) string {
		return fmt.Sprintf(`{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"C%d","args":[%d]},"exception":"E","error":"e","queue":"q"}`, i%10, i)
	}
	for i := range 450 {
		f.do("RPUSH", "failed", record(i))
	}
	seen := map[string]bool{}
	cursor, looked := "", 0.0
	for range 100 {
		page := f.get("/api/v1/failed?class=C3&limit=7" + cursor)
		looked += page["looked"].(float64)
		for _, item := range page["items"].([]any) {
			args := fmt.Sprint(item.(map[string]any)["args"])
			require.False(t, seen[args], args)
			seen[args] = true
		}
		f.do("RPUSH", "failed", record(1003))
		if page["next"] == nil {
			break
		}
		cursor = "&cursor=" + page["next"].(string)
	}
	require.Len(t, seen, 45)
	require.EqualValues(t, 450, looked)
}

// Where each queue has a list of failures, a search goes through all of them, and without one the
// newest of all are there.
func TestPagesOfListsOfFailures(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.do("SADD", "failed_queues", "a_failed", "b_failed", "none_failed")
	for i := range 260 {
		list := []string{"a_failed", "b_failed", "failed"}[i%3]
		f.do("RPUSH", list, fmt.Sprintf(`{"failed_at":"2026/11/24 01:%02d:%02d UTC","payload":{"class":"C%d","args":[%d]},"exception":"E","error":"e","queue":"q"}`, i/60, i%60, i%10, i))
	}
	page := f.get("/api/v1/failed?limit=2")
	require.EqualValues(t, 260, page["total"])
	require.Equal(t, true, page["partial"], "there are more, and no next page")
	require.Equal(t, []any{259.0}, page["items"].([]any)[0].(map[string]any)["args"])
	require.Contains(t, f.ask(http.MethodGet, "/failed?view=flat", "").Body.String(), "The newest of 260")
	seen := map[string]bool{}
	cursor, looked := "", 0.0
	for range 100 {
		page := f.get("/api/v1/failed?class=C3&limit=4" + cursor)
		looked += page["looked"].(float64)
		for _, item := range page["items"].([]any) {
			args := fmt.Sprint(item.(map[string]any)["args"])
			require.False(t, seen[args], args)
			seen[args] = true
		}
		f.do("RPUSH", "failed", "a new one")
		require.Equal(t, page["next"] != nil, page["partial"])
		if page["next"] == nil {
			break
		}
		cursor = "&cursor=" + page["next"].(string)
	}
	require.Len(t, seen, 26)
	require.EqualValues(t, 260, looked)
	page = f.get("/api/v1/failed?class=none")
	require.Equal(t, []any{}, page["items"])
	require.Equal(t, false, page["partial"])
}

// What cannot be read leaves the rest whole.
func TestTrouble(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.fill("mail")
	require.NotEmpty(t, f.get("/api/v1/queues")["items"])
	for _, key := range []string{"failed", "workers", "resqued:parking", "delayed_queue_schedule"} {
		f.do("DEL", key)
		f.do("SET", key, "of a wrong type")
	}
	for path, fails := range map[string]bool{
		"/api/v1/queues": false, "/api/v1/jobs": false, "/api/v1/overview": false, "/metrics": false, "/readyz": false, "/api/v1/queues/mail/jobs": false,
		"/api/v1/locks": false, "/api/v1/failed": true,
	} {
		answer := f.ask(http.MethodGet, path, "")
		text := answer.Body.String()
		assert.Equal(t, fails, answer.Code != http.StatusOK, "%s: %s", path, text)
		assert.True(t, answer.Code == http.StatusOK || strings.Contains(text, `"error"`), text)
	}
}

// The exposition is what Prometheus expects, and bounded.
func TestMetrics(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.fill("a\"b\\c\nd\xff")
	for i := range 2000 {
		f.do("SADD", "queues", fmt.Sprintf("queue-%04d", i))
	}
	sums := map[history.Name]*history.Sum{}
	for i := range history.MaxNames / 2 {
		sum := &history.Sum{}
		for j := range 300 {
			sum.Add(history.Processed, time.Duration(j*j*j)*time.Millisecond, time.Duration(j*j*j)*time.Millisecond)
		}
		sums[history.Name{Kind: history.Class, Name: fmt.Sprintf("Module::With::A::Long::Name::Class%03d", i)}] = sum
		sums[history.Name{Kind: history.Queue, Name: fmt.Sprintf("queue-%04d", i)}] = sum
	}
	_, err := f.store.AddHistory(t.Context(), []history.Series{{Minute: time.Now().Unix() / 60, Sums: sums}})
	require.NoError(t, err)
	for uuid, status := range map[string]string{"u1": "queued", "u2": "running", "u3": "running", "u4": "failed", "u5": "of another version"} {
		f.do("HSET", "resqued:longjob:run:"+uuid, "status", status)
		f.do("ZADD", "resqued:longjob:"+map[bool]string{true: "active", false: "ended"}[status == "queued" || status == "running"], "5", uuid)
	}
	f.do("ZADD", "resqued:longjob:ended", "5", "forgotten meanwhile")
	f.do("HSET", "resqued:master:"+master, store.FieldEnds, "died=2 jobs=1000 memory=3")
	f.ask(http.MethodGet, "/metrics", "")
	f.do("HSET", "resqued:master:"+master, store.FieldEnds, "died=3 jobs=1412 memory=4 age=x later=5 other=-1")
	_, err = f.store.PutMaster(t.Context(), store.MasterInfo{ID: "web-2:boot:1-1", TTL: time.Hour, Fields: map[string]string{store.FieldEnds: store.ProcEnds{Recycled: [4]int64{5, 0, 0, 1}}.String()}})
	require.NoError(t, err)
	var text string
	require.Eventually(t, func() bool { // the next sample
		text = f.ask(http.MethodGet, "/metrics", "").Body.String()
		f.ask(http.MethodPost, "/queues/q", "act=pause", func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") })
		return strings.Contains(text, "resqued_deaths_total 1\n")
	}, time.Minute, time.Millisecond)
	require.Contains(t, text, `resqued_recycles_total{why="jobs"} 417`)
	require.Contains(t, text, `resqued_recycles_total{why="memory"} 1`)
	require.Contains(t, text, `resqued_recycles_total{why="age"} 0`)
	require.Contains(t, text, `resqued_recycles_total{why="other"} 1`)
	for status, n := range map[string]int{"queued": 1, "running": 2, "completed": 0, "failed": 1, "cancelled": 0, "superseded": 0, "(other)": 1} {
		require.Contains(t, text, fmt.Sprintf("resqued_longjobs{status=%q} %d\n", status, n))
	}
	require.Contains(t, text, `resqued_processes{host="web-1",state="running"} 1`)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Less(t, len(text), 300<<10)
	require.Contains(t, text, `resqued_queue_jobs{queue="(other)"}`)
	require.Contains(t, text, "resqued_redis_up 1\n")
	require.Contains(t, text, `resqued_jobs_total{class="Module::With::A::Long::Name::Class007",outcome="done"} 300`)
	require.Contains(t, text, `resqued_job_wait_seconds_bucket{queue="queue-0007",le="+Inf"} 300`)
	require.Contains(t, text, `resqued_job_duration_seconds_count{class="Module::With::A::Long::Name::Class007"} 300`)
	require.Contains(t, text, `resqued_threads{host="web-1",state="busy"} 1`)
}

// No two names become one label, whatever bytes they have: Prometheus would take one of the two.
func TestLabels(t *testing.T) {
	t.Parallel()
	f := setup(t)
	sums := map[history.Name]*history.Sum{}
	for _, name := range []string{"a\xff", "a\xfe", "(other)", "a\n", "a\x00"} {
		f.do("SADD", "queues", name)
		f.do("RPUSH", "queue:"+name, `{"class":"A","args":[]}`)
		sum := &history.Sum{}
		sum.Add(history.Processed, time.Second, time.Second)
		sums[history.Name{Kind: history.Class, Name: name}], sums[history.Name{Kind: history.Queue, Name: name}] = sum, sum
	}
	for i := range 300 {
		f.do("SADD", "queues", fmt.Sprintf("queue-%04d", i))
	}
	_, err := f.store.AddHistory(t.Context(), []history.Series{{Minute: time.Now().Unix() / 60, Sums: sums}})
	require.NoError(t, err)
	text := f.ask(http.MethodGet, "/metrics", "").Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		series := line[:strings.LastIndex(line, " ")]
		require.False(t, !strings.HasPrefix(line, "#") && seen[series], series)
		seen[series] = true
	}
	require.Contains(t, text, `resqued_queue_jobs{queue="a\\xfe"} 1`)
}

func TestLogin(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, web.FormatTokens([]web.Token{
		{Name: "grafana", Role: web.Viewer, Sum: web.Digest("look")}, {Name: "ann", Role: web.Operator, Sum: web.Digest("change")},
	}), 0o600))
	login := &web.Login{Tokens: &web.Tokens{Path: path}, Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, UserHeader: "X-User", Operators: []string{"bob"}}
	who := func(from string, change func(r *http.Request)) (web.Visitor, int) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = from
		if change != nil {
			change(r)
		}
		v, err := login.Who(r)
		if err == nil {
			return v, http.StatusOK
		}
		var e *web.Error
		require.ErrorAs(t, err, &e)
		return v, e.Status
	}
	bearer := func(token string) func(r *http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	_, code := who("127.0.0.1:1", nil)
	require.Equal(t, http.StatusUnauthorized, code, "nobody is let in without a login")
	login.Anonymous = web.Viewer
	v, _ := who("127.0.0.1:1", nil)
	require.Equal(t, web.Visitor{Role: web.Viewer}, v)
	_, code = who("192.0.2.1:1", nil)
	require.Equal(t, http.StatusUnauthorized, code)
	v, _ = who("192.0.2.1:1", bearer("look"))
	require.Equal(t, web.Visitor{Name: "grafana", Role: web.Viewer}, v)
	v, _ = who("192.0.2.1:1", func(r *http.Request) { r.SetBasicAuth("whoever", "change") })
	require.Equal(t, web.Visitor{Name: "ann", Role: web.Operator}, v)
	v, _ = who("10.1.2.3:1", func(r *http.Request) { r.Header.Set("X-User", "bob") })
	require.Equal(t, web.Visitor{Name: "bob", Role: web.Operator}, v)
	v, _ = who("[::ffff:10.1.2.3]:1", func(r *http.Request) { r.Header.Set("X-User", "eve") })
	require.Equal(t, web.Visitor{Name: "eve", Role: web.Viewer}, v)
	for _, from := range []string{"192.0.2.1:1", "127.0.0.1:1", "@"} {
		_, code = who(from, func(r *http.Request) { r.Header.Set("X-User", "bob") })
		require.Equal(t, http.StatusForbidden, code, from)
	}
	// A proxy that does not say for whom it asks is nobody, on this machine as well.
	_, code = who("10.1.2.3:1", nil)
	require.Equal(t, http.StatusUnauthorized, code)
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Via"} {
		_, code = who("127.0.0.1:1", func(r *http.Request) { r.Header.Set(name, "192.0.2.1") })
		require.Equal(t, http.StatusUnauthorized, code, name)
	}
	v, _ = who("192.0.2.1:1", func(r *http.Request) { r.Header.Set("Authorization", "bearer look") })
	require.Equal(t, "grafana", v.Name)
	// A proxy that adds to what the visitor has sent: whose name comes first is not said.
	_, code = who("10.1.2.3:1", func(r *http.Request) { r.Header["X-User"] = []string{"bob", "eve"} })
	require.Equal(t, http.StatusForbidden, code)
	// A page whose token was removed asks again and again; only guesses bar an address.
	for range 20 {
		_, code = who("192.0.2.9:1", bearer("removed"))
		require.Equal(t, http.StatusUnauthorized, code)
	}
	for i := range 9 {
		_, code = who("192.0.2.9:1", bearer(fmt.Sprint("guess", i)))
		require.Equal(t, http.StatusUnauthorized, code)
	}
	_, code = who("192.0.2.9:1", bearer("look"))
	require.Equal(t, http.StatusTooManyRequests, code)
	_, code = who("192.0.2.1:1", bearer("look"))
	require.Equal(t, http.StatusOK, code, "another address is not barred")
	require.NoError(t, os.Chmod(path, 0o604))
	require.NoError(t, os.WriteFile(path, web.FormatTokens(nil), 0o604))
	_, err := (&web.Tokens{Path: path}).List()
	require.ErrorContains(t, err, "chmod")
}

func FuzzTokens(f *testing.F) {
	f.Add([]byte("# x\nann operator " + strings.Repeat("ab", 32) + "\n"))
	f.Add([]byte("ann root x\n\n \x00\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := web.ParseTokens(text)
		if err != nil {
			return
		}
		again, err := web.ParseTokens(web.FormatTokens(list))
		require.NoError(t, err)
		require.Equal(t, len(list), len(again))
		require.True(t, bytes.Equal(web.FormatTokens(list), web.FormatTokens(again)))
	})
}
