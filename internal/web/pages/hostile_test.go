package pages_test

import (
	"encoding/json"
	"errors"
	"html/template"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pagestest"
	"github.com/resqued/resqued/internal/web/pages"
)

// hostile are values from programs that push to Redis, or that name a worker or a schedule.
var hostile = map[string]string{
	"script":      `</td></script><script>alert(1)</script><img src=x onerror=alert(1)>`,
	"quotes":      `" onmouseover="alert(1)" x='' autofocus onfocus='alert(1)` + "`",
	"template":    `{{.Now}}{{template "frame" .}}${x}<!-- --><![CDATA[`,
	"bad UTF-8":   "a\xff\xfe\xc3(\x00\x1b[31m",
	"direction":   "abc\u202egnp.exe\u2066\u200f\u061c\u2028",
	"javascript":  "javascript:alert(1)",
	"parent":      "../../..//evil.example\\x?y#z",
	"64 KB":       strings.Repeat("<b>\u202eA\xff", 64<<10/8),
	"one line":    strings.Repeat("x", 64<<10),
	"zero widths": strings.Repeat("a\u0300\u200b", 20000),
}

// kept are fields whose values are made by this program, never by others.
var kept = map[string]bool{
	"View": true, "Prefix": true, "State": true, "Kind": true, "Status": true, "Check": true, "Sort": true, "Span": true, "Unit": true, "Method": true,
}

// poison replaces every text of a page that another program may have chosen.
func poison(v reflect.Value, value string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			poison(v.Elem(), value)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[pages.Field]() {
			return // the browser gets its own input back unchanged
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && !kept[f.Name] {
				poison(v.Field(i), value)
			}
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			if v.Len() > 0 && v.CanSet() {
				v.SetBytes([]byte(value))
			}
			return
		}
		for i := range v.Len() {
			poison(v.Index(i), value)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if v.Type().Key().Kind() == reflect.String && v.Type().Elem() == reflect.TypeFor[json.RawMessage]() {
				v.SetMapIndex(key, reflect.Value{})
				v.SetMapIndex(reflect.ValueOf(value+key.String()).Convert(v.Type().Key()), reflect.ValueOf(json.RawMessage(value)))
			}
		}
	case reflect.String:
		if v.CanSet() && v.Len() > 0 && v.Type() != reflect.TypeFor[template.URL]() && v.Type() != reflect.TypeFor[template.HTML]() {
			v.SetString(value)
		}
	}
}

var (
	tag       = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
	attribute = regexp.MustCompile(`\s([a-zA-Z-]+)(="([^"]*)")?`)
)

// shape is the elements of a page with the names of their attributes, without any text.
func shape(html string) []string {
	var all []string
	for _, t := range tag.FindAllString(html, -1) {
		name := strings.Fields(strings.Trim(t, "<>"))[0]
		for _, a := range attribute.FindAllStringSubmatch(t, -1) {
			name += " " + a[1]
		}
		all = append(all, name)
	}
	return all
}

// TestHostile: with hostile texts, a page has the same elements and attributes as with harmless ones,
// no mark that changes the writing direction, and stays small.
func TestHostile(t *testing.T) {
	t.Parallel()
	names := []string{}
	for _, s := range pagestest.Samples() {
		names = append(names, s.Name)
	}
	for i, name := range names {
		with := func(value string) string {
			page := pagestest.Samples()[i].Page
			poison(reflect.ValueOf(page), value)
			return render(t, page)
		}
		harmless := shape(with("[1]"))
		for kind, value := range hostile {
			t.Run(name+" with "+kind, func(t *testing.T) {
				t.Parallel()
				html := with(value)
				require.Equal(t, harmless, shape(html))
				assert.True(t, utf8.ValidString(html))
				for _, r := range "\u202e\u2066\u200f\u061c\u2028\x00\x1b" {
					assert.NotContains(t, html, string(r))
				}
				assert.NotContains(t, html, `href="javascript:`)
				assert.Less(t, len(html), 600<<10)
			})
		}
	}
}

// TestNamesInAddresses: a page of a thing is found by its name, whatever it consists of.
func TestNamesInAddresses(t *testing.T) {
	t.Parallel()
	f := pages.Frame{Prefix: "/resqued"}
	for name, want := range map[string]string{
		"mail": "/resqued/queues/mail", "a/b": "/resqued/queues/a%2Fb", "..": "/resqued/queues/-?name=..", "": "/resqued/queues/-?name=",
		"\xff\"<": "/resqued/queues/%FF%22%3C", "a?b#c": "/resqued/queues/a%3Fb%23c", "%41": "/resqued/queues/%2541",
	} {
		assert.Equal(t, want, string(f.Path("/queues", name)))
	}
}

// TestWidgetsFailAlone: an unreadable part says so, with the age of the data shown instead, and the
// rest of the page stays.
func TestWidgetsFailAlone(t *testing.T) {
	t.Parallel()
	for i, s := range pagestest.Samples() {
		page := reflect.ValueOf(s.Page).Elem()
		for j := range page.NumField() {
			if !strings.HasPrefix(page.Type().Field(j).Type.Name(), "Widget[") || !page.Field(j).FieldByName("OK").Bool() {
				continue
			}
			t.Run(s.Name+" without "+page.Type().Field(j).Name, func(t *testing.T) {
				t.Parallel()
				broken := pagestest.Samples()[i].Page
				w := reflect.ValueOf(broken).Elem().Field(j)
				w.Set(reflect.Zero(w.Type()))
				w.FieldByName("Err").Set(reflect.ValueOf(errors.New("WRONGTYPE of this widget")))
				html := render(t, broken)
				assert.Contains(t, html, "</html>")
				if quiet := map[string]bool{"Locks": s.Name == "overview", "Parked": true, "Chart": s.Name == "queue"}; quiet[page.Type().Field(j).Name] || s.Name == "failed" && page.Type().Field(j).Name == "Rows" {
					return // a figure, or a part that is there only if it has something to say
				}
				assert.Contains(t, html, "WRONGTYPE of this widget")
			})
		}
	}
}
