package web_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/web"
)

const twin = `{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"A","args":[1]},"exception":"E","error":"e","backtrace":[],"worker":"w","queue":"q"}`

// Failures that come between the count and the change are not changed.
func TestFailuresThatComeDuringAnAct(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		path, body string
		form       bool
	}{
		"all":                   {path: "/api/v1/failed/remove", body: `{"filter":{"all":true},"expect":2}`},
		"a class":               {path: "/api/v1/failed/remove", body: `{"filter":{"class":"A"},"expect":2}`},
		"all in the background": {path: "/api/v1/failed/remove", body: `{"filter":{"all":true},"expect":2,"background":true}`},
		"all by a form":         {path: "/failed", body: "act=remove-all&sure=1&expect=2", form: true},
		"a class by a form":     {path: "/failed?class=A", body: "act=remove-all&sure=1&expect=2", form: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *fixture
			var once sync.Once
			f = setup(t, func(o *web.Options) {
				// The log has an act just before it is done.
				o.Log = slog.New(slog.NewJSONHandler(writing(func() {
					once.Do(func() { f.Do("RPUSH", "failed", "new", strings.Replace(twin, "[1]", "[2]", 1)) })
				}), nil))
			})
			f.Do("RPUSH", "failed", twin, twin)
			answer := f.Ask(http.MethodPost, one.path, one.body, func(r *http.Request) {
				if one.form {
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				}
			})
			require.Less(t, answer.Code, 400, answer.Body.String())
			proctest.Await(t, time.Minute, func() bool { return f.Redis.LLen(t.Context(), f.Namespace+":failed").Val() <= 2 }, "the act")
			require.Equal(t, []string{"new", strings.Replace(twin, "[1]", "[2]", 1)}, f.Redis.LRange(t.Context(), f.Namespace+":failed", 0, -1).Val())
		})
	}
}

// writing is a writer that calls a function instead.
type writing func()

func (w writing) Write(text []byte) (int, error) {
	w()
	return len(text), nil
}

// A request that is sent again retries no other failure that is equal.
func TestAnActOnEqualFailuresIsSentAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Do("RPUSH", "failed", twin, twin, twin)
	for range 3 {
		f.Post("/api/v1/failed/retry", `{"ids":["`+store.FailureID([]byte(twin), 1)+`"]}`)
		f.Ask(http.MethodPost, "/failed", "act=retry&id="+store.FailureID([]byte(twin), 1), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
	}
	left := f.Redis.LRange(t.Context(), f.Namespace+":failed", 0, -1).Val()
	require.Equal(t, twin, left[0])
	require.Equal(t, twin, left[2])
	require.EqualValues(t, 1, f.Redis.LLen(t.Context(), f.Namespace+":queue:q").Val())
}

// A search goes on where it was when lists of failures come and go between its steps.
func TestListsOfFailuresComeDuringASearch(t *testing.T) {
	t.Parallel()
	f := setup(t)
	add := func(list string, from, to int) {
		t.Helper()
		if list != "failed" {
			f.Do("SADD", "failed_queues", list)
		}
		for i := from; i < to; i++ {
			f.Do("RPUSH", list, strings.Replace(twin, "[1]", fmt.Sprintf("[%d]", i), 1))
		}
	}
	add("failed", 0, 2)
	add("m_failed", 2, 4)
	add("p@x_failed", 4, 6)
	add("z_failed", 6, 8)
	var found []int
	steps, cursor := 0, ""
	for {
		v := f.Get("/api/v1/failed?class=A&limit=1&cursor=" + url.QueryEscape(cursor))
		for _, one := range v["items"].([]any) {
			found = append(found, int(one.(map[string]any)["args"].([]any)[0].(float64)))
		}
		if v["next"] == nil {
			break
		}
		cursor = v["next"].(string)
		switch steps++; steps {
		case 1:
			add("a_failed", 100, 101)
			add("failed", 101, 102)
		case 3:
			add("b_failed", 102, 104)
			add("m_failed", 104, 105)
		case 5:
			f.Do("SREM", "failed_queues", "p@x_failed")
			require.NoError(t, f.Redis.Del(t.Context(), f.Namespace+":p@x_failed").Err())
			add("q_failed", 105, 106)
		}
		require.Less(t, steps, 20)
	}
	require.Equal(t, []int{1, 0, 100, 3, 2, 105, 7, 6}, found, "what comes later and before is passed over, as new failures are")
	require.Equal(t, http.StatusBadRequest, f.Ask(http.MethodGet, "/api/v1/failed?cursor=x", "").Code)
	require.Equal(t, http.StatusBadRequest, f.Ask(http.MethodGet, "/api/v1/failed?cursor=-1@m_failed", "").Code)
}

// TestGroupsThatTakeLong: a request whose time is up does not wait until another one has grouped failures.
func TestGroupsThatTakeLong(t *testing.T) {
	t.Parallel()
	f := setup(t)
	let := f.Server.HoldGroups()
	defer let()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	answer := f.Ask(http.MethodGet, "/api/v1/failed/groups", "", func(r *http.Request) { *r = *r.WithContext(ctx) })
	require.Equal(t, http.StatusServiceUnavailable, answer.Code, answer.Body)
}
