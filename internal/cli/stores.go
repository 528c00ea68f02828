package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// storePages collects what a verb prints of each store, one after the other: pages of text, or
// documents by the names of the stores.
type storePages struct {
	*cli
	names []string
	texts []string
	first error
}

// page has show print what it shows of a store. Errors that are only an exit code are kept for
// print.
func (p *storePages) page(store string, show func() error) error {
	var out bytes.Buffer
	stdout, yaml := p.stdout, p.flags.yaml
	p.stdout, p.flags.yaml = &out, false
	err := show()
	p.stdout, p.flags.yaml = stdout, yaml
	var code exitCode
	if err != nil && !errors.As(err, &code) {
		return err
	}
	if err != nil && p.first == nil {
		p.first = err
	}
	p.names, p.texts = append(p.names, store), append(p.texts, out.String())
	return nil
}

// print prints the pages.
func (p *storePages) print() error {
	if p.flags.output == outJSON {
		body := orderedObject{}
		for i, name := range p.names {
			body = append(body, objectField{name, json.RawMessage(bytes.TrimSpace([]byte(p.texts[i])))})
		}
		if err := p.printJSON(struct {
			Stores orderedObject `json:"stores"`
		}{body}); err != nil {
			return err
		}
		return p.first
	}
	var b bytes.Buffer
	for i, name := range p.names {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("store " + name + "\n")
		_, _ = io.WriteString(&b, p.texts[i])
	}
	if err := p.printText(b.String()); err != nil {
		return err
	}
	return p.first
}

// orderedObject is an object of JSON whose fields keep their order.
type orderedObject []objectField

type objectField struct {
	name  string
	value json.RawMessage
}

// MarshalJSON encodes the fields in their order.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		if len(f.value) == 0 {
			b.WriteString("null")
			continue
		}
		b.Write(f.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
