package main

import (
	"encoding/json"
	"html"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	named     = regexp.MustCompile(`id="([^"]*)"`)
)

// TestSite: of the documentation as it is now every link of every page leads to something, and the
// search finds all pages.
func TestSite(t *testing.T) {
	out := t.TempDir()
	s := &site{root: "../..", out: out, pages: map[string]*page{}, copied: map[string]bool{}}
	if err := s.build(); err != nil {
		t.Fatal(err)
	}
	pages, anchors := map[string]string{}, map[string]map[string]bool{}
	for _, p := range s.order {
		text, err := os.ReadFile(filepath.Join(out, p.URL))
		if err != nil {
			t.Fatal(err)
		}
		pages[p.URL], anchors[p.URL] = string(text), map[string]bool{}
		for _, id := range named.FindAllStringSubmatch(string(text), -1) {
			if anchors[p.URL][id[1]] {
				t.Errorf("%s: two are called %q", p.URL, id[1])
			}
			anchors[p.URL][id[1]] = true
		}
		if strings.Contains(string(text), "<!-- ") || strings.Contains(string(text), "raw HTML") {
			t.Errorf("%s: HTML that is not rendered", p.URL)
		}
	}
	if len(pages) < 40 {
		t.Errorf("%d pages", len(pages))
	}
	links := 0
	for url, text := range pages {
		for _, found := range reference.FindAllStringSubmatch(text, -1) {
			link := html.UnescapeString(found[1])
			if strings.Contains(link, "://") {
				continue
			}
			links++
			name, anchor, _ := strings.Cut(link, "#")
			to := url
			if name != "" {
				to = path.Join(path.Dir(url), name)
			}
			if _, err := os.Stat(filepath.Join(out, to)); err != nil || strings.HasPrefix(to, "../") {
				t.Errorf("%s leads to %s, which is not there", url, link)
			}
			if anchor != "" && !anchors[to][anchor] {
				t.Errorf("%s leads to %s: there is no such place", url, link)
			}
		}
	}
	if links < 1000 {
		t.Errorf("%d links", links)
	}
	text, err := os.ReadFile(filepath.Join(out, "search.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index []struct{ U, P, T, X string }
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, one := range index {
		name, anchor, _ := strings.Cut(one.U, "#")
		found[name] = found[name] || one.X != ""
		if anchor != "" && !anchors[name][anchor] {
			t.Errorf("the search leads to %s: there is no such place", one.U)
		}
	}
	for url := range pages {
		if !found[url] {
			t.Errorf("the search has nothing of %s", url)
		}
	}
	if _, ok := s.copied["docs/img/dashboard-overview.png"]; !ok {
		t.Error("the pictures of the dashboard are missing")
	}
}

// TestWrongLinks: what leads to nothing fails the build.
func TestWrongLinks(t *testing.T) {
	root := t.TempDir()
	before := contents
	t.Cleanup(func() { contents = before })
	contents = []group{{"Start", []string{"README.md"}}}
	for text, want := range map[string]string{
		"# A\n\n[x](docs/none.md)":           "there is no such file",
		"# A\n\n[x](#none)":                  "there is no such heading",
		"no heading":                         "it does not begin with a heading",
		"# A\n\n[x](#a) [y](https://a.b/#c)": "",
	} {
		if err := os.MkdirAll(filepath.Join(root, "docs"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "README.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &site{root: root, out: filepath.Join(root, "out"), pages: map[string]*page{}, copied: map[string]bool{}}
		err := s.build()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for file, text := range map[string]string{"README.md": "# A", "docs/new.md": "# New"} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{root: root, out: filepath.Join(root, "out"), pages: map[string]*page{}, copied: map[string]bool{}}
	if err := s.build(); err != nil || s.pages["docs/new.md"] == nil {
		t.Errorf("a page that is listed nowhere comes last: %v", err)
	}
}
