package web_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// All delayed jobs can be reached, by the API and on the page, while others are added.
func TestDelayedPages(t *testing.T) {
	t.Parallel()
	f := setup(t)
	add := func(at, n int) {
		f.Do("ZADD", "delayed_queue_schedule", at, fmt.Sprint(at))
		f.Do("RPUSH", fmt.Sprintf("delayed:%d", at), fmt.Sprintf(`{"class":"Mail","args":["job%04d"],"queue":"q"}`, n))
	}
	const all = 120
	for n := range all {
		add(4102444800+n/7, n)
	}
	want := make([]string, all)
	for n := range want {
		want[n] = fmt.Sprintf("job%04d", n)
	}
	name := regexp.MustCompile(`job\d{4}`)

	var got []string
	for path, pages := "/api/v1/schedule/delayed?limit=33", 0; path != ""; pages++ {
		require.Less(t, pages, all)
		v := f.Get(path)
		require.Equal(t, false, v["partial"])
		for _, item := range v["items"].([]any) {
			got = append(got, item.(map[string]any)["args"].([]any)[0].(string))
		}
		add(4102444700, 9000+pages)
		path = ""
		if next, ok := v["next"].(string); ok {
			path = "/api/v1/schedule/delayed?limit=33&cursor=" + url.QueryEscape(next)
		}
	}
	require.Equal(t, want, got)

	f.Do("DEL", "delayed:4102444700")
	got = nil
	next := regexp.MustCompile(`<a href="([^"]*)" rel="next">`)
	for path, pages := "/schedule?class=Mail", 0; path != ""; pages++ {
		require.Less(t, pages, all)
		answer := f.Ask(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, answer.Code)
		got = append(got, name.FindAllString(answer.Body.String(), -1)...)
		path = ""
		if m := next.FindStringSubmatch(answer.Body.String()); m != nil {
			path = html.UnescapeString(m[1])
			require.Contains(t, path, "class=Mail")
		}
	}
	require.Equal(t, want, got)
}
