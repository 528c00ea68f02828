// Package pages renders the dashboard: HTML from what package view has read, with its styles,
// script and images. Package web reads the data and answers requests. A page is a struct that
// embeds Frame. Each part that is read separately is a Widget, so that a failed read leaves the
// rest of the page whole.
//
// All pages work without JavaScript. Nothing is inline, neither script nor style, so that a strict
// Content-Security-Policy holds.
package pages

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/view"
)

//go:embed templates/*.html
var sources embed.FS

// Frame surrounds every page's content.
type Frame struct {
	// View is the page's name among the links at the top: "queues".
	View string
	// Title is the page's heading and the start of the window's title.
	Title string
	// Prefix is the path under which the dashboard is mounted, "" or "/resqued".
	Prefix string
	// Namespace is the prefix of the keys, Redis the server's address without a password.
	Namespace, Redis string
	// Store is the name of the shown store, Stores are all of them in the configuration's order;
	// empty = there is one. Top is their common path.
	Store  string
	Stores []string
	Top    string
	// Command begins the commands that are shown: "resqued", or one for the same Redis.
	Command string
	// User is the visitor's name, or "". Only an Operator may make changes and sees buttons.
	User     string
	Operator bool
	// Now is the sample's time, from which ages are counted. Made is the page's; zero = Now.
	Now, Made time.Time
	// Refresh is how often a visible page updates its content; 0 = never.
	Refresh time.Duration
	// Explain says in words why a part could not be read; nil = the error's text.
	Explain func(error) string
	// Problem says why Redis does not answer, or "".
	Problem string
	Notice  *Notice
}

// Notice is the result of a change.
type Notice struct {
	Text string
	// Failed says that it was done in part or not at all.
	Failed bool
}

func (f *Frame) frame() *Frame { return f }

// Page is a page that can be rendered: a pointer to a struct whose template has its name.
type Page interface{ frame() *Frame }

// Widget is a part of a page that is read separately: what was last read, or why there is nothing.
type Widget[T any] struct {
	Data T
	// OK: there is data, as of At, if only older data.
	OK bool
	At time.Time
	// Err is why the last read failed, or nil. Lacks is why Data is incomplete, or nil.
	Err, Lacks error
}

// Read returns a widget with data that was read at a time.
func Read[T any](data T, at time.Time) Widget[T] { return Widget[T]{Data: data, OK: true, At: at} }

// Made returns a widget with data made from another's.
func Made[T, F any](data T, from Widget[F]) Widget[T] {
	return Widget[T]{Data: data, OK: from.OK, At: from.At, Err: from.Err, Lacks: from.Lacks}
}

// Take takes what was just read, or keeps the older data with the error.
func (w *Widget[T]) Take(data T, err error) { w.TakeSome(data, err == nil, err) }

// TakeSome is Take for partial results: some reports whether there is data despite the error.
func (w *Widget[T]) TakeSome(data T, some bool, err error) {
	if !some {
		w.Err = err
		return
	}
	*w = Widget[T]{Data: data, OK: true, At: time.Now(), Lacks: err}
}

// Trouble is what a page says about a widget that is not whole and current.
func (w Widget[T]) Trouble(f *Frame) *Trouble {
	if w.Err == nil {
		if w.Lacks == nil {
			return nil
		}
		return &Trouble{Why: f.why(w.Lacks), Part: true}
	}
	t := &Trouble{Why: f.why(w.Err)}
	if w.OK && !w.At.IsZero() {
		t.At = f.read(w.At)
	}
	return t
}

func (f *Frame) why(err error) string {
	if f.Explain == nil {
		return text(err.Error(), maxError)
	}
	return text(f.Explain(err), maxError)
}

// Trouble says why a part of a page is old or incomplete.
type Trouble struct {
	Why string
	// Part: only some of the data is missing.
	Part bool
	// Unknown names the totals that are missing.
	Unknown string
	// At is when the shown data was read; "" = there is none.
	At template.HTML
}

// Link is a link with its text.
type Link struct {
	Text    string
	URL     template.URL
	Current bool
}

// Pager leads through a list.
type Pager struct {
	// Text says which part is shown: "1–100 of 2,000".
	Text                    string
	First, Prev, Next, Last template.URL
}

// Any reports whether there is anything to show.
func (p Pager) Any() bool { return p.Text != "" || p.Prev != "" || p.Next != "" }

// views are the pages of the links at the top, with the key that follows g.
var views = []struct{ Name, Text, Path, Key string }{
	{"overview", "Overview", "/", "o"},
	{"queues", "Queues", "/queues", "q"},
	{"jobs", "Jobs", "/jobs", "j"},
	{"failed", "Failed", "/failed", "f"},
	{"workers", "Workers", "/workers", "w"},
	{"locks", "Locks", "/locks", "l"},
	{"limits", "Limits", "/limits", "m"},
	{"longjobs", "Long jobs", "/longjobs", "n"},
	{"schedule", "Schedule", "/schedule", "s"},
	{"classes", "Classes", "/classes", "c"},
	{"redis", "Redis", "/redis", "r"},
	{"events", "Events", "/events", "e"},
}

