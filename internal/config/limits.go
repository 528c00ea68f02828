package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued/internal/locket/jobkey"
)

// limits are how many jobs may run or begin, by name: maps in the file, else JSON.
func limits(to *map[string]jobkey.LimitRule) kind {
	return kind{
		hint: "JSON",
		parse: func(text string) error {
			*to = nil
			if text == "" {
				return nil
			}
			rules := map[string]jobkey.LimitRule{}
			d := json.NewDecoder(strings.NewReader(text))
			d.DisallowUnknownFields()
			if err := d.Decode(&rules); err != nil {
				return errors.New(`must be a map of names to limits, such as {"stripe": {"classes": ["Charge"], "concurrency": 5}}`)
			}
			for _, name := range slices.Sorted(maps.Keys(rules)) {
				if err := rules[name].Check(name); err != nil {
					return fmt.Errorf("%q: %w", name, err)
				}
			}
			if len(rules) > 0 {
				*to = rules
			}
			return nil
		},
		show: func() string {
			if len(*to) == 0 {
				return ""
			}
			text, err := json.Marshal(*to)
			if err != nil { // plain data cannot fail
				panic(err)
			}
			return string(text)
		},
		fields: func(f *file, from field) (text string, ok bool) {
			rules, before := map[string]jobkey.LimitRule{}, len(f.errs)
			for _, one := range f.fields(from.value, from.name+".") {
				name, known := from.name+"."+one.name, len(f.errs)
				rule := f.readLimit(name, one)
				if err := rule.Check(one.name); len(f.errs) == known && err != nil {
					f.refuse(name, "", one.line, err.Error())
				}
				rules[one.name] = rule
			}
			all, err := json.Marshal(rules)
			return string(all), err == nil && len(f.errs) == before
		},
	}
}

func (f *file) readLimit(name string, from field) (rule jobkey.LimitRule) {
	names := func(f *file, name string, from field) []string {
		return f.readList(name, from, "must be a list of names and globs", "is empty", printable)
	}
	f.readMap(name, from, "must be a map: {classes: [Charge], concurrency: 5}", rules{
		{"classes", into(&rule.Classes, names)},
		{"queues", into(&rule.Queues, names)},
		{"key", exact(&rule.Key, printable)},
		{"concurrency", into(&rule.Concurrency, func(f *file, name string, from field) int { return int(f.readUnits(name, from)) })},
		{"rate", exact(&rule.Rate, printable)},
		{"burst", into(&rule.Burst, (*file).readUnits)},
		{"cost", exact(&rule.Cost, printable)},
		{"on_limit", exact(&rule.OnLimit, printable)},
		{"per", exact(&rule.Per, printable)},
	})
	return rule
}

func (f *file) readUnits(name string, from field) (n int64) {
	exact(new(string), func(value string) (err error) {
		if n, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil || n < 1 {
			return errors.New("must be a whole number from 1 on")
		}
		return nil
	})(f, name, from)
	return n
}
