package filter

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued"
)

// Same returns a function that reports whether arguments equal the wanted ones, decoded.
func Same(wanted resqued.Args) (func(args resqued.Args) bool, error) {
	want, err := decodeAll(wanted)
	if err != nil {
		return nil, err
	}
	return func(args resqued.Args) bool {
		values, err := decodeAll(args)
		return err == nil && slices.EqualFunc(want, values, equal)
	}, nil
}

func decode(arg json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(arg))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && equalNumbers(a.String(), b.String())
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	}
	return a == b
}

// equalNumbers compares whole numbers exactly and all others as floating point numbers, as
// every reader of JSON does: 1 equals 1.0.
func equalNumbers(a, b string) bool {
	if a == b {
		return true
	}
	if !strings.ContainsAny(a+b, ".eE") { // JSON has one text for each whole number but 0
		return strings.TrimPrefix(a, "-") == "0" && strings.TrimPrefix(b, "-") == "0"
	}
	x, err := strconv.ParseFloat(a, 64)
	if err != nil {
		return false // out of range: equal only to the same text
	}
	y, err := strconv.ParseFloat(b, 64)
	return err == nil && x == y
}
