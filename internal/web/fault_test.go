package web_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/web"
)

const faultPatience = time.Minute

// admin is a client with one connection, which is open before anything is broken.
func admin(t *testing.T, r *redistest.Server) func(args ...any) error {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr, PoolSize: 1, MaxRetries: -1, DisableIdentity: true, ReadTimeout: faultPatience})
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Ping(t.Context()).Err())
	return func(args ...any) error { return c.Do(context.Background(), args...).Err() }
}

// TestRedisInTrouble: whatever Redis does, all pages answer, with what was read last; acts say what
// to do and change nothing; and all is back soon after Redis is.
func TestRedisInTrouble(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name string
		// breaks breaks a Redis and returns a function that repairs it.
		breaks func(t *testing.T, r *redistest.Server, do func(args ...any) error) (mend func())
		// readable: reads still work. said is part of the answer to changes; unsure: a change that was
		// sent may have been made.
		readable, unsure bool
		// retries: a retry is not refused.
		retries bool
		said    string
	}{
		{name: "killed", said: "Nothing was changed. Redis does not answer.", breaks: func(_ *testing.T, r *redistest.Server, _ func(args ...any) error) func() {
			r.Kill()
			return r.Restart
		}},
		{name: "hung", said: "look again before you repeat it. Redis does not answer.", unsure: true, breaks: func(_ *testing.T, r *redistest.Server, _ func(args ...any) error) func() {
			r.Hang()
			return r.Resume
		}},
		{name: "paused", said: "look again before you repeat it. Redis does not answer.", unsure: true, breaks: func(t *testing.T, r *redistest.Server, do func(args ...any) error) func() {
			require.NoError(t, do("CLIENT", "PAUSE", 10*faultPatience.Milliseconds(), "ALL"))
			return r.Restart // a paused server takes no commands
		}},
		{name: "loading", said: "Nothing was changed. Redis has just started and reads its data", breaks: func(t *testing.T, r *redistest.Server, do func(args ...any) error) func() {
			require.NoError(t, do("DEBUG", "POPULATE", 10_000, "filler", 1000))
			require.NoError(t, do("CONFIG", "SET", "loading-process-events-interval-bytes", 1024))
			require.NoError(t, do("CONFIG", "SET", "key-load-delay", 10_000))
			reload, ended := admin(t, r), make(chan error, 1)
			go func() { ended <- reload("DEBUG", "RELOAD") }()
			proctest.Await(t, faultPatience, func() bool {
				err := do("PING")
				return err != nil && strings.HasPrefix(err.Error(), "LOADING") || len(ended) > 0
			}, "a Redis that loads")
			return func() {
				require.NoError(t, do("CONFIG", "SET", "key-load-delay", 0))
				require.NoError(t, <-ended)
			}
		}},
		{name: "a replica", said: "Nothing was changed. That server is a replica: name the primary", readable: true, breaks: func(t *testing.T, _ *redistest.Server, do func(args ...any) error) func() {
			require.NoError(t, do("REPLICAOF", "127.0.0.1", "1"))
			return func() { require.NoError(t, do("REPLICAOF", "NO", "ONE")) }
		}},
		{name: "busy", said: "Nothing was changed. A script keeps Redis busy", breaks: func(t *testing.T, r *redistest.Server, do func(args ...any) error) func() {
			loop, ended := admin(t, r), make(chan struct{})
			go func() { defer close(ended); _ = loop("EVAL", "while true do end", 0) }()
			proctest.Await(t, faultPatience, func() bool { err := do("PING"); return err != nil && strings.HasPrefix(err.Error(), "BUSY") }, "a busy Redis")
			return func() { require.NoError(t, do("SCRIPT", "KILL")); <-ended }
		}},
		{name: "without the password", said: "Redis wants another password", breaks: func(t *testing.T, _ *redistest.Server, do func(args ...any) error) func() {
			require.NoError(t, do("ACL", "SETUSER", "web", ">other", "<secret"))
			require.NoError(t, do("CLIENT", "KILL", "USER", "web"))
			return func() { require.NoError(t, do("ACL", "SETUSER", "web", ">secret")) }
		}},
		{name: "without rights", said: "Nothing was changed. Its user lacks rights: docs/redis-keys.md", breaks: func(t *testing.T, _ *redistest.Server, do func(args ...any) error) func() {
			require.NoError(t, do("ACL", "SETUSER", "web", "-@all"))
			return func() { require.NoError(t, do("ACL", "SETUSER", "web", "+@all")) }
		}},
		// A retry takes no more room than its record: it still works.
		{name: "full", retries: true, said: "Nothing was changed. Redis is full", readable: true, breaks: func(t *testing.T, _ *redistest.Server, do func(args ...any) error) func() {
			require.NoError(t, do("CONFIG", "SET", "maxmemory", "1"))
			return func() { require.NoError(t, do("CONFIG", "SET", "maxmemory", "0")) }
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t, redistest.Options{
				Args:  []string{"--busy-reply-threshold", "50", "--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes"},
				Users: []string{"web on >secret ~* &* +@all", "default on nopass ~* &* +@all"},
			})
			do := admin(t, r)
			s := newSiteOn(t, r, "web:secret", "", func(s *site) {
				s.fail(3, "Mail", "Timeout", "slow")
				require.NoError(t, s.redis.SAdd(t.Context(), s.key+"queues", "mail").Err())
				require.NoError(t, s.redis.RPush(t.Context(), s.key+"queue:mail", `{"class":"Mail","args":["waits"]}`).Err())
			})
			const stale = "Not up to date"
			proctest.Await(t, faultPatience, func() bool {
				body := s.get("/")
				return strings.Contains(body, "nothing works this queue") && !strings.Contains(body, stale)
			}, "a sample")
			for _, path := range allPages {
				assert.NotContains(t, s.get(path), "Cannot be shown", path)
			}
			mend := fault.breaks(t, r, do)
			if !fault.readable {
				proctest.Await(t, faultPatience, func() bool { return strings.Contains(s.get("/"), stale) }, "a page that says that it is old")
			}
			longest, slowest := time.Duration(0), ""
			for _, path := range allPages {
				begun := time.Now()
				body := s.get(path)
				took := time.Since(begun)
				if took > web.ReadTime { // once may be the machine's fault
					begun = time.Now()
					s.get(path)
					took = min(took, time.Since(begun))
				}
				if took > longest {
					longest, slowest = took, path
				}
				assert.Contains(t, body, "</html>", path)
				assert.NotContains(t, body, "context deadline", path)
				assert.NotContains(t, body, "Cannot be shown", path)
				switch {
				case path == "/classes" || path == "/redis": // these are kept for a while anyway
				case fault.readable:
					assert.NotContains(t, body, stale, path)
				default: // each page is as old as what it read last
					proctest.Await(t, faultPatience, func() bool { return strings.Contains(s.get(path), stale) }, "%s says that it is old", path)
				}
			}
			t.Log("the longest page took", longest, slowest)
			assert.Less(t, longest, web.ReadTime+time.Second, "no page waits for all that it reads")
			assert.Contains(t, s.get("/queues"), `"/queues/mail"`, "what was read last")
			_, queues, _ := s.ask(http.MethodGet, "/api/v1/queues", nil)
			assert.Contains(t, queues, `"queue":"mail"`)
			assert.Equal(t, !fault.readable, strings.Contains(queues, `"stale":`), queues)
			status, _, _ := s.ask(http.MethodGet, "/healthz", nil)
			assert.Equal(t, http.StatusOK, status)

			var acts sync.WaitGroup // a Redis that is silent lets each wait for seconds
			for _, act := range [][2]string{{"/jobs", `{"class":"A","args":[],"queue":"mail"}`}, {"/queues/mail/pause", ""}, {"/failed/retry", `{"filter":{"all":true}}`}} {
				if fault.retries && act[0] == "/failed/retry" {
					continue
				}
				acts.Go(func() {
					code, answer := s.act(act[0], act[1])
					assert.Equal(t, http.StatusServiceUnavailable, code, "%s: %v", act[0], answer)
					assert.Contains(t, answer.Hint, fault.said, "%s: %v", act[0], answer)
				})
			}
			acts.Wait()
			mend()
			broken := time.Now()
			asked := 0
			proctest.Await(t, faultPatience, func() bool { asked++; return !strings.Contains(s.get("/"), stale) }, "a page that is up to date")
			t.Logf("up to date %s after Redis was back", time.Since(broken).Round(time.Millisecond))
			assert.Less(t, time.Since(broken), 30*time.Second, "a pause as long as the outage is none")
			waits, err := s.redis.LLen(t.Context(), s.key+"queue:mail").Result()
			require.NoError(t, err)
			if !fault.unsure {
				assert.EqualValues(t, 1, waits)
				assert.Contains(t, s.get("/failed?view=flat"), "Timeout")
				paused, err := s.redis.Keys(t.Context(), s.key+"*pause*").Result()
				require.NoError(t, err)
				assert.Empty(t, paused)
			}
			proctest.Await(t, faultPatience, func() bool {
				status, _ := s.act("/failed/retry", `{"filter":{"all":true}}`)
				return status == http.StatusOK
			}, "an act")
			after, err := s.redis.LRange(t.Context(), s.key+"queue:mail", 0, -1).Result()
			require.NoError(t, err)
			times := map[string]int{}
			for _, payload := range after {
				times[payload]++
			}
			for i := range 3 {
				assert.Equal(t, 1, times[`{"args":[`+string(rune('0'+i))+`],"class":"Mail"}`], "%v", after)
			}
		})
	}
}

