package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/webtest"
	"github.com/resqued/resqued/internal/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Probing()) }

// fixture is a server with its own Redis, and helpers of these tests.
type fixture struct{ *webtest.Fixture }

const (
	proc   = webtest.Proc
	master = webtest.Master
)

func setup(t *testing.T, change ...func(*web.Options)) *fixture {
	t.Helper()
	return &fixture{webtest.Setup(t, change...)}
}

var placeholder = regexp.MustCompile(`{\w+}`)

// Every route requires its role, and none answers another site's page.
func TestRoles(t *testing.T) {
	t.Parallel()
	visitor := web.Visitor{Role: web.Viewer}
	f := setup(t, func(o *web.Options) { o.Who = func(*http.Request) (web.Visitor, error) { return visitor, nil } })
	acts := 0
	for _, r := range web.Table() {
		path := placeholder.ReplaceAllString(r.Path, "x")
		answer := f.Ask(r.Method, path, "")
		assert.Equal(t, r.Role == web.Operator, answer.Code == http.StatusForbidden, "%s %s: %s", r.Method, path, answer.Body)
		assert.Less(t, answer.Code, 500, path)
		assert.Contains(t, answer.Header().Get("Content-Security-Policy"), "default-src 'none'")
		assert.Equal(t, r.Method != http.MethodGet, r.Role == web.Operator, "%s changes something, or not", path)
		cross := f.Ask(r.Method, path, "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
		if r.Method != http.MethodGet {
			acts++
			assert.Equal(t, http.StatusForbidden, cross.Code, path)
			assert.Contains(t, cross.Body.String(), "cross_site")
		}
		foreign := f.Ask(r.Method, path, "", func(r *http.Request) { r.Host = "evil.example" })
		assert.Equal(t, http.StatusMisdirectedRequest, foreign.Code, path)
	}
	assert.Greater(t, acts, 10)
}

// The description has every route and nothing else.
func TestRoutes(t *testing.T) {
	t.Parallel()
	var doc struct{ Paths map[string]map[string]any }
	require.NoError(t, json.Unmarshal(setup(t).Ask(http.MethodGet, "/api/v1/openapi.json", "").Body.Bytes(), &doc))
	described := map[string]bool{}
	for path, methods := range doc.Paths {
		for method := range methods {
			described[strings.ToUpper(method)+" /api/v1"+path] = true
		}
	}
	for _, r := range web.Table() {
		if strings.HasPrefix(r.Path, "/api/v1/") {
			assert.True(t, described[r.Method+" "+r.Path], "%s %s is not described", r.Method, r.Path)
			delete(described, r.Method+" "+r.Path)
		}
	}
	assert.Empty(t, described, "described, and not there")
}

// Numbers of arguments are as they were pushed.
func TestNumbers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail")
	for _, path := range []string{"/api/v1/queues/mail/jobs", "/api/v1/jobs", "/api/v1/failed", "/api/v1/schedule/delayed"} {
		assert.Contains(t, f.Ask(http.MethodGet, path, "").Body.String(), `["mail",12345678901234567890,0.10]`, path)
	}
}

