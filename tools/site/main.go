// Command site renders the documentation as static pages: the README, docs and what belongs to them,
// with an index for the search. It fails if a link leads to nothing.
//
//	go -C tools run ./site -out /path/of/the/site
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// repository is where links lead to files that are no pages.
const repository = "https://github.com/resqued/resqued"

//go:embed page.html site.css site.js
var assets embed.FS

// group is a part of the table of contents. A folder stands for all pages in it.
type group struct {
	Title string
	Files []string
}

// contents are the pages by their files, in the order in which they are read. Those of docs that are
// named nowhere come last.
var contents = []group{
	{"Start", []string{"README.md", "docs/why.md", "docs/from-resque.md"}},
	{"Jobs", []string{
		"docs/handlers.md", "docs/runners.md", "docs/locks.md", "docs/fair.md", "docs/retries.md", "docs/schedule.md", "docs/cron.md", "docs/longjob.md", "docs/testing.md", "docs/locker.md",
	}},
	{"Running it", []string{
		"docs/install.md", "docs/configuration.md", "docs/systemd.md", "docs/container.md", "docs/macos.md", "docs/stores.md", "docs/operations.md", "docs/scale.md", "docs/security.md",
	}},
	{"Looking", []string{"docs/dashboard.md", "docs/looking.md", "docs/signals.md", "docs/statsd.md"}},
	{"How it works", []string{
		"docs/reliability.md", "docs/performance.md", "docs/architecture.md", "docs/redis-keys.md", "docs/runner-protocol.md",
	}},
	{"Decisions", []string{"docs/decisions"}},
	{"The project", []string{"CONTRIBUTING.md", "docs/releasing.md", "SECURITY.md", "CHANGELOG.md"}},
}

// page is one page.
type page struct {
	// File is the path of its source in the repository, URL that of the page in the site.
	File, URL string
	Title     string
	Headings  []heading
	doc       ast.Node
	source    []byte
}

type heading struct {
	Level    int
	ID, Text string
	// text is what stands below it, for the search.
	text strings.Builder
}

type site struct {
	root, out string
	contents  []group          // all of them, with the files of folders
	pages     map[string]*page // by file
	order     []*page
	copied    map[string]bool // by file
	errs      []error
	md        goldmark.Markdown
}

func main() {
	root := flag.String("root", "..", "the repository")
	out := flag.String("out", "", "the folder to write, which is emptied before")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	s := &site{root: *root, out: *out, pages: map[string]*page{}, copied: map[string]bool{}}
	if err := s.build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s\n", len(s.order), *out)
}

func (s *site) build() error {
	s.md = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	if err := s.collect(); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(s.out), os.MkdirAll(s.out, 0o755)); err != nil {
		return err
	}
	layout, err := template.New("page.html").ParseFS(assets, "page.html")
	if err != nil {
		return err
	}
	for i, p := range s.order {
		s.relink(p)
		if err := s.write(layout, i); err != nil {
			return err
		}
	}
	for _, name := range []string{"site.css", "site.js"} {
		text, err := assets.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.out, name), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if err := s.index(); err != nil {
		return err
	}
	return errors.Join(s.errs...)
}

