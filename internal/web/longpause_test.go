package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/longjob"
)

// unlikely are ids that no run has, escaped for a path.
var unlikely = []string{"none", "-x", "..%2F..%2Fetc", "a%2Fb", "%00", "%FF", "%3Cscript%3E", "*", strings.Repeat("x", 2000)}

// The page of a run pauses and resumes it, and says why it is paused.
func TestPagesPauseALongJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", func(*site) {})
	long, err := longjob.NewClient(longjob.ClientOptions{URL: redistest.Shared(t).URL(), Namespace: strings.TrimSuffix(s.key, ":")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = long.Close() })
	res, err := long.Enqueue(t.Context(), "Copy", nil, longjob.Queue("medium"))
	require.NoError(t, err)
	at := "/longjobs/" + res.UUID
	state := func() longjob.Status {
		run, err := long.Get(t.Context(), res.UUID)
		require.NoError(t, err)
		return run.Status
	}
	assert.Contains(t, s.get(at), `value="pause"`)
	assert.NotContains(t, s.get(at), `value="resume"`)

	for range 2 { // pausing what is paused does nothing
		status, _, to := s.post(at, "act", "pause")
		require.Equal(t, http.StatusSeeOther, status)
		page := s.get(to)
		assert.Contains(t, page, `value="resume"`)
		assert.NotContains(t, page, `value="pause"`)
		require.Equal(t, longjob.StatusPaused, state())
	}
	assert.Contains(t, s.get("/longjobs?status=paused"), res.UUID)

	status, _, to := s.post(at, "act", "resume")
	require.Equal(t, http.StatusSeeOther, status)
	assert.Contains(t, s.get(to), `value="pause"`)
	require.Equal(t, longjob.StatusQueued, state())
	status, body, _ := s.post(at, "act", "resume")
	require.Equal(t, http.StatusConflict, status)
	assert.Contains(t, body, "not paused")

	require.NoError(t, long.Cancel(t.Context(), res.UUID))
	for _, act := range []string{"pause", "resume"} {
		status, body, _ := s.post(at, "act", act)
		require.Equal(t, http.StatusConflict, status, "%s of one that is over", act)
		assert.Contains(t, body, "over")
		assert.NotContains(t, s.get(at), `value="`+act+`"`)
		for _, id := range unlikely {
			status, body, _ := s.post("/longjobs/"+id, "act", act)
			assert.GreaterOrEqual(t, status, 400, "%s %s", act, id)
			assert.Less(t, status, 500, "%s %s", act, id)
			assert.NotContains(t, body, "<script>", "%s %s", act, id)
		}
	}
	require.Equal(t, longjob.StatusCancelled, state())
}

// The API does the same.
func TestPausingALongJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Do("HSET", "resqued:longjob:run:u1", "class", "Copy", "status", "queued", "slice", "1", "args", "[]", "queue", "medium", "name", `"Copy"`, "kind", "k")
	f.Do("ZADD", "resqued:longjob:active", "5", "u1")
	f.Do("HSET", "resqued:longjob:run:u2", "class", "Copy", "status", "completed", "slice", "1", "args", "[]")
	post := func(path string) int {
		_, code := f.Post(path, "")
		return code
	}
	shown := func() any { return f.Get("/api/v1/longjobs/u1")["status"] }
	require.Equal(t, http.StatusOK, post("/api/v1/longjobs/u1/pause"))
	require.Equal(t, "paused", shown())
	require.Equal(t, http.StatusOK, post("/api/v1/longjobs/u1/pause"), "again")
	require.Equal(t, http.StatusOK, post("/api/v1/longjobs/u1/resume"))
	require.Equal(t, "queued", shown())
	require.Equal(t, http.StatusConflict, post("/api/v1/longjobs/u1/resume"))
	for _, act := range []string{"pause", "resume"} {
		require.Equal(t, http.StatusConflict, post("/api/v1/longjobs/u2/"+act))
		for _, id := range unlikely {
			answer := f.Ask(http.MethodPost, "/api/v1/longjobs/"+id+"/"+act, "")
			assert.GreaterOrEqual(t, answer.Code, 400, "%s %s", act, id)
			assert.Less(t, answer.Code, 500, "%s %s: %s", act, id, answer.Body)
		}
	}
}
