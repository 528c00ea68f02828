package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAllThatFit: acts on all that a page shows ask with their number first, and change these jobs alone.
func TestAllThatFit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.Fill("mail")
	for i := range 20 {
		s.Do("RPUSH", "queue:mail", fmt.Sprintf(`{"class":"Mail","args":[{"customer": %d}]}`, i%4))
		s.Do("RPUSH", "failed", fmt.Sprintf(`{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"Pay","args":[%d]},"exception":"E","error":"try %d","queue":"mail"}`, i, i))
		due := 4102448400 + i%2
		s.Do("ZADD", "delayed_queue_schedule", due, due)
		s.Do("RPUSH", fmt.Sprintf("delayed:%d", due), fmt.Sprintf(`{"class":"Later","args":[%d],"queue":"mail"}`, i))
	}
	length := func(list string) int64 { return s.Redis.LLen(t.Context(), s.Namespace+":"+list).Val() }
	form := func(path string, fields url.Values) (string, int) {
		answer := s.Ask(http.MethodPost, path, fields.Encode(), func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") })
		return answer.Body.String() + answer.Header().Get("Location"), answer.Code
	}
	expect := regexp.MustCompile(`name="expect" value="(\d+)"`)
	all := func(path, act, number string, more ...string) {
		t.Helper()
		fields := url.Values{"act": {act}}
		for i := 0; i < len(more); i += 2 {
			fields.Set(more[i], more[i+1])
		}
		asked, code := form(path, fields)
		require.Equal(t, http.StatusOK, code, asked)
		require.Equal(t, number, expect.FindStringSubmatch(asked)[1], asked)
		fields.Set("sure", "1")
		fields.Set("expect", "7")
		asked, _ = form(path, fields)
		require.Contains(t, asked, "has changed since")
		fields.Set("expect", number)
		to, code := form(path, fields)
		require.Equal(t, http.StatusSeeOther, code, to)
		require.Eventually(t, func() bool { return s.Get("/api/v1" + to[len(to)-len("/operations/1"):])["ended"].(bool) }, time.Minute, time.Millisecond)
	}
	before := length("queue:mail")
	all("/queues/mail?arg=0.customer%3D3", "remove-all", "5")
	assert.Equal(t, before-5, length("queue:mail"))
	all("/queues/mail?arg=0.customer%3D2&class=Mail", "move-all", "5", "to", "other")
	assert.Equal(t, []int64{before - 10, 5}, []int64{length("queue:mail"), length("queue:other")})
	said, code := form("/queues/mail?class=Mail", url.Values{"act": {"move-all"}, "to": {"mail"}})
	assert.Equal(t, http.StatusBadRequest, code, said)
	said, code = form("/queues/mail", url.Values{"act": {"remove-all"}})
	assert.Equal(t, http.StatusBadRequest, code, said)

	all("/schedule?class=Later&since=2100-01-01T01:00:01Z", "remove-all", "10")
	assert.Equal(t, []int64{10, 0}, []int64{length("delayed:4102448400"), length("delayed:4102448401")})
	all("/schedule?class=L*", "run-all", "10")
	assert.Equal(t, before, length("queue:mail"))

	groups := s.Get("/api/v1/failed/groups?class=Pay")["items"].([]any)
	require.Len(t, groups, 1)
	group := groups[0].(map[string]any)["id"].(string)
	require.Contains(t, s.Ask(http.MethodGet, "/failed?class=Pay", "").Body.String(), `action="/failed?class=Pay&amp;group=`+group)
	failed := length("failed")
	all("/failed?class=Pay&group="+group, "remove-all", "20")
	assert.Equal(t, failed-20, length("failed"))

	asked, code := form("/jobs?class=none", url.Values{"act": {"kill-all"}})
	assert.Equal(t, http.StatusBadRequest, code, asked)
	asked, code = form("/jobs?queue=q", url.Values{"act": {"kill-all"}})
	assert.Equal(t, http.StatusOK, code, asked)
	assert.Contains(t, asked, "Kill 1 running job?")

	v, code := s.Post("/api/v1/queues/mail/jobs/remove", `{"filter":{"arg":["0.customer=0","0.customer=0"]},"expect":4}`)
	assert.Equal(t, http.StatusConflict, code, v)
	v, code = s.Post("/api/v1/queues/mail/jobs/move", `{"filter":{"args":[{"customer":0}]},"to":"other","background":true}`)
	assert.Equal(t, http.StatusOK, code, v)
	require.Eventually(t, func() bool { return s.Get("/api/v1/operations/" + v["operation"].(string))["ended"].(bool) }, time.Minute, time.Millisecond)
	assert.EqualValues(t, 10, length("queue:other"))
	for _, body := range []string{`{"ids":["abcdefgh"]}`, `{"filter":{"queue":"mail"}}`, `{"filter":{"classs":"A"}}`, `{"filter":{"class":""}}`, `{"filter":{"class":[]}}`, `{"filter":{"all":false}}`, `{"filter":{"class":"A","all":true}}`, `{"filter":{"since":"soon"}}`, `{"filter":{"class":"A"},"to":"other"}`, `{}`} {
		v, code := s.Post("/api/v1/queues/mail/jobs/remove", body)
		assert.Equal(t, http.StatusBadRequest, code, "%s: %v", body, v)
	}
	for _, path := range []string{"/failed?klass=A", "/jobs?older=10m", "/queues/mail/jobs?queue=x", "/overview?x=1", "/failed?class=!A", "/jobs?since=soon", "/failed?match=a&match=b"} {
		assert.Equal(t, http.StatusBadRequest, s.Ask(http.MethodGet, "/api/v1"+path, "").Code, path)
	}
}

// TestAddresses: a wrong method and a slash too many are told from what is not there.
func TestAddresses(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.Fill("mail")
	for _, c := range []struct {
		method, path string
		code         int
		header, want string
	}{
		{http.MethodPut, "/queues", http.StatusMethodNotAllowed, "Allow", "GET"},
		{http.MethodDelete, "/failed", http.StatusMethodNotAllowed, "Allow", "GET, POST"},
		{http.MethodGet, "/api/v1/failed/retry/x", http.StatusNotFound, "Allow", ""},
		{http.MethodGet, "/api/v1/queues/mail/pause", http.StatusMethodNotAllowed, "Allow", "POST"},
		{http.MethodPut, "/nothing", http.StatusNotFound, "Allow", ""},
		{http.MethodGet, "/queues/?sort=size", http.StatusPermanentRedirect, "Location", "/queues?sort=size"},
	} {
		answer := s.Ask(c.method, c.path, "")
		assert.Equal(t, c.code, answer.Code, "%s %s: %s", c.method, c.path, answer.Body)
		assert.Equal(t, c.want, answer.Header().Get(c.header), "%s %s", c.method, c.path)
	}
	locks := s.Get("/api/v1/locks?kind=locket")["items"].([]any)
	page := s.Ask(http.MethodGet, "/locks/-?name="+url.QueryEscape(locks[0].(map[string]any)["key"].(string)), "").Body.String()
	job := regexp.MustCompile(`<h2>Holder</h2><p><a href="([^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, job, page)
	require.Equal(t, http.StatusOK, s.Ask(http.MethodGet, job[1], "").Code, job[1])
}