// Views returns the links at the top.
func (f *Frame) Views() []NavLink {
	var links []NavLink
	for _, v := range views {
		links = append(links, NavLink{Link{v.Text, f.Path(v.Path), v.Name == f.View}, v.Key})
	}
	return links
}

// Paths are the paths of the links at the top.
func Paths() (paths []string) {
	for _, v := range views {
		paths = append(paths, v.Path)
	}
	return paths
}

// Page returns the path, within a store, of the link at the top that the page belongs to.
func (f *Frame) Page() string {
	for _, v := range views {
		if v.Name == f.View {
			return v.Path
		}
	}
	return "/"
}

// NavLink is a link at the top, and the key that follows g.
type NavLink struct {
	Link
	Key string
}

// maxAddressed limits a name in an address. A condition may be longer, as long as the server reads one: the
// form of an act without it would change more.
const maxAddressed, maxCondition = 1 << 10, 4 << 10

// Path returns the address of a page. name is escaped: any program that pushes to Redis may choose
// it. If it is too long for an address, the link leads to the list.
func (f *Frame) Path(path string, name ...string) template.URL {
	at := f.Prefix + path
	if len(name) == 0 {
		return template.URL(at) //nolint:gosec // a path of this server
	}
	switch {
	case len(name[0]) > maxAddressed:
		return template.URL(at) //nolint:gosec // a path of this server
	case name[0] == "" || name[0] == "." || name[0] == "..":
		// Browsers resolve these even if they are escaped.
		return template.URL(at + "/-?name=" + url.QueryEscape(name[0])) //nolint:gosec // escaped
	}
	return template.URL(at + "/" + url.PathEscape(name[0])) //nolint:gosec // escaped
}

// QueueLink is a queue's name with a link. A foreign worker's job may not name its queue.
func (f *Frame) QueueLink(name string) template.HTML {
	if name == "" {
		return "—"
	}
	return template.HTML(`<a class="plain" href="` + template.HTMLEscapeString(string(f.Path("/queues", name))) + `">` + template.HTMLEscapeString(text(name, view.MaxName)) + `</a>`) //nolint:gosec // escaped
}

// With returns the address of a page with parameters, alternating keys and values. Empty values
// and those too long for an address are left out.
func (f *Frame) With(path string, pairs ...string) template.URL {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" && len(pairs[i+1]) <= maxCondition {
			values.Add(pairs[i], pairs[i+1])
		}
	}
	if len(values) == 0 {
		return f.Path(path)
	}
	return template.URL(f.Prefix + path + "?" + values.Encode()) //nolint:gosec // escaped
}

// At returns the address of a thing's page with parameters; see Path and With.
func (f *Frame) At(path, name string, pairs ...string) template.URL {
	at, sign := string(f.Path(path, name)), "?"
	if strings.Contains(at, "?") {
		sign = "&"
	}
	with := string(f.With("", pairs...))
	if _, values, ok := strings.Cut(with, "?"); ok {
		return template.URL(at + sign + values) //nolint:gosec // escaped
	}
	return template.URL(at) //nolint:gosec // escaped
}

// Asset returns the address of a file of the pages.
func (f *Frame) Asset(name string) template.URL {
	return template.URL(f.Prefix + AssetPath + assets().hashed[name]) //nolint:gosec // a path of this server
}

// templates has a set per page: the frame, the parts, and the page itself.
var templates = sync.OnceValue(func() map[string]*template.Template {
	names, err := fs.Glob(sources, "templates/*.html")
	if err != nil {
		panic(err)
	}
	base := template.Must(template.New("").Funcs(funcs).ParseFS(sources, "templates/frame.html", "templates/parts.html"))
	sets := map[string]*template.Template{}
	for _, path := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "templates/"), ".html")
		if name == "frame" || name == "parts" {
			continue
		}
		sets[name] = template.Must(template.Must(base.Clone()).ParseFS(sources, path))
	}
	return sets
})

// Write writes a whole page.
func Write(w io.Writer, p Page) error { return execute(w, p, "frame") }

// WriteFragment writes a page's content only, for the update of a visible page.
func WriteFragment(w io.Writer, p Page) error { return execute(w, p, "fragment") }

func execute(w io.Writer, p Page, part string) error {
	name := strings.ToLower(reflect.TypeOf(p).Elem().Name())
	set := templates()[name]
	if set == nil {
		return fmt.Errorf("page %q: no such template", name)
	}
	if err := set.ExecuteTemplate(w, part, p); err != nil {
		return fmt.Errorf("page %q: %w", name, err)
	}
	return nil
}

// Address returns an address of this server that comes from a Frame or a request, or "".
func Address(at string) template.URL {
	if !strings.HasPrefix(at, "/") || strings.HasPrefix(at, "//") {
		return ""
	}
	return template.URL(at) //nolint:gosec // a path of this server
}
