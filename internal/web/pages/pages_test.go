package pages_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/web/pages"
	"github.com/resqued/resqued/internal/web/pages/pagestest"
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
