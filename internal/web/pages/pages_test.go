package pages_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pagestest"
	"github.com/resqued/resqued/internal/web/pages"
)

func render(t *testing.T, p pages.Page) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, pages.Write(&b, p))
	return b.String()
}

func TestSamples(t *testing.T) {
	t.Parallel()
	for _, s := range pagestest.Samples() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			html := render(t, s.Page)
			require.Contains(t, html, "</html>")
			require.NotContains(t, html, "style=")
			require.NotContains(t, html, "%!")
			require.NotContains(t, html, "ZgotmplZ")
		})
	}
}

// A run that was paused two days ago is described as of that day, and its time left is working time.
func TestPausedRun(t *testing.T) {
	t.Parallel()
	for _, s := range pagestest.Samples() {
		if s.Name != "longjob-paused" {
			continue
		}
		page := render(t, s.Page)
		require.Contains(t, page, "of work left")
		require.Regexp(t, `class="tick"[^>]*>\d+ \w{3} \d\d:\d\d:\d\d<`, page)
		require.NotRegexp(t, `class="tick"[^>]*>\d\d:\d\d:\d\d<`, page)
		require.Contains(t, page, `value="resume"`)
		return
	}
	t.Fatal("no sample")
}