var allPages = []string{"/", "/queues", "/queues/mail", "/jobs", "/failed", "/failed?view=flat", "/workers", "/locks", "/longjobs", "/schedule", "/classes", "/events", "/redis"}

// TestKeysOfWrongTypes: a key of the wrong type spoils only what is read from it (a list, a total, a
// row), from the first sample on. The rest of each page stays the same.
func TestKeysOfWrongTypes(t *testing.T) {
	t.Parallel()
	for key, c := range spoiled {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.Fill("mail")
			before := f.all(t)
			seen := f.Server
			f.Do("DEL", key)
			if key == "stat:processed" || strings.HasPrefix(key, "resqued:inflight") {
				f.Do("LPUSH", key, "of a wrong type")
			} else {
				f.Do("SET", key, "of a wrong type")
			}
			f.Server = web.New(f.Options) // one that has seen nothing before
			found := map[string]string{}
			after := f.all(t)
			for path, text := range after {
				if said := troubles(text); said != troubles(before[path]) {
					found[path] = said
				}
			}
			assert.Equal(t, c.says, found)
			for path, words := range c.shows {
				for word := range strings.SplitSeq(words, "|") {
					assert.Contains(t, after[path], word, path)
				}
			}
			// A server that has seen the old data still shows it, and says so.
			f.Server = seen
			f.Server.Outdate()
			for _, path := range []string{"/queues", "/jobs", "/workers"} {
				if c.says[path] == "Cannot be shown" {
					text := f.html(path)
					assert.Equal(t, "Not up to date", troubles(text), path)
					assert.Contains(t, text, ">mail</a>", path)
				}
			}
		})
	}
}

