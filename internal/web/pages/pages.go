// Package pages makes the dashboard's pages: HTML from what package view has read, with the
// styles, the script and the pictures that they need. It reads nothing and answers no request;
// package web does both. A page is a struct that embeds Frame, and each part of it that is read
// on its own is a Widget, so that what cannot be read leaves the rest of the page whole.
//
// All pages can be read and used without JavaScript. Nothing in them is inline, neither script
// nor style, so that a strict Content-Security-Policy holds.
package pages

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/view"
)

//go:embed templates/*.html
var sources embed.FS

// Frame is what every page has around its content.
type Frame struct {
	// View is the name of the page among the links at the top: "queues".
	View string
	// Title is the heading of the page and the beginning of the window's title.
	Title string
	// Prefix is the path under which the dashboard is mounted, "" or "/resqued".
	Prefix string
	// Namespace is that of the keys in Redis, Redis the server's address without a password.
	Namespace, Redis string
	// Store is the name of the store that is shown, Stores are all there are, in the order of the
	// configuration; empty = there is one. Top is the path that they have in common.
	Store  string
	Stores []string
	Top    string
	// Command begins the commands that are shown: "resqued", or what reaches the same Redis.
	Command string
	// User is who looks, "" without a login. Operator reports whether he may change anything:
	// pages show no buttons to others.
	User     string
	Operator bool
	// Now is the time from which ages are counted: that of the sample that is shown. Made is when
	// the page was made; zero = then, too.
	Now, Made time.Time
	// Refresh is how often a visible page asks for its content again; 0 = never.
	Refresh time.Duration
	// Problem says why Redis does not answer; "" = it does.
	Problem string
	// Notice is what has just been done, or why it was not.
	Notice *Notice
}

// Notice is the result of an act.
type Notice struct {
	Text string
	// Failed reports that it was not done, or in part.
	Failed bool
}

func (f *Frame) frame() *Frame { return f }

// Page is a page that can be rendered.
type Page interface {
	frame() *Frame
	// name is the name of the template.
	name() string
}

// Widget is a part of a page that is read by itself: its data, or why there is none.
type Widget[T any] struct {
	Data T
	// OK reports whether there is data, if only that of an earlier time.
	OK bool
	// At is when the data was read.
	At time.Time
	// Err says why it could not be read last; "" = it could. Lacks says what of the data could not
	// be read; "" = it is whole.
	Err, Lacks string
}

// Read returns a widget with data that was read at a time.
func Read[T any](data T, at time.Time) Widget[T] { return Widget[T]{Data: data, OK: true, At: at} }

// Unread returns a widget whose data could not be read.
func Unread[T any](err error) Widget[T] { return Widget[T]{Err: err.Error()} }

// Stale returns the widget with the reason for which nothing newer could be read.
func (w Widget[T]) Stale(err error) Widget[T] {
	w.Err = err.Error()
	return w
}

// Trouble is what a page says of a widget that is not as it should be.
func (w Widget[T]) Trouble(f *Frame) *Trouble {
	if w.Err == "" {
		if w.Lacks == "" {
			return nil
		}
		return &Trouble{Why: text(w.Lacks, maxError), Part: true}
	}
	t := &Trouble{Why: text(w.Err, maxError)}
	if w.OK && !w.At.IsZero() {
		t.At = f.read(w.At)
	}
	return t
}

// Trouble says why a part of a page is old or missing.
type Trouble struct {
	Why string
	// Part: only a part of the data is missing.
	Part bool
	// Unknown is what alone is missing: totals.
	Unknown string
	// At is when the data that is shown was read; "" = there is none.
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

// views are the pages that the links at the top lead to, in their order, with the key that
// follows g.
var views = []struct{ Name, Text, Path, Key string }{
	{"overview", "Overview", "/", "o"},
	{"queues", "Queues", "/queues", "q"},
	{"jobs", "Jobs", "/jobs", "j"},
	{"failed", "Failed", "/failed", "f"},
	{"workers", "Workers", "/workers", "w"},
	{"locks", "Locks", "/locks", "l"},
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

// Paths are those of the links at the top.
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

// NavLink is a link at the top and the key that follows it after g.
type NavLink struct {
	Link
	Key string
}

// maxAddressed is how long a name may be, in bytes, that stands in an address.
const maxAddressed = 1 << 10

// Path returns the address of a page. Everything after the path is escaped: names come from
// whoever may push to Redis. One that is too long for an address leads to the list that it is in.
func (f *Frame) Path(path string, name ...string) template.URL {
	at := f.Prefix + path
	if len(name) == 0 {
		return template.URL(at) //nolint:gosec // a path of this server
	}
	switch {
	case len(name[0]) > maxAddressed:
		return template.URL(at) //nolint:gosec // a path of this server
	case name[0] == "" || name[0] == "." || name[0] == "..":
		// Browsers resolve these, escaped or not.
		return template.URL(at + "/-?name=" + url.QueryEscape(name[0])) //nolint:gosec // escaped
	}
	return template.URL(at + "/" + url.PathEscape(name[0])) //nolint:gosec // escaped
}

// QueueLink is a queue with the link to its page; a job of another program may not say which it is.
func (f *Frame) QueueLink(name string) template.HTML {
	if name == "" {
		return "—"
	}
	return template.HTML(`<a class="plain" href="` + template.HTMLEscapeString(string(f.Path("/queues", name))) + `">` + template.HTMLEscapeString(text(name, view.MaxName)) + `</a>`) //nolint:gosec // escaped
}

// With returns the address of a page with parameters: keys and values by turns. Empty values
// are left out, and so are those too long for an address.
func (f *Frame) With(path string, pairs ...string) template.URL {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" && len(pairs[i+1]) <= maxAddressed {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if len(values) == 0 {
		return f.Path(path)
	}
	return template.URL(f.Prefix + path + "?" + values.Encode()) //nolint:gosec // escaped
}

// At returns the address of the page of one thing with parameters, as Path and With do.
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

// templates has one set per page: the frame, the parts, and the page itself.
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

// WriteFragment writes the content of a page without what is around it: what a visible page asks
// for to be up to date.
func WriteFragment(w io.Writer, p Page) error { return execute(w, p, "fragment") }

func execute(w io.Writer, p Page, part string) error {
	set := templates()[p.name()]
	if set == nil {
		return fmt.Errorf("page %q: no such template", p.name())
	}
	if err := set.ExecuteTemplate(w, part, p); err != nil {
		return fmt.Errorf("page %q: %w", p.name(), err)
	}
	return nil
}

// Address returns an address of this server that was made by a Frame, or that a request of this
// server has.
func Address(at string) template.URL {
	if !strings.HasPrefix(at, "/") || strings.HasPrefix(at, "//") {
		return ""
	}
	return template.URL(at) //nolint:gosec // a path of this server
}

// Same returns the address of a request itself, to which a form is sent again.
func Same(r interface{ RequestURI() string }) template.URL { return Address(r.RequestURI()) }
