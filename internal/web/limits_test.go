package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/web"
)

// The number of concurrent searches is limited; other requests continue.
func TestSearches(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail")
	for range 2 * web.MaxSearches {
		require.Equal(t, http.StatusOK, f.Ask(http.MethodGet, "/api/v1/failed?class=mail", "").Code, "each leaves its place")
	}
	ends := make([]func(), web.MaxSearches)
	for i := range ends {
		ends[i] = f.Server.Search()
	}
	searches := []string{"/api/v1/failed?class=mail", "/api/v1/failed/groups?class=mail", "/failed?class=mail", "/failed?view=flat&match=x", "/api/v1/queues/mail/jobs?match=x", "/queues/mail?class=mail"}
	answers := make(chan *httptest.ResponseRecorder, len(searches))
	for _, path := range searches {
		go func() { answers <- f.Ask(http.MethodGet, path, "") }()
	}
	for _, path := range []string{"/api/v1/failed", "/api/v1/failed/groups", "/failed", "/failed?view=flat", "/api/v1/queues/mail/jobs", "/queues/mail"} {
		require.Equal(t, http.StatusOK, f.Ask(http.MethodGet, path, "").Code, path)
	}
	require.Empty(t, answers, "they wait")
	ends[0]()
	for range searches { // one after the other
		answer := <-answers
		assert.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, answer.Code)
	}
	f.Server.Search() // the place that was free
	require.Contains(t, f.Ask(http.MethodGet, "/api/v1/failed?class=mail", "").Body.String(), `"code":"busy"`)
}

// No route takes a body of more than 64 KiB.
func TestBodies(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail")
	large := strings.Repeat("x", 64<<10)
	tried := 0
	for path, form := range map[string]bool{
		"/api/v1/jobs": false, "/api/v1/failed/retry": false, "/api/v1/failed/remove": false, "/api/v1/schedule/delayed/run": false, "/api/v1/schedule/delayed/remove": false,
		"/queues/mail": true, "/jobs": true, "/failed": true, "/workers/x": true, "/locks/x": true, "/schedule": true, "/longjobs/x": true, "/operations/1": true,
	} {
		body := `{"class":"A","args":["` + large + `"]}`
		if form {
			body = "act=pause&id=" + large
		}
		answer := f.Ask(http.MethodPost, path, body, func(r *http.Request) {
			if form {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
		})
		assert.Equal(t, http.StatusRequestEntityTooLarge, answer.Code, "%s: %s", path, answer.Body)
		tried++
	}
	require.Equal(t, 13, tried)
	paused, _, err := f.Store.Paused(t.Context(), "mail")
	require.NoError(t, err)
	require.False(t, paused["mail"])
	require.EqualValues(t, http.StatusOK, f.Ask(http.MethodPost, "/api/v1/jobs", `{"class":"A","queue":"mail","args":["`+large[:60<<10]+`"]}`).Code)
}
