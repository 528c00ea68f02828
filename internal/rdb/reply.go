package rdb

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

// Number returns an integer of a script's reply; 0 if v is none.
func Number(v any) int64 {
	n, _ := v.(int64)
	return n
}

// Texts returns a list of a script's reply, "" for what is not text in it.
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

// Flag returns a truth value as an argument of a script.
func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// IsNil reports whether err says that there is nothing under a key, or in a field of it.
func IsNil(err error) bool { return errors.Is(err, redis.Nil) }
