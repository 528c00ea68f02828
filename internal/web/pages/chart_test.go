package pages_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resqued/resqued/internal/web/pages"
)

func TestChart(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	chart := func(values ...float64) *pages.Chart {
		return &pages.Chart{Title: "Jobs", From: at, Step: time.Minute, Unit: "/s", Series: []pages.Series{{Name: "done", Values: values}}}
	}
	t.Run("values are steps, and a gap stays a gap", func(t *testing.T) {
		t.Parallel()
		html := string(chart(0, 10, math.NaN(), 5).SVG(time.UTC))
		assert.Contains(t, html, `d="M0 150.0H1V0.0H2M3 75.0H4"`)
	})
	t.Run("the scale begins at 0 and ends at a round number", func(t *testing.T) {
		t.Parallel()
		html := string(chart(3, 57).SVG(time.UTC))
		assert.Contains(t, html, ">20/s<")
		assert.Contains(t, html, ">60/s<")
	})
	t.Run("times are whole ones", func(t *testing.T) {
		t.Parallel()
		values := make([]float64, 60)
		html := string(chart(values...).SVG(time.UTC))
		assert.Contains(t, html, ">10:10<")
		assert.NotContains(t, html, ">10:01<")
	})
	t.Run("what is not a number draws nothing", func(t *testing.T) {
		t.Parallel()
		c := chart(math.NaN(), math.Inf(1), math.NaN())
		assert.NotContains(t, string(c.SVG(time.UTC)), "NaN")
		assert.NotContains(t, string(c.SVG(time.UTC)), "Inf")
		assert.NotContains(t, c.JSON(), "Inf")
		assert.False(t, chart().Any())
	})
	t.Run("short run times are told in milliseconds", func(t *testing.T) {
		t.Parallel()
		c := chart(.03, .0351)
		c.Unit = " s"
		assert.Equal(t, "35 ms", c.Last(c.Series[0]))
		assert.Contains(t, string(c.SVG(time.UTC)), ">20 ms<")
	})
	t.Run("it says in words what it shows", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, "The last 3m. done: now 2/s, at most 8/s.", chart(8, 4, 2).Summary())
	})
}

func TestAssets(t *testing.T) {
	t.Parallel()
	f := pages.Frame{Prefix: "/x"}
	for _, name := range []string{"app.css", "app.js", "theme.js", "idiomorph.min.js", "icon.svg"} {
		at := string(f.Asset(name))
		assert.Regexp(t, `^/x/assets/[a-z.]+-[0-9a-f]{12}\.(css|js|svg)$`, at)
		asset, ok := pages.FindAsset(at[len("/x"+pages.AssetPath):])
		assert.True(t, ok)
		assert.NotEmpty(t, asset.Type)
		assert.Less(t, len(asset.Gzip), len(asset.Body)+64)
	}
	_, ok := pages.FindAsset("app.css")
	assert.False(t, ok, "only the address with its digest may be kept for ever")
}