// spoiled has for each key what pages say when it has a wrong type, and what they show anyway,
// separated by |.
var spoiled = map[string]struct{ says, shows map[string]string }{
	"queues": {says: map[string]string{
		"/": "Not known; cannot be checked; cannot be checked; Cannot be shown", "/redis": "cannot be checked; cannot be checked",
		"/queues": "Cannot be shown", "/queues/mail": "Cannot be shown", "/locks": "Cannot be shown; Cannot be shown",
		"/api/v1/live": "queues,queues_paused,queues_waiting,waiting", "/api/v1/queues": "error",
	}, shows: map[string]string{"/": "busy of 2 threads|>mail</a>", "/workers": "web-1:9120", "/jobs": ">mail</a>", "/queues/mail": "12345678901234567890"}},
	// Waiting jobs are shown without their workers.
	"workers": {says: map[string]string{
		"/": "Not known; not all of it can be checked; cannot be checked; Not complete; Not complete", "/redis": "not all of it can be checked; cannot be checked",
		"/queues": "Not complete", "/queues/mail": "Not complete", "/workers": "Not complete", "/jobs": "Not complete",
		"/api/v1/live": "others,running,threads", "/api/v1/queues": "missing", "/api/v1/workers": "missing", "/api/v1/jobs": "missing",
	}, shows: map[string]string{"/": "waiting in 2 queues", "/queues": `/queues/mail"|unknown`, "/workers": "web-1:9120", "/jobs": ">mail</a>"}},
	"resqued:procs": {says: map[string]string{
		"/": "Not known; cannot be checked; cannot be checked; cannot be checked; Cannot be shown; Not complete", "/redis": "cannot be checked; cannot be checked; cannot be checked",
		"/queues": "Not complete", "/queues/mail": "Not complete", "/workers": "Cannot be shown", "/jobs": "Cannot be shown", "/locks": "Cannot be shown",
		"/api/v1/live": "processes,running,threads", "/api/v1/queues": "missing", "/api/v1/workers": "error", "/api/v1/jobs": "error",
	}, shows: map[string]string{"/": "waiting in 2 queues", "/queues": `/queues/mail"|unknown`}},
	"resqued:masters": {says: map[string]string{
		"/": "Not known; cannot be checked; cannot be checked; Not complete", "/redis": "cannot be checked; cannot be checked",
		"/queues": "Not complete", "/queues/mail": "Not complete", "/workers": "Cannot be shown",
		"/api/v1/live": "daemons,threads", "/api/v1/queues": "missing", "/api/v1/workers": "error",
	}, shows: map[string]string{"/": "waiting in 2 queues|>mail</a>", "/queues": `/queues/mail"|unknown`, "/jobs": ">mail</a>"}},
	// A row, and what needs attention.
	"resqued:master:" + master: {
		says:  map[string]string{"/": "its entry in Redis", "/redis": "its entry in Redis", "/workers": "Its entry in Redis"},
		shows: map[string]string{"/": "busy of 2 threads", "/workers": "web-1:9120|broken|>mail</a>", "/queues": `/queues/mail"`},
	},
	"resqued:proc:" + proc:     {says: map[string]string{"/": "does cannot be read", "/redis": "does cannot be read", "/workers": "does cannot be read"}},
	"resqued:inflight:" + proc: {says: map[string]string{"/": "does cannot be read", "/redis": "does cannot be read", "/workers": "does cannot be read"}},
	"queue:mail": {says: map[string]string{
		"/": "its key is not a list", "/redis": "its key is not a list", "/queues": "its key is not a list", "/queues/mail": "Its key is not a list; Cannot be shown", "/api/v1/queues": "its key is not a list",
	}, shows: map[string]string{"/": "waiting in 1 queue<", "/queues": `/queues/q"|broken`}},
	"failed":                 {says: map[string]string{"/": "Not known", "/api/v1/live": "failures", "/failed": "Cannot be shown", "/failed?view=flat": "Cannot be shown"}},
	"stat:processed":         {says: map[string]string{"/": "Not known", "/api/v1/live": "failed,processed"}},
	"resqued:parked":         {says: map[string]string{"/": "cannot be checked", "/redis": "cannot be checked", "/api/v1/live": "parked"}},
	"resqued:longjob:active": {says: map[string]string{"/": "Not known", "/api/v1/live": "longjobs", "/longjobs": "Cannot be shown"}},
	"delayed_queue_schedule": {says: map[string]string{"/": "Not known", "/api/v1/live": "delayed", "/schedule": "Cannot be shown"}},
	"delayed:4102444800":     {says: map[string]string{}}, // there are more than are counted
	"persistent_schedules":   {says: map[string]string{"/": "cannot be checked", "/redis": "cannot be checked", "/schedule": "Not complete", "/api/v1/schedule": "missing"}},
	"resqued:hist:names":     {says: map[string]string{"/classes": "Cannot be shown"}},
	"resqued:events":         {says: map[string]string{"/events": "Cannot be shown"}},
}

