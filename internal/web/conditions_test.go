package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
