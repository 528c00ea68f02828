package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// encodeYAML encodes a value as a YAML document, with the names and the order of encodeJSON.
// Everything that a terminal would interpret is escaped.
func encodeYAML(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	d := json.NewDecoder(&text)
	d.UseNumber() // unchanged: a payload may hold any number
	node, err := yamlNode(d)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	doc := yaml.NewEncoder(&out)
	doc.SetIndent(2)
	if err := doc.Encode(node); err != nil {
		return nil, fmt.Errorf("YAML: %w", err)
	}
	if err := doc.Close(); err != nil {
		return nil, fmt.Errorf("YAML: %w", err)
	}
	return escapeControls(out.String(), true), nil // all in double quotes, see mustQuote
}

// yamlNode reads the next JSON value as a node. A map would lose the order.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if v == '{' {
			node.Kind = yaml.MappingNode
		}
		for d.More() { // names and values of a mapping are elements too
			element, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, element)
		}
		_, err := d.Token()
		return node, err
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if mustQuote(v) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
}

// mustQuote reports whether a string needs double quotes that the encoder would omit: for
// escapeControls, for line breaks, and for YAML 1.1 readers such as Ruby's, which could read another
// type.
func mustQuote(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	case "":
		return false
	}
	return strings.IndexByte("0123456789+-.\n ", s[0]) >= 0 || strings.Contains(s, " \n") ||
		strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}