var troubleSaid = regexp.MustCompile(`<p class="trouble"[^>]*><b>([^:.,<(]*[^:.,<( ])|>(cannot be checked|not all of it can be checked)|"missing":(\{[^}]*\}|")|([Ii]ts entry in Redis|does cannot be read|[Ii]ts key is not a list)|"(error)":`)

// troubles returns what a page says of parts that could not be read, in its order.
func troubles(text string) string {
	var said []string
	for _, m := range troubleSaid.FindAllStringSubmatch(text, -1) {
		totals := map[string]string{}
		if m[3] == `"` {
			m[3] = "missing"
		} else if json.Unmarshal([]byte(m[3]), &totals) == nil {
			m[3] = strings.Join(slices.Sorted(maps.Keys(totals)), ",")
		}
		said = append(said, strings.Join(m[1:], ""))
	}
	return strings.Join(said, "; ")
}

// all returns all pages as text.
func (f *fixture) all(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, path := range append([]string{"/metrics", "/readyz", "/api/v1/live", "/api/v1/queues", "/api/v1/workers", "/api/v1/jobs", "/api/v1/schedule"}, allPages...) {
		answer := f.Ask(http.MethodGet, path, "", func(r *http.Request) { r.Header.Set("Accept", "text/html") })
		assert.True(t, answer.Code == http.StatusOK || strings.HasPrefix(path, "/api/"), "%s: %d", path, answer.Code)
		pages[path] = answer.Body.String()
	}
	return pages
}

func (f *fixture) html(path string) string {
	return f.Ask(http.MethodGet, path, "", func(r *http.Request) { r.Header.Set("Accept", "text/html") }).Body.String()
}

type apiError struct{ Code, Message, Hint string }

// act sends an act to the API.
func (s *site) act(path, body string) (int, apiError) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.URL+"/api/v1"+path, strings.NewReader(body))
	require.NoError(s, err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(s, err)
	defer answer.Body.Close()
	var v struct{ Error apiError }
	require.NoError(s, json.NewDecoder(answer.Body).Decode(&v))
	return answer.StatusCode, v.Error
}
