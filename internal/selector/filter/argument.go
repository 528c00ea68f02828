package filter

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/wire"
)

// argument is a condition on a part of the arguments. A path has indexes and names of members, "*" for any
// one of them and "**" for any number, as those of redact.
type argument struct {
	path []string
	// text is the wanted value as written; value is the same if it is JSON, and exact says that it is
	// one in quotes, a list or an object.
	text  string
	value any
	exact bool
}

var errArgument = errors.New("write a path and a value, such as 0=42, 0.customer=42 or **.customer=42")

func parseArgument(text string) (argument, error) {
	path, value, ok := strings.Cut(text, "=")
	if path = strings.TrimPrefix(path, "args."); !ok || path == "" {
		return argument{}, errArgument
	}
	a := argument{path: strings.Split(path, "."), text: value}
	if slices.Contains(a.path, "") {
		return argument{}, errArgument
	}
	if v, err := decode([]byte(value)); err == nil && json.Valid([]byte(value)) {
		a.value = v
		_, number := v.(json.Number)
		a.exact = !number && v != nil && v != true && v != false
	} else {
		a.value = value
	}
	return a, nil
}

// in reports whether the path leads from the arguments to the value. A part of them is looked at once, however
// often the path has "**".
func (a argument) in(args []any) bool { return a.under(args, []int{0}) }

// under reports whether the value is at, or below, a part of the arguments to which the steps before each of
// these, in order, lead.
func (a argument) under(v any, steps []int) bool {
	var at []int
	for _, i := range steps {
		for ; len(at) == 0 || at[len(at)-1] < i; i++ {
			if at = append(at, i); i == len(a.path) || a.path[i] != "**" {
				break // "**" may be no step at all
			}
		}
	}
	if at[len(at)-1] == len(a.path) {
		if a.is(v) {
			return true
		}
		at = at[:len(at)-1]
	}
	next := func(fits func(step string) bool) (next []int) {
		for _, i := range at {
			switch step := a.path[i]; {
			case step == "**":
				next = append(next, i)
			case step == "*", fits(step):
				next = append(next, i+1)
			}
		}
		return slices.Compact(next)
	}
	switch v := v.(type) {
	case []any:
		for i, one := range v {
			if n := next(func(step string) bool { return step == strconv.Itoa(i) }); len(n) > 0 && a.under(one, n) {
				return true
			}
		}
	case map[string]any:
		for name, one := range v {
			if n := next(func(step string) bool { return step == name }); len(n) > 0 && a.under(one, n) {
				return true
			}
		}
	}
	return false
}

// is reports whether a value is the wanted one. Without quotes it may be a text as well, or a record of
// Active Record such as User/42.
func (a argument) is(v any) bool {
	if equal(a.value, v) {
		return true
	}
	switch v := v.(type) {
	case string:
		return !a.exact && v == a.text
	case map[string]any:
		gid, _ := v["_aj_globalid"].(string)
		return gid != "" && wire.ShortArgs(`{"_aj_globalid":"`+gid+`"}`) == a.text
	}
	return false
}

func decodeAll(args resqued.Args) ([]any, error) {
	values := make([]any, len(args))
	for i, arg := range args {
		v, err := decode(arg)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}
