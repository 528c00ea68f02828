package dashboard_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/webtest"
)

// TestServer: the real server over a real Redis, in a browser: first without JavaScript, then up
// to date with it.
func TestServer(t *testing.T) {
	t.Parallel()
	ctx := limited(t, browser(t))
	f := webtest.Setup(t)
	redis, ns := f.Redis, f.Namespace
	require.NoError(t, redis.SAdd(t.Context(), ns+":queues", "mail").Err())
	for i := range 130 {
		class := "Mail"
		if i%13 == 0 {
			class = "Import"
		}
		require.NoError(t, redis.RPush(t.Context(), ns+":failed", fmt.Sprintf(
			`{"failed_at":"2026/11/24 10:00:00 UTC","payload":{"class":%q,"args":[%d]},"exception":"Timeout","error":"no answer","backtrace":[],"worker":"w","queue":"mail"}`, class, i)).Err())
	}
	at := httptest.NewServer(f.Server)
	running, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Server.Run(running) }()
	t.Cleanup(func() { at.Close(); end(); <-ended })

	scripts := func(off bool) {
		require.NoError(t, chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off})
			return err
		})))
	}
	scripts(true)
	done := listen(ctx)
	require.NoError(t, chromedp.Do(ctx, look(screens[0]), chromedp.Navigate(at.URL+"/"), follow(`#views a[data-key=f]`), follow(`.tabs a:nth-child(2)`)))
	assert.Contains(t, text(t, ctx, ".pager"), "130 in all")
	first := text(t, ctx, "tbody tr:nth-child(1) td.args")
	require.NoError(t, chromedp.Do(ctx, follow(`.pager a[rel=next]`)))
	assert.Equal(t, "[129]", first)
	assert.Equal(t, "[79]", text(t, ctx, "tbody tr:nth-child(1) td.args"))
	require.NoError(t, chromedp.Do(ctx, chromedp.SendKeys(chromedp.CSS("input[name=class]"), "Import"), follow(`.filter button`)))
	assert.Contains(t, text(t, ctx, "#search-progress"), "All 130 looked at, 10 found")
	require.NoError(t, chromedp.Do(ctx, chromedp.Click(chromedp.CSS("tbody tr:nth-child(1) input")), chromedp.Click(chromedp.CSS("tbody tr:nth-child(3) input")), follow(`.bar button[value=retry]`)))
	assert.Contains(t, text(t, ctx, ".notice"), "2 failures were retried.")
	require.EqualValues(t, 2, redis.LLen(t.Context(), ns+":queue:mail").Val())
	require.NoError(t, chromedp.Do(ctx, follow(`.all button[value=remove-all]`)))
	assert.Contains(t, text(t, ctx, "h1"), "Remove 10 failures?")
	require.NoError(t, chromedp.Do(ctx, follow(`.confirm button`)))
	assert.Eventually(t, func() bool { return redis.LLen(t.Context(), ns+":failed").Val() == 120 }, patience, 20*time.Millisecond)

	scripts(false)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(at.URL+"/queues")))
	until(t, ctx, `document.querySelector("td.key").textContent === "2"`)
	require.NoError(t, redis.RPush(t.Context(), ns+":queue:mail", `{"class":"Mail","args":["later"]}`).Err())
	until(t, ctx, `document.querySelector("td.key").textContent === "3"`)
	for _, said := range done() {
		assert.False(t, strings.Contains(said, "Security Policy") || strings.HasPrefix(said, "error"), said)
	}
}
