package rdb

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

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
