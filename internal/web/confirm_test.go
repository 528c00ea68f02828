package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every confirmation shows the equivalent command, if it fits on a line.
func TestCommandsOfQuestions(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.Fill("mail")
	job := s.Get("/api/v1/jobs")["items"].([]any)[1].(map[string]any)["id"].(string)
	said := regexp.MustCompile(`From a shell: <code>(.*?)</code>`)
	ask := func(path, body string) string {
		t.Helper()
		answer := s.Ask(http.MethodPost, path, body, func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") })
		require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
		if m := said.FindStringSubmatch(answer.Body.String()); m != nil {
			return html.UnescapeString(m[1])
		}
		return ""
	}
	assert.Equal(t, "resqued queues purge mail", ask("/queues/mail", "act=purge"))
	assert.Regexp(t, `^resqued jobs kill \S+$`, ask("/jobs/"+url.PathEscape(job), "act=kill"))
	assert.Equal(t, "resqued failed rm 0123456789ab 123456789abc@2", ask("/failed", "act=remove&id=0123456789ab&id=123456789abc@2"))
	assert.Equal(t, "resqued failed rm --class=mail", ask("/failed?class=mail", "act=remove-all"))
	assert.Equal(t, "resqued failed retry --all --retried=any", ask("/failed", "act=retry-all&again=1"))
	assert.Equal(t, "resqued workers drain web-1:9120", ask("/workers/web-1:9120", "act=drain"))
	assert.Equal(t, "resqued locks release 'locket:job_locks:A[1]'", ask("/locks/"+url.PathEscape("locket:job_locks:A[1]"), "act=release"))
	assert.Equal(t, "resqued longjobs cancel -- -x", strings.ReplaceAll(ask("/longjobs/-x", "act=cancel"), "'", ""))
	assert.Equal(t, "resqued schedule rm abc", ask("/schedule", "act=remove&id=abc"))
	assert.Empty(t, ask("/schedule", "act=remove"+strings.Repeat("&id=0123456789ab", 50)), "too long")
}
