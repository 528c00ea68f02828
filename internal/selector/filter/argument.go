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

// in reports whether a path leads to the value.
func (a argument) in(v any, path []string) bool {
	if len(path) == 0 {
		return a.is(v)
	}
	step, rest := path[0], path[1:]
	if step == "**" && a.in(v, rest) {
		return true
	}
	if step == "**" {
		rest = path
	}
	some := step == "*" || step == "**"
	switch v := v.(type) {
	case []any:
		if some {
			return slices.ContainsFunc(v, func(one any) bool { return a.in(one, rest) })
		}
		i, err := strconv.Atoi(step)
		return err == nil && i >= 0 && i < len(v) && a.in(v[i], rest)
	case map[string]any:
		for name, one := range v {
			if (some || name == step) && a.in(one, rest) {
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