// collect reads all pages.
func (s *site) collect() error {
	s.contents = slices.Clone(contents)
	rest, err := s.unlisted()
	if err != nil {
		return err
	}
	if rest != nil {
		s.contents = append(s.contents, group{"More", rest})
	}
	for i, g := range s.contents {
		var files []string
		for _, file := range g.Files {
			found, err := filepath.Glob(filepath.Join(s.root, file, "*.md"))
			if err != nil {
				return err
			}
			if found == nil {
				files = append(files, file)
			}
			for _, one := range found {
				files = append(files, file+"/"+filepath.Base(one))
			}
		}
		s.contents[i].Files = files
		for _, file := range files {
			if err := s.read(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// unlisted returns the documents of docs that contents name nowhere.
func (s *site) unlisted() (rest []string, err error) {
	found, err := filepath.Glob(filepath.Join(s.root, "docs", "*.md"))
	for _, name := range found {
		file := "docs/" + filepath.Base(name)
		if !slices.ContainsFunc(contents, func(g group) bool { return slices.Contains(g.Files, file) }) {
			rest = append(rest, file)
		}
	}
	return rest, err
}

// marks are comments for test/docs.
var marks = regexp.MustCompile(`(?m)^ *<!--.*-->\n`)

func (s *site) read(file string) error {
	source, err := os.ReadFile(filepath.Join(s.root, file))
	if err != nil {
		return err
	}
	url := strings.TrimPrefix(strings.TrimSuffix(file, ".md"), "docs/")
	switch file {
	case "README.md":
		url = "index"
	case "SECURITY.md":
		url = "reporting"
	}
	p := &page{File: file, URL: strings.ToLower(url) + ".html", source: marks.ReplaceAll(source, nil)}
	p.doc = s.md.Parser().Parse(text.NewReader(p.source), parser.WithContext(parser.NewContext(parser.WithIDs(&ids{taken: map[string]int{}}))))
	if err := p.outline(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, other := range s.order {
		if other.URL == p.URL {
			return fmt.Errorf("%s and %s would both be %s", other.File, file, p.URL)
		}
	}
	s.pages[file] = p
	s.order = append(s.order, p)
	return nil
}

// ids gives headings the names that they have on GitHub.
type ids struct{ taken map[string]int }

var (
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

func (i *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	name := strings.ToLower(strings.TrimSpace(linked.ReplaceAllString(string(value), "$1")))
	name = strings.ReplaceAll(dropped.ReplaceAllString(name, ""), " ", "-")
	n := i.taken[name]
	i.taken[name]++
	if n > 0 {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	return []byte(name)
}

func (i *ids) Put(value []byte) { i.taken[string(value)]++ }

// outline finds the title, the headings, and what stands below each.
func (p *page) outline() error {
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			id, _ := h.AttributeString("id")
			name, _ := id.([]byte)
			p.Headings = append(p.Headings, heading{Level: h.Level, ID: string(name), Text: p.plain(h)})
			continue
		}
		if len(p.Headings) == 0 {
			return errors.New("it does not begin with a heading")
		}
		below := &p.Headings[len(p.Headings)-1].text
		below.WriteString(p.plain(n) + " ")
	}
	if len(p.Headings) == 0 {
		return errors.New("it has no heading")
	}
	p.Title = p.Headings[0].Text
	return nil
}

// plain returns the text of a node.
func (p *page) plain(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch {
		case !entering:
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
		case n.Kind() == ast.KindText:
			t := n.(*ast.Text)
			b.Write(t.Segment.Value(p.source))
			if t.SoftLineBreak() || t.HardLineBreak() {
				b.WriteByte(' ')
			}
		case n.Kind() == ast.KindString:
			b.Write(n.(*ast.String).Value)
		case n.Kind() == ast.KindFencedCodeBlock || n.Kind() == ast.KindCodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(p.source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// relink has the links of a page lead to pages, to copied files, or to the repository.
func (s *site) relink(p *page) {
	_ = ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(s.target(p, string(n.Destination)))
		case *ast.Image:
			n.Destination = []byte(s.target(p, string(n.Destination)))
			n.SetAttributeString("loading", []byte("lazy"))
		}
		return ast.WalkContinue, nil
	})
}

func (s *site) target(from *page, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return link
	}
	name, anchor, _ := strings.Cut(link, "#")
	file := from.File
	if name != "" {
		file = path.Join(path.Dir(from.File), name)
	}
	wrong := func(why string) string {
		s.errs = append(s.errs, fmt.Errorf("%s links to %s: %s", from.File, link, why))
		return link
	}
	if to := s.pages[file]; to != nil {
		if anchor != "" && !slices.ContainsFunc(to.Headings, func(h heading) bool { return h.ID == anchor }) && !to.has(anchor) {
			return wrong("there is no such heading")
		}
		url := relative(from.URL, to.URL)
		if to == from {
			url = ""
		}
		if anchor != "" {
			url += "#" + anchor
		}
		return url
	}
	info, err := os.Stat(filepath.Join(s.root, file))
	switch {
	case err != nil:
		return wrong("there is no such file")
	case info.IsDir():
		return repository + "/tree/main/" + file
	case strings.HasPrefix(file, "docs/"):
		url := strings.TrimPrefix(file, "docs/")
		if err := s.copy(file, url); err != nil {
			return wrong(err.Error())
		}
		return relative(from.URL, url)
	}
	return repository + "/blob/main/" + file
}

// has reports whether a page has a heading within something else.
func (p *page) has(anchor string) (found bool) {
	_ = ast.Walk(p.doc, func(n ast.Node, _ bool) (ast.WalkStatus, error) {
		if id, ok := n.AttributeString("id"); ok && n.Kind() == ast.KindHeading {
			name, _ := id.([]byte)
			found = found || string(name) == anchor
		}
		return ast.WalkContinue, nil
	})
	return found
}

func (s *site) copy(file, url string) error {
	if s.copied[file] {
		return nil
	}
	s.copied[file] = true
	data, err := os.ReadFile(filepath.Join(s.root, file))
	if err != nil {
		return err
	}
	to := filepath.Join(s.out, filepath.FromSlash(url))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// relative returns the address of a page of the site as seen from another one.
func relative(from, to string) string { return strings.Repeat("../", strings.Count(from, "/")) + to }

type (
	entry struct {
		Title, URL string
		Here       bool
	}
	listed struct {
		Title string
		Pages []entry
		// Fold: it is closed, unless the page is in it (Open).
		Fold, Open bool
	}
	view struct {
		*page
		Up         string // to the top of the site
		Body       template.HTML
		Contents   []listed
		Outline    []heading
		Prev, Next *entry
		Source     string
	}
)

// manyPages are more than what a group shows unasked.
const manyPages = 10

// short is the title of a page in the table of contents.
func (p *page) short() string {
	switch p.File {
	case "README.md":
		return "First steps"
	case "SECURITY.md":
		return "Reporting a vulnerability"
	}
	return p.Title
}

func (s *site) write(layout *template.Template, i int) error {
	p := s.order[i]
	var body bytes.Buffer
	if err := s.md.Renderer().Render(&body, p.source, p.doc); err != nil {
		return fmt.Errorf("%s: %w", p.File, err)
	}
	html := strings.NewReplacer("<table>", `<div class="wide"><table>`, "</table>", "</table></div>").Replace(body.String())
	v := view{page: p, Up: relative(p.URL, ""), Body: template.HTML(html), Source: repository + "/blob/main/" + p.File}
	to := func(i int) *entry {
		if i < 0 || i >= len(s.order) {
			return nil
		}
		return &entry{Title: s.order[i].short(), URL: relative(p.URL, s.order[i].URL)}
	}
	v.Prev, v.Next = to(i-1), to(i+1)
	for _, g := range s.contents {
		l := listed{Title: g.Title, Fold: len(g.Files) > manyPages}
		for _, file := range g.Files {
			other := s.pages[file]
			l.Pages = append(l.Pages, entry{other.short(), relative(p.URL, other.URL), other == p})
			l.Open = l.Open || other == p
		}
		v.Contents = append(v.Contents, l)
	}
	for _, h := range p.Headings[1:] {
		if h.Level <= 3 {
			v.Outline = append(v.Outline, heading{Level: h.Level, ID: h.ID, Text: h.Text})
		}
	}
	to1 := filepath.Join(s.out, filepath.FromSlash(p.URL))
	if err := os.MkdirAll(filepath.Dir(to1), 0o755); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := layout.Execute(&out, v); err != nil {
		return fmt.Errorf("%s: %w", p.File, err)
	}
	return os.WriteFile(to1, out.Bytes(), 0o644)
}

// index writes what the search looks through: each section with its address, title and text.
func (s *site) index() error {
	type section struct {
		URL   string `json:"u"`
		Page  string `json:"p"`
		Title string `json:"t"`
		Text  string `json:"x"`
	}
	all := []section{}
	for _, p := range s.order {
		for i, h := range p.Headings {
			one := section{URL: p.URL, Page: p.short(), Title: h.Text, Text: strings.TrimSpace(h.text.String())}
			if i > 0 {
				one.URL += "#" + h.ID
			}
			all = append(all, one)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.out, "search.json"), text, 0o644)
}
