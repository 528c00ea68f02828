// Package dashboard_test tests the dashboard with other programs: browsers (the look of its
// pages at two widths in light and dark, accessibility, updates), Prometheus, and API clients.
// It is a module of its own, so that programs that import resqued do not depend on these.
package dashboard_test

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pagestest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
	"github.com/resqued/resqued/internal/web/pages"
)

// axe is the accessibility checker axe-core, a script that is run in the page.
//
//go:embed testdata/axe.min.js
var axe string

// policy is the Content-Security-Policy that the dashboard is served with.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

var shots = flag.String("shots", "", "write a picture of every page to this folder")

// patience is how long a step of the browser may take on a busy machine.
const patience = 90 * time.Second

var (
	once    sync.Once
	shared  context.Context
	started error
	stop    = func() {}
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	stop()
	os.Exit(code)
}

// browser returns a tab of the browser shared by the package's tests. Without a browser the test
// fails and says what to install, because the pages would go untested.
func browser(t *testing.T) context.Context {
	t.Helper()
	testlevel.Long(t)
	once.Do(func() {
		var path string
		for _, name := range []string{"chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
			if path, started = exec.LookPath(name); started == nil {
				break
			}
		}
		if started != nil {
			started = fmt.Errorf("no browser: apt-get install --no-install-recommends chromium-headless-shell (%w)", started)
			return
		}
		opts := append(append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...), chromedp.ExecPath(path), chromedp.NoSandbox)
		allocator, end := chromedp.NewExecAllocator(context.Background(), opts...)
		var cancel context.CancelFunc
		shared, cancel = chromedp.NewContext(allocator)
		started = chromedp.Do(shared)
		stop = func() { cancel(); end() }
	})
	require.NoError(t, started)
	return tab(t)
}

// tab opens a tab of the running browser.
func tab(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewContext(shared)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	return ctx
}

// serve serves pages as in production, as far as a browser can tell.
func serve(t *testing.T, find func(r *http.Request) pages.Page) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		if name, ok := strings.CutPrefix(r.URL.Path, pages.AssetPath); ok {
			asset, ok := pages.FindAsset(name)
			if !ok {
				http.NotFound(w, r)
				return
			}
			h.Set("Content-Type", asset.Type)
			_, _ = w.Write(asset.Body)
			return
		}
		page := find(r)
		if page == nil {
			http.NotFound(w, r)
			return
		}
		var b bytes.Buffer
		write := pages.Write
		if r.Header.Get("Fragment") != "" {
			write = pages.WriteFragment
		}
		if err := write(&b, page); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(b.Bytes())
	}))
	t.Cleanup(s.Close)
	return s
}

// sampleAt finds the sample of a path.
func sampleAt(r *http.Request) pages.Page {
	for _, at := range []string{r.URL.RequestURI(), r.URL.EscapedPath()} {
		for _, s := range pagestest.Samples() {
			if s.Path == at {
				return s.Page
			}
		}
	}
	return nil
}

// screen is a way to view a page.
type screen struct {
	name   string
	width  int64
	scheme string
}

var screens = []screen{{"wide", 1280, "light"}, {"wide", 1280, "dark"}, {"phone", 390, "light"}, {"phone", 390, "dark"}}

// look sets the size of the tab and the preferred colours.
func look(s screen) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(
		chromedp.EmulateViewport(s.width, 844),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: s.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
			}})
			return err
		}))
}

// complaints are the problems that the browser and axe find in the tab's page.
func complaints(t *testing.T, ctx context.Context) []string {
	t.Helper()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"]})
		.then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + v.help + ": " + n.html.slice(0, 200) + " " + n.failureSummary.slice(0, 300))))`, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	return found
}

// listen collects the console's messages until done is called.
func listen(ctx context.Context) (done func() []string) {
	within, cancel := context.WithCancel(ctx)
	messages := chromedp.Console(within)
	var said []string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for m, err := range messages {
			if err != nil {
				return
			}
			said = append(said, fmt.Sprintf("%s: %s", m.Type, m.Text))
		}
	}()
	return func() []string { cancel(); <-ended; return said }
}

// TestViews looks at every page on every screen.
func TestViews(t *testing.T) {
	t.Parallel()
	ctx := browser(t)
	s := serve(t, sampleAt)
	for _, sample := range pagestest.Samples() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		done := listen(ctx)
		require.NoError(t, chromedp.Do(ctx, look(screens[0]), chromedp.Navigate(s.URL+sample.Path)))
		_, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](axe))
		require.NoError(t, err)
		for _, scr := range screens {
			t.Run(fmt.Sprintf("%s %s %s", sample.Name, scr.name, scr.scheme), func(t *testing.T) {
				require.NoError(t, chromedp.Do(ctx, look(scr)))
				wide, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll("body *")].filter((e) => document.documentElement.scrollWidth > innerWidth && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 120))`))
				require.NoError(t, err)
				assert.Empty(t, wide, "it scrolls sideways")
				assert.Empty(t, complaints(t, ctx), "axe")
				if *shots != "" {
					picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(filepath.Join(*shots, fmt.Sprintf("%s-%s-%s.png", sample.Name, scr.name, scr.scheme)), picture, 0o600))
				}
			})
		}
		assert.Empty(t, done(), "console of "+sample.Name)
		cancel()
	}
}

// TestDetectors: the detectors find real problems.
func TestDetectors(t *testing.T) {
	t.Parallel()
	ctx := browser(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>bad</title><body style="color:red"><button></button><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><script>alert(1)</script><p style="width:4000px">wide</p></body></html>`))
	}))
	t.Cleanup(s.Close)
	done := listen(ctx)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(s.URL)))
	_, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](axe))
	require.NoError(t, err)
	found := strings.Join(complaints(t, ctx), "\n")
	assert.Contains(t, found, "button-name")
	assert.Contains(t, found, "image-alt")
	said := strings.Join(done(), "\n")
	assert.Contains(t, said, "Content Security Policy")
	assert.GreaterOrEqual(t, strings.Count(said, "Content Security Policy"), 2)
}