// No name of a job, queue or worker, and no request, leads to a server error.
func TestHostile(t *testing.T) {
	t.Parallel()
	values := []string{"x", "-", "%00", "%ff", "..%2f..", "%2e%2e", strings.Repeat("a", 5000), "-1", "9999999999999999999"}
	queries := []string{"", "?name=%ff", "?limit=-1", "?limit=1e9", "?cursor=99999999999999999999", "?cursor=-5", "?class=%ff", "?args=" + strings.Repeat("a", 5000), "?since=x", "?%zz", "?kind=%00"}
	for n, name := range []string{"<script>alert(1)</script>", "a/b?c#d", "bad \xff\xfe UTF-8", "\u202eabc", `"quoted\`, "new\nline", strings.Repeat("x", 64<<10), "-", "..", "%2F"} {
		f := setup(t)
		f.Fill(name)
		for _, r := range web.Table() {
			if r.Method != http.MethodGet {
				continue
			}
			for v, value := range values {
				path := placeholder.ReplaceAllString(r.Path, strings.ReplaceAll(value, "$", ""))
				for q, query := range queries {
					if v > 0 && (path == r.Path || n > 0 && q > 0) {
						continue // covered: with the first name every pair is requested
					}
					answer := f.Ask(r.Method, path+query, "")
					for range 5 { // a machine that is busy with other work
						if answer.Code != http.StatusServiceUnavailable {
							break
						}
						answer = f.Ask(r.Method, path+query, "")
					}
					require.Less(t, answer.Code, 500, "%s%s: %s", path, query, answer.Body.String())
				}
			}
		}
		for _, path := range []string{"/api/v1/jobs", "/api/v1/failed/retry"} {
			for _, body := range []string{"{", "[]", "null", `{"class":1}`, `{"ids":[""]}`, `{"ids":["a"]}`, `{"ids":["x"],"filter":{"all":true}}`, `{"filter":{}}`, `{"x":1}`, `{"class":"A"} {}`, `{"class":"A","args":{}}`, `{"class":"A","queue":"","args":[]}`, `{"class":"A","queue":"q","args":null}`, "{\"class\":\"A\xff\",\"queue\":\"q\"}", "{\"class\":\"A\",\"queue\":\"q\xff\"}", strings.Repeat(" ", 70<<10)} {
				answer := f.Ask(http.MethodPost, path, body)
				require.GreaterOrEqual(t, answer.Code, 400, body[:min(len(body), 50)])
				require.Less(t, answer.Code, 500, "%s: %s", body[:min(len(body), 50)], answer.Body.String())
			}
		}
		answer := f.Ask(http.MethodPost, "/api/v1/jobs", "", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
		require.Equal(t, http.StatusUnsupportedMediaType, answer.Code)
	}
}

// A very short id would match many failures.
func TestShortIDs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i := range 64 {
		f.Do("RPUSH", "failed", fmt.Sprint("record ", i))
	}
	for _, id := range []string{"", "a", "@", "@0000000", "a@0000000", "a@xxxxxxxxx"} {
		_, code := f.Post("/api/v1/failed/remove", `{"ids":["`+id+`"]}`)
		assert.Equal(t, http.StatusBadRequest, code, id)
		form := f.Ask(http.MethodPost, "/failed", url.Values{"act": {"remove"}, "sure": {"1"}, "id": {id}}.Encode(), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
		assert.Equal(t, http.StatusBadRequest, form.Code, id)
	}
	all := f.Ask(http.MethodPost, "/failed/aaaaaaaa@1", "act=remove-all", func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
	assert.Equal(t, http.StatusBadRequest, all.Code, "the page of one failure has no act on all")
	assert.EqualValues(t, 64, f.Get("/api/v1/failed")["total"])
}

// The server answers to its configured names, however they are written.
func TestHosts(t *testing.T) {
	t.Parallel()
	f := setup(t, func(o *web.Options) { o.Hosts = []string{"Jobs.Example.:443"} })
	for host, known := range map[string]bool{
		"jobs.example": true, "JOBS.EXAMPLE.:5678": true, "evil.example": false, "jobs.example.evil": false, "[evil.example]": false, "0x7f.1": false,
		"LocalHost.:1": true, "[::1]:5678": true, "192.0.2.1": true,
	} {
		answer := f.Ask(http.MethodGet, "/healthz", "", func(r *http.Request) { r.Host = host })
		require.Equal(t, known, answer.Code == http.StatusOK, "%s: %d", host, answer.Code)
	}
}

// An unchanged page is not sent again, even behind a proxy that weakens its tag. Operators and viewers
// get different pages.
func TestTags(t *testing.T) {
	t.Parallel()
	visitor := web.Visitor{Role: web.Viewer}
	f := setup(t, func(o *web.Options) { o.Who = func(*http.Request) (web.Visitor, error) { return visitor, nil } })
	f.Fill("mail")
	ask := func(tag string) *httptest.ResponseRecorder {
		return f.Ask(http.MethodGet, "/failed?view=flat", "", func(r *http.Request) {
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
	f.Fill("mail")
	v, code := f.Post("/api/v1/queues/mail/pause", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "paused", v["outcome"])
	paused, _, err := f.Store.Paused(t.Context(), "mail")
	require.NoError(t, err)
	require.True(t, paused["mail"])
	v, code = f.Post("/api/v1/queues/mail/pause", `{"for":"30m","reason":"migration 4711"}`)
	require.Equal(t, http.StatusOK, code, v)
	why := f.Get("/api/v1/queues/mail")["why"].(string)
	require.Regexp(t, "^paused by [^,]+: migration 4711$", why, "a pause without an end stays so")
	_, code = f.Post("/api/v1/pause", `{"for":"1d"}`)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, f.Get("/api/v1/queues/mail")["why"], "; all queues are paused by ")
	_, code = f.Post("/api/v1/resume", "")
	require.Equal(t, http.StatusOK, code)
	_, code = f.Post("/api/v1/queues/mail/pause", `{"for":"a while"}`)
	require.Equal(t, http.StatusBadRequest, code)
	v, _ = f.Post("/api/v1/queues/mail/resume", "")
	require.Equal(t, "resumed", v["outcome"])

	v, _ = f.Post("/api/v1/jobs", `{"class":"Mail","args":[12345678901234567890],"queue":"new"}`)
	require.Equal(t, "new", v["queue"])
	payloads, err := f.Store.Payloads(t.Context(), "new", 0, 1)
	require.NoError(t, err)
	require.Contains(t, string(payloads[0]), "[12345678901234567890]")

	id := f.Get("/api/v1/failed")["items"].([]any)[1].(map[string]any)["id"].(string)
	v, _ = f.Post("/api/v1/failed/retry", `{"ids":["`+id+`"]}`)
	require.EqualValues(t, 1, v["count"])
	n, err := f.Store.Length(t.Context(), "mail")
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	v, _ = f.Post("/api/v1/failed/remove", `{"filter":{"all":true},"dry_run":true}`)
	require.Equal(t, map[string]any{"outcome": "would_be_removed", "count": 2.0}, v)
	_, code = f.Post("/api/v1/failed/remove", `{"filter":{"all":true},"expect":1}`)
	require.Equal(t, http.StatusConflict, code)
	v, _ = f.Post("/api/v1/failed/remove", `{"filter":{"all":true},"expect":2}`)
	require.EqualValues(t, 2, v["count"])

	job := f.Get("/api/v1/jobs")["items"].([]any)[1].(map[string]any)["id"].(string)
	v, _ = f.Post("/api/v1/jobs/"+url.PathEscape(job)+"/kill", "")
	require.Equal(t, store.KillAsked, v["outcome"], "%v", v)
	v, _ = f.Post("/api/v1/queues/mail/purge", "")
	require.EqualValues(t, 3, v["count"])

	// Each change is an event with its author, the newest first.
	var acts []string
	for _, item := range f.Get("/api/v1/events")["items"].([]any) {
		if e := item.(map[string]any); e["via"] == "web" {
			require.Equal(t, "ann@127.0.0.1", e["by"])
			acts = append(acts, fmt.Sprintf("%s %s", e["kind"], e["subject"]))
		}
	}
	require.Equal(t, []string{"purged queue mail", "killed jobs", "removed failures", "retried failures", "resumed queue mail", "resumed all queues", "paused all queues", "paused queue mail", "paused queue mail"}, acts)
}

// A page of failures continues where the previous one ended, whatever is added in between.
func TestPagesOfFailures(t *testing.T) {
	t.Parallel()
	f := setup(t)
	record := func(i int) string {
		return fmt.Sprintf(`{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"C%d","args":[%d]},"exception":"E","error":"e","queue":"q"}`, i%10, i)
	}
	for i := range 450 {
		f.Do("RPUSH", "failed", record(i))
	}
	seen := map[string]bool{}
	cursor, looked := "", 0.0
	for range 100 {
		page := f.Get("/api/v1/failed?class=C3&limit=7" + cursor)
		looked += page["looked"].(float64)
		for _, item := range page["items"].([]any) {
			args := fmt.Sprint(item.(map[string]any)["args"])
			require.False(t, seen[args], args)
			seen[args] = true
		}
		f.Do("RPUSH", "failed", record(1003))
		if page["next"] == nil {
			break
		}
		cursor = "&cursor=" + page["next"].(string)
	}
	require.Len(t, seen, 45)
	require.EqualValues(t, 450, looked)
}

// If each queue has a list of failures, a search reads all of them; without a search, the newest of
// all are shown.
func TestPagesOfListsOfFailures(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Do("SADD", "failed_queues", "a_failed", "b_failed", "none_failed")
	for i := range 260 {
		list := []string{"a_failed", "b_failed", "failed"}[i%3]
		f.Do("RPUSH", list, fmt.Sprintf(`{"failed_at":"2026/11/24 01:%02d:%02d UTC","payload":{"class":"C%d","args":[%d]},"exception":"E","error":"e","queue":"q"}`, i/60, i%60, i%10, i))
	}
	page := f.Get("/api/v1/failed?limit=2")
	require.EqualValues(t, 260, page["total"])
	require.Equal(t, true, page["partial"], "there are more, and no next page")
	require.Equal(t, []any{259.0}, page["items"].([]any)[0].(map[string]any)["args"])
	require.Contains(t, f.Ask(http.MethodGet, "/failed?view=flat", "").Body.String(), "The newest of 260")
	seen := map[string]bool{}
	cursor, looked := "", 0.0
	for range 100 {
		page := f.Get("/api/v1/failed?class=C3&limit=4" + cursor)
		looked += page["looked"].(float64)
		for _, item := range page["items"].([]any) {
			args := fmt.Sprint(item.(map[string]any)["args"])
			require.False(t, seen[args], args)
			seen[args] = true
		}
		f.Do("RPUSH", "failed", "a new one")
		require.Equal(t, page["next"] != nil, page["partial"])
		if page["next"] == nil {
			break
		}
		cursor = "&cursor=" + page["next"].(string)
	}
	require.Len(t, seen, 26)
	require.EqualValues(t, 260, looked)
	page = f.Get("/api/v1/failed?class=none")
	for page["next"] != nil { // on a busy machine a step may end early
		require.Equal(t, []any{}, page["items"])
		page = f.Get("/api/v1/failed?class=none&cursor=" + page["next"].(string))
	}
	require.Equal(t, []any{}, page["items"])
	require.Equal(t, false, page["partial"])
}

// An unreadable part leaves the rest whole.
func TestTrouble(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail")
	require.NotEmpty(t, f.Get("/api/v1/queues")["items"])
	for _, key := range []string{"failed", "workers", "resqued:parking", "delayed_queue_schedule"} {
		f.Do("DEL", key)
		f.Do("SET", key, "of a wrong type")
	}
	for path, fails := range map[string]bool{
		"/api/v1/queues": false, "/api/v1/jobs": false, "/api/v1/overview": false, "/metrics": false, "/readyz": false, "/api/v1/queues/mail/jobs": false,
		"/api/v1/locks": false, "/api/v1/failed": true,
	} {
		answer := f.Ask(http.MethodGet, path, "")
		text := answer.Body.String()
		assert.Equal(t, fails, answer.Code != http.StatusOK, "%s: %s", path, text)
		assert.True(t, answer.Code == http.StatusOK || strings.Contains(text, `"error"`), text)
	}
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
	// A proxy that does not name its user has no role, even on this machine.
	_, code = who("10.1.2.3:1", nil)
	require.Equal(t, http.StatusUnauthorized, code)
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Via"} {
		_, code = who("127.0.0.1:1", func(r *http.Request) { r.Header.Set(name, "192.0.2.1") })
		require.Equal(t, http.StatusUnauthorized, code, name)
	}
	v, _ = who("192.0.2.1:1", func(r *http.Request) { r.Header.Set("Authorization", "bearer look") })
	require.Equal(t, "grafana", v.Name)
	// A proxy that adds a second header: the order of the names is not reliable.
	_, code = who("10.1.2.3:1", func(r *http.Request) { r.Header["X-User"] = []string{"bob", "eve"} })
	require.Equal(t, http.StatusForbidden, code)
	// An open page repeats its removed token; only distinct guesses slow down an address.
	logs, seen := observer.New(zap.WarnLevel)
	login.Log = slog.New(zapslog.NewHandler(logs))
	for range 20 {
		_, code = who("192.0.2.9:1", bearer("removed"))
		require.Equal(t, http.StatusUnauthorized, code)
	}
	for i := range 9 {
		_, code = who("192.0.2.9:1", bearer(fmt.Sprint("guess", i)))
		require.Equal(t, http.StatusUnauthorized, code)
	}
	_, code = who("192.0.2.9:1", bearer("another guess"))
	require.Equal(t, http.StatusTooManyRequests, code)
	v, code = who("192.0.2.9:1", bearer("look"))
	require.Equal(t, http.StatusOK, code, "a right token is never refused for what others of its address try")
	require.Equal(t, "grafana", v.Name)
	_, code = who("192.0.2.8:1", bearer("guess"))
	require.Equal(t, http.StatusUnauthorized, code, "another address is not slowed down")
	require.Len(t, seen.All(), 2, "a line for each address")
	require.Equal(t, map[string]any{"from": "192.0.2.9:1", "why": "the token is not known"}, seen.All()[0].ContextMap())
	for i := range 3_000 {
		who(fmt.Sprintf("198.51.%d.%d:1", i/250, i%250), bearer("guess"))
	}
	require.LessOrEqual(t, seen.Len(), 1_001, "from however many addresses")
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
