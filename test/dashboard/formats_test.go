package dashboard_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/webtest"
)

// sources is the folder of the description.
const sources = "../../internal/web/"

var update = flag.Bool("update", false, "write openapi.json")

// Every answer fits the description. TestRoutes of internal/web compares it with the routes.
func TestDescription(t *testing.T) {
	t.Parallel()
	f := webtest.Setup(t)
	f.Fill("mail")
	text, err := os.ReadFile(sources + "openapi.yaml")
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	// The JSON is the same description.
	same, err := doc.MarshalJSON()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(sources+"openapi.json", same, 0o600))
	}
	require.Equal(t, string(same), f.Ask(http.MethodGet, "/api/v1/openapi.json", "").Body.String(), "run: cd test/dashboard && go test -run TestDescription -update")
	// As many items as promised can be requested, and not one more.
	for path, item := range doc.Paths.Map() {
		if item.Get == nil || item.Get.Parameters.GetByInAndName("query", "limit") == nil {
			continue
		}
		most := int(*item.Get.Parameters.GetByInAndName("query", "limit").Schema.Value.Max)
		asked := "/api/v1" + strings.ReplaceAll(path, "{queue}", "mail") + "?limit="
		assert.Equal(t, http.StatusOK, f.Ask(http.MethodGet, asked+strconv.Itoa(most), "").Code, path)
		assert.Equal(t, http.StatusBadRequest, f.Ask(http.MethodGet, asked+strconv.Itoa(most+1), "").Code, path)
	}

	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	failures := f.Get("/api/v1/failed")["items"].([]any)
	id := failures[1].(map[string]any)["id"].(string)
	job := f.Get("/api/v1/jobs")["items"].([]any)[1].(map[string]any)["id"].(string)
	for _, one := range []string{
		"GET /live", "GET /live?since=5", "GET /overview", "GET /attention", "GET /doctor", "GET /scale", "GET /scale?queues=q,m*,!x:3", "GET /scale?queues=m*,!x", "GET /scale?queue=q", "GET /queues", "GET /queues/mail", "GET /queues/mail/jobs",
		"GET /queues/mail/jobs?class=mail&limit=1", "GET /jobs", "GET /jobs?class=mail&until=1s&since=1h&worker=web-1", "GET /jobs/" + url.PathEscape(job), "GET /failed", "GET /failed?class=mail&match=12345&retried=no",
		"GET /failed?limit=1&cursor=1", "GET /failed/groups", "GET /failed/" + id, "GET /parked", "GET /workers", "GET /workers/web-1:9120", "GET /locks", "GET /locks?kind=locket", "GET /locks/waiting",
		"GET /locks/unique", "GET /longjobs", "GET /longjobs/none", "GET /schedule", "GET /schedule/delayed", "GET /schedule/delayed?limit=1&cursor=s4102444800,1,0123456789abcdef", "GET /schedule/delayed?cursor=1", "GET /redis", "GET /queues/none", "GET /locks/none",
		"GET /failed?cursor=-1", "GET /jobs?until=long", "GET /jobs?older=10m", `POST /queues/mail/jobs/move {"filter":{"class":"*"},"to":"other"}`, `POST /queues/mail/jobs/remove {"filter":{"arg":["0=1"]},"dry_run":true}`, `POST /queues/mail/jobs/remove {"filter":{"queue":"mail"}}`, `POST /schedule/delayed/remove {"filter":{"class":"*"},"dry_run":true}`, "POST /queues/mail/pause", "POST /queues/mail/resume", "POST /pause", "POST /resume",
		`POST /jobs {"class":"A","args":[1],"queue":"mail"}`, `POST /jobs {"class":"","args":[1]}`, "POST /jobs/none/kill", `POST /failed/retry {"ids":["` + id + `"]}`,
		`POST /failed/retry {"filter":{"class":"mail"},"dry_run":true}`, `POST /failed/remove {"filter":{"all":true},"expect":1}`, `POST /failed/remove {"filter":{"all":true},"expect":2}`,
		"POST /locks/none/release", "POST /longjobs/none/cancel", "POST /longjobs/none/requeue", "POST /schedule/none/run", "POST /queues/mail/purge",
		"GET /classes", "GET /classes?span=30d", "GET /classes?span=1y", "GET /classes/mail", "GET /classes/none", "GET /history", "GET /history?series=class:mail&step=1m", "GET /history?series=x", "GET /history?step=2m",
		"GET /history?from=5&to=4", "GET /history?step=1m&from=2026-01-01T00:00:00Z", "GET /history?step=1h&from=1&to=99999999999", "GET /history?from=noon", "GET /queues/mail/levels", "GET /queues/none/levels",
		"GET /events", "GET /events?kind=paused,purged&limit=1", "GET /events?kind=nothing", "GET /events?cursor=x", "GET /processes/" + url.PathEscape(webtest.Proc), "GET /processes/none", "GET /operations/none", "DELETE /operations/none",
		"POST /queues/mail/repair", "DELETE /queues/mail", `POST /schedule/delayed/run {"ids":["none"]}`, `POST /schedule/delayed/remove {}`, "POST /workers/none/drain", "POST /workers/web-1:9120/pause", "POST /workers/web-1:9120/jump",
		`POST /failed/retry {"filter":{"all":true},"background":true}`, "GET /operations/1",
	} {
		method, rest, _ := strings.Cut(one, " ")
		path, body, _ := strings.Cut(rest, " ")
		answer := f.Ask(method, "/api/v1"+path, body)
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

// The exposition has the format of Prometheus, and is bounded.
func TestMetrics(t *testing.T) {
	t.Parallel()
	f := webtest.Setup(t)
	f.Fill("a\"b\\c\nd\xff")
	for i := range 2000 {
		f.Do("SADD", "queues", fmt.Sprintf("queue-%04d", i))
	}
	sums := map[history.Name]*history.Sum{}
	for i := range history.MaxNames / 2 {
		sum := &history.Sum{}
		for j := range 300 {
			out := history.Processed
			if j == 0 {
				out |= history.Interrupted
			}
			sum.Add(out, time.Duration(j*j*j)*time.Millisecond, time.Duration(j*j*j)*time.Millisecond)
		}
		sums[history.Name{Kind: history.Class, Name: fmt.Sprintf("Module::With::A::Long::Name::Class%03d", i)}] = sum
		sums[history.Name{Kind: history.Queue, Name: fmt.Sprintf("queue-%04d", i)}] = sum
	}
	_, err := f.Store.AddHistory(t.Context(), []history.Series{{Minute: time.Now().Unix() / 60, Sums: sums}})
	require.NoError(t, err)
	for uuid, status := range map[string]string{"u1": "queued", "u2": "running", "u3": "running", "u4": "failed", "u5": "of another version"} {
		f.Do("HSET", "resqued:longjob:run:"+uuid, "status", status)
		f.Do("ZADD", "resqued:longjob:"+map[bool]string{true: "active", false: "ended"}[status == "queued" || status == "running"], "5", uuid)
	}
	f.Do("ZADD", "resqued:longjob:ended", "5", "forgotten meanwhile")
	f.Do("HSET", "resqued:master:"+webtest.Master, store.FieldEnds, "died=2 jobs=1000 memory=3")
	f.Ask(http.MethodGet, "/metrics", "")
	f.Do("HSET", "resqued:master:"+webtest.Master, store.FieldEnds, "died=3 jobs=1412 memory=4 age=x later=5 other=-1")
	_, err = f.Store.PutMaster(t.Context(), store.MasterInfo{ID: "web-2:boot:1-1", TTL: time.Hour, Fields: map[string]string{store.FieldEnds: store.ProcEnds{Recycled: [4]int64{5, 0, 0, 1}}.String()}})
	require.NoError(t, err)
	var text string
	require.Eventually(t, func() bool { // the next sample
		text = f.Ask(http.MethodGet, "/metrics", "").Body.String()
		f.Ask(http.MethodPost, "/queues/q", "act=pause", func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") })
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
	require.Less(t, len(text), 320<<10)
	require.Contains(t, text, `resqued_queue_jobs{queue="(other)"}`)
	require.Contains(t, text, "resqued_redis_up 1\n")
	require.Contains(t, text, `resqued_jobs_total{class="Module::With::A::Long::Name::Class007",outcome="done"} 300`)
	require.Contains(t, text, `resqued_jobs_interrupted_total{class="Module::With::A::Long::Name::Class007"} 1`+"\n")
	require.Contains(t, text, `resqued_job_wait_seconds_bucket{queue="queue-0007",le="+Inf"} 300`)
	require.Contains(t, text, `resqued_job_duration_seconds_count{class="Module::With::A::Long::Name::Class007"} 300`)
	require.Contains(t, text, `resqued_threads{host="web-1",state="busy"} 1`)
}

// No two names become one label, whatever their bytes: Prometheus would drop one of them.
func TestLabels(t *testing.T) {
	t.Parallel()
	f := webtest.Setup(t)
	sums := map[history.Name]*history.Sum{}
	for _, name := range []string{"a\xff", "a\xfe", "(other)", "a\n", "a\x00"} {
		f.Do("SADD", "queues", name)
		f.Do("RPUSH", "queue:"+name, `{"class":"A","args":[]}`)
		sum := &history.Sum{}
		sum.Add(history.Processed, time.Second, time.Second)
		sums[history.Name{Kind: history.Class, Name: name}], sums[history.Name{Kind: history.Queue, Name: name}] = sum, sum
	}
	for i := range 300 {
		f.Do("SADD", "queues", fmt.Sprintf("queue-%04d", i))
	}
	_, err := f.Store.AddHistory(t.Context(), []history.Series{{Minute: time.Now().Unix() / 60, Sums: sums}})
	require.NoError(t, err)
	text := f.Ask(http.MethodGet, "/metrics", "").Body.String()
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
