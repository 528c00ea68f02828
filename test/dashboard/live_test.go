package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pagestest"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

// counting serves the list of failures with a number that grows with each request, and returns
// how many requests asked only for the content.
type counting struct {
	asked, fragments atomic.Int64
	broken, away     atomic.Bool // the server; its Redis
}

func (c *counting) page(r *http.Request) pages.Page {
	if c.broken.Load() {
		return nil
	}
	n := c.asked.Add(1)
	if r.Header.Get("Fragment") != "" {
		c.fragments.Add(1)
	}
	for _, s := range pagestest.Samples() {
		switch p := s.Page.(type) {
		case *pages.Overview:
			if r.URL.Path == "/" && s.Name == "overview" {
				p.Refresh = 100 * time.Millisecond
				p.Stats.Data.Processed = n
				if c.away.Load() {
					p.Problem = "i/o timeout"
				}
				return p
			}
		case *pages.Failed:
			if r.URL.Path == "/failed" && s.Name == "failed-flat" {
				p.Refresh = 100 * time.Millisecond
				p.Search = nil
				p.Pager.Text = fmt.Sprintf("answer %d", n)
				return p
			}
		}
	}
	return nil
}

// until waits until an expression is true in the page.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise((done) => { const look = () => (`+expression+`) ? done(true) : setTimeout(look, 20); look(); })`, chromedp.EvalAwaitPromise))
	require.NoError(t, err, expression)
}

func text(t *testing.T, ctx context.Context, selector string) string {
	t.Helper()
	s, err := chromedp.Run(ctx, chromedp.TextContent(chromedp.CSS(selector)))
	require.NoError(t, err)
	return s
}

func limited(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	return ctx
}

