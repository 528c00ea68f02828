package rdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"
)

// List is a list from a script.
type List []any

// Text returns an element that is a text; "" for another type.
func (l List) Text(i int) string {
	t, _ := l[i].(string)
	return t
}

// Number returns an element that is an integer; 0 for another type.
func (l List) Number(i int) int64 { return Number(l[i]) }

// Texts returns an element that is a list; see func Texts.
func (l List) Texts(i int) []string { return Texts(l[i]) }

// Pairs iterates over an element that is a list of alternating keys and values.
func (l List) Pairs(i int) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for pair := range slices.Chunk(l.Texts(i), 2) {
			if len(pair) < 2 || !yield(pair[0], pair[1]) {
				return
			}
		}
	}
}

// EvalList is Eval for a script that returns a list of one of some lengths; without lengths, of any but 0.
func (c *Client) EvalList(ctx context.Context, sc *Script, key string, args []any, lengths ...int) (List, error) {
	raw, err := c.Eval(ctx, sc, key, args)
	if err != nil {
		return nil, err
	}
	list, _ := raw.([]any)
	if len(list) == 0 || len(lengths) > 0 && !slices.Contains(lengths, len(list)) {
		return nil, fmt.Errorf("script %s: unexpected reply %v", sc.Name, raw)
	}
	return list, nil
}

// EvalMarks is Eval for a script that returns a text with one mark for each of n items.
func (c *Client) EvalMarks(ctx context.Context, sc *Script, key string, args []any, n int) (string, error) {
	raw, err := c.Eval(ctx, sc, key, args)
	if err != nil {
		return "", err
	}
	marks, _ := raw.(string)
	if len(marks) != n {
		return "", fmt.Errorf("script %s: %d answers for %d items", sc.Name, len(marks), n)
	}
	return marks, nil
}

// Number returns an integer from a script's reply; 0 for another type.
func Number(v any) int64 {
	n, _ := v.(int64)
	return n
}

// Texts returns a list from a script's reply; other types in it become "".
func Texts(v any) []string {
	list, _ := v.([]any)
	if len(list) == 0 {
		return nil
	}
	out := make([]string, 0, len(list))
	for _, e := range list {
		t, _ := e.(string)
		out = append(out, t)
	}
	return out
}

// Flag returns a boolean as a script's argument.
func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// IsNil reports whether err says that a key, or a field, does not exist.
func IsNil(err error) bool { return errors.Is(err, redis.Nil) }
