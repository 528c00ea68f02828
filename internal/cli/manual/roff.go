package main

import (
	"fmt"
	"strings"
)

// page is a manual page in the language of man(7).
type page struct{ strings.Builder }

// escaped returns text that roff shows unchanged: a backslash starts an escape, a plain minus
// becomes a hyphen that cannot be copied, and a line that starts with . or ' is a request.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func quoted(text string) string {
	return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"`
}

// printf adds to the page; it never fails.
func (p *page) printf(format string, args ...any) { _, _ = fmt.Fprintf(p, format, args...) }

func (p *page) title(name, section, date, version, kind string) {
	p.printf(".TH %s %s %s %s %s\n", quoted(strings.ToUpper(name)), section, quoted(date), quoted("resqued "+version), quoted(kind))
	// No hyphenation and no justification, because readers copy the text.
	p.WriteString(".nh\n.ad l\n")
}

func (p *page) section(name string)    { p.printf(".SH %s\n", quoted(name)) }
func (p *page) subsection(name string) { p.printf(".SS %s\n", quoted(name)) }

// text writes paragraphs, separated by empty lines. Indented ones stay as they are.
func (p *page) text(text string) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if strings.HasPrefix(paragraph, "  ") {
			p.verbatim(paragraph)
			continue
		}
		p.WriteString(".PP\n" + escaped(paragraph) + "\n")
	}
}

func (p *page) verbatim(text string) {
	p.WriteString(".PP\n.RS 4\n.nf\n" + escaped(strings.TrimRight(text, "\n")) + "\n.fi\n.RE\n")
}

func (p *page) item(term, text string) {
	p.printf(".TP\n.B %s\n%s\n", quoted(term), escaped(text))
}

func (p *page) items(list [][2]string) {
	for _, one := range list {
		p.item(one[0], one[1])
	}
}