// TestTabs: more tabs than a browser opens connections to one server stay up to date side by
// side, and one that is hidden asks for nothing.
func TestTabs(t *testing.T) {
	t.Parallel()
	browser(t)
	c := &counting{}
	const count = 8
	var asked [count]atomic.Int64
	s := serve(t, func(r *http.Request) pages.Page {
		if i, err := strconv.Atoi(r.URL.Query().Get("tab")); err == nil {
			asked[i].Add(1)
		}
		return c.page(r)
	})
	tabs := make([]context.Context, count)
	for i := range tabs {
		tabs[i] = limited(t, tab(t))
		require.NoError(t, chromedp.Do(tabs[i], chromedp.Navigate(fmt.Sprintf("%s/?tab=%d", s.URL, i))))
	}
	newer := func(ctx context.Context, than int64) {
		until(t, ctx, fmt.Sprintf(`Number(document.querySelector(".figures dd").textContent) > %d`, than))
	}
	first := c.asked.Load()
	for i, ctx := range tabs {
		newer(ctx, first)
		require.Equal(t, "live", text(t, ctx, "#state"), "tab %d", i)
	}
	hide := func(ctx context.Context, hidden bool) {
		_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %t, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`, hidden)))
		require.NoError(t, err)
	}
	var before [count]int64
	for i := 1; i < count; i++ {
		hide(tabs[i], true)
		before[i] = asked[i].Load()
	}
	for range 5 { // each time the other tabs would have asked, too
		newer(tabs[0], c.asked.Load())
	}
	for i := 1; i < count; i++ {
		require.LessOrEqual(t, asked[i].Load(), before[i]+1, "a hidden tab asks, and not only what was under way")
	}
	hide(tabs[3], false)
	newer(tabs[3], c.asked.Load())
}

// TestNewContentLeavesWhatIsTouched: ticks, typed text and the focus survive new content.
func TestNewContentLeavesWhatIsTouched(t *testing.T) {
	t.Parallel()
	ctx := limited(t, browser(t))
	c := &counting{}
	s := serve(t, c.page)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/failed?view=flat"),
		chromedp.Click(chromedp.CSS("tbody tr:nth-child(2) input[type=checkbox]")),
		chromedp.SendKeys(chromedp.CSS("input[name=arg]"), "half a wo")))
	before := text(t, ctx, ".pager span")
	until(t, ctx, fmt.Sprintf(`document.querySelector(".pager span").textContent !== %q`, before))
	kept, err := chromedp.Run(ctx, chromedp.Evaluate[string](`[document.querySelector("tbody tr:nth-child(2) input").checked, document.querySelector("tbody tr:nth-child(1) input").checked, document.querySelector("input[name=arg]").value, document.activeElement.name, getComputedStyle(document.querySelector(".bar")).display].join(" ")`))
	require.NoError(t, err)
	assert.Equal(t, "true false half a wo arg flex", kept)
	require.NoError(t, chromedp.Do(ctx, chromedp.Click(chromedp.CSS("th.tick input"))))
	until(t, ctx, `[...document.querySelectorAll("td.tick input")].every((box) => box.checked)`)
}

// TestServerAway: a page reports a server that does not answer, and a Redis that is away, and
// recovers.
func TestServerAway(t *testing.T) {
	t.Parallel()
	ctx := limited(t, browser(t))
	c := &counting{}
	s := serve(t, c.page)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/")))
	until(t, ctx, `document.getElementById("state").textContent === "live"`)
	c.broken.Store(true)
	until(t, ctx, `document.getElementById("state").textContent.startsWith("no answer since")`)
	c.broken.Store(false)
	until(t, ctx, `document.getElementById("state").textContent === "live"`)
	c.away.Store(true)
	until(t, ctx, `document.getElementById("state").textContent === "Redis away" && document.getElementById("state").dataset.state === "lost"`)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/")))
	until(t, ctx, `document.getElementById("state").textContent === "Redis away"`)
	c.away.Store(false)
	until(t, ctx, `document.getElementById("state").textContent === "live"`)
}

// TestKeys: g and a letter open a page, t switches the colours, / goes to the search, ? shows
// help, and r freezes.
func TestKeys(t *testing.T) {
	t.Parallel()
	ctx := limited(t, browser(t))
	c := &counting{}
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	s := serve(t, func(r *http.Request) pages.Page {
		if r.Header.Get("Fragment") != "" && r.URL.RawQuery == "held" {
			asked <- struct{}{}
			<-answer
		}
		if p := c.page(r); p != nil && r.URL.Path == "/" {
			return p
		}
		return sampleAt(r)
	})
	press := func(keys string) chromedp.Action[chromedp.Void] {
		return chromedp.SendKeys(chromedp.CSS("main"), keys)
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/"), press("gq")))
	until(t, ctx, `location.pathname === "/queues" && document.getElementById("state")?.textContent === "live"`) // keys are heard from then on
	require.NoError(t, chromedp.Do(ctx, press("/")))
	until(t, ctx, `document.activeElement.name === "name"`)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/"), press("t")))
	until(t, ctx, `document.documentElement.dataset.theme === "dark"`)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/queues")))
	until(t, ctx, `document.documentElement.dataset.theme === "dark"`)
	require.NoError(t, chromedp.Do(ctx, press("t"), chromedp.Navigate(s.URL+"/?held")))
	<-asked
	require.NoError(t, chromedp.Do(ctx, press("r")))
	close(answer) // it comes too late, and changes nothing
	require.NoError(t, chromedp.Do(ctx, press("?")))
	until(t, ctx, `document.getElementById("keys").open`)
	until(t, ctx, `document.getElementById("state").textContent.startsWith("frozen at")`)
}

// TestSearchGoesOn: a search in steps continues by itself and shows its progress; the address is
// the last step's.
func TestSearchGoesOn(t *testing.T) {
	t.Parallel()
	ctx := limited(t, browser(t))
	var steps atomic.Int64
	gate := make(chan struct{})
	s := serve(t, func(r *http.Request) pages.Page {
		n := steps.Add(1)
		if n == 3 {
			<-gate
		}
		for _, sample := range pagestest.Samples() {
			if p, ok := sample.Page.(*pages.Failed); ok && sample.Name == "failed-flat" {
				p.Rows = pages.Read([]view.Failure{{ID: fmt.Sprintf("%d@1", n), Class: "Mail", Queue: "mail"}}, pagestest.Now)
				p.Search.Scanned, p.Search.Found = n*100000, int(n)
				p.Search.Next = p.Flatly("cursor", fmt.Sprint(n))
				if n == 4 {
					p.Search.Scanned, p.Search.Next = p.Search.Total, ""
				}
				return p
			}
		}
		return nil
	})
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/failed?view=flat&class=Mail")))
	until(t, ctx, `document.querySelectorAll("#hits tbody tr").length === 2`)
	assert.Contains(t, text(t, ctx, "#search-progress"), "200,000 of 640,000 looked at, 2 found so far")
	close(gate)
	until(t, ctx, `document.querySelectorAll("#hits tbody tr").length === 4`)
	until(t, ctx, `document.querySelector("#search-progress span").textContent === "All 640,000 looked at, 4 found"`)
	until(t, ctx, `location.search.includes("cursor=3")`)
}

// TestWithoutScript: links, searches, paging and actions are plain links and forms.
func TestWithoutScript(t *testing.T) {
	t.Parallel()
	ctx := limited(t, browser(t))
	var posted atomic.Value
	s := serve(t, func(r *http.Request) pages.Page {
		if r.Method == http.MethodPost {
			_ = r.ParseForm()
			posted.Store(r.URL.Path + " " + r.PostForm.Encode())
		}
		if r.URL.Query().Get("from") != "" {
			r.URL.RawQuery = ""
		}
		return sampleAt(r)
	})
	require.NoError(t, chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}), chromedp.EmulateViewport(390, 844), chromedp.Navigate(s.URL+"/")))
	at := func() string {
		where, err := chromedp.Run(ctx, chromedp.Location())
		require.NoError(t, err)
		return strings.TrimPrefix(where, s.URL)
	}
	require.Contains(t, text(t, ctx, "#state"), "as of", "the script has run")
	// Navigation, through the menu of a phone.
	require.NoError(t, chromedp.Do(ctx, chromedp.Click(chromedp.CSS(".menu")), chromedp.WaitVisible(chromedp.CSS("#views")), follow(chromedp.CSS("#views a[data-key=q]"))))
	require.Equal(t, "/queues", at())
	// Search, paging.
	require.NoError(t, chromedp.Do(ctx, chromedp.SendKeys(chromedp.CSS("input[name=name]"), "mai"), follow(chromedp.CSS(".filter button"))))
	require.Equal(t, "/queues?name=mai&sort=size", at())
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/queues/mail"), follow(chromedp.CSS(".pager a[rel=next]"))))
	require.Equal(t, "/queues/mail?from=12", at())
	// The action bar appears with a tick.
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/failed?view=flat&class=Mail"),
		chromedp.Click(chromedp.CSS("tbody tr:nth-child(1) input")), chromedp.WaitVisible(chromedp.CSS(".bar")), follow(chromedp.CSS(`.bar button[value="retry"]`))))
	assert.Equal(t, "/failed act=retry&id=1c0de1c0de1c0de1c0de%40311", posted.Load())
	// Irreversible actions ask first, on a page of their own.
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL+"/queues/newsletter/purge"), follow(chromedp.CSS(".confirm button"))))
	assert.Equal(t, "/queues/newsletter act=purge&expect=1204&sure=1", posted.Load())
}

// follow clicks a link to another page and waits for that.
func follow(sel chromedp.CSS) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.RunResponse(ctx, chromedp.Click(sel))
		return err
	})
}
