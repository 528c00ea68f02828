package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/locket/jobkey"
)

// fair are the queues whose tenants take turns: queues to templates or maps in the file, else
// JSON.
func fair(to *map[string]jobkey.Fair) kind {
	return kind{
		hint: "JSON",
		parse: func(text string) error {
			*to = nil
			if text == "" {
				return nil
			}
			rules := map[string]jobkey.Fair{}
			if err := json.Unmarshal([]byte(text), &rules); err != nil {
				return errors.New(`must be a map of queues to the tenants of their jobs, such as {"mail": "{{args.0}}"}`)
			}
			for _, queue := range slices.Sorted(maps.Keys(rules)) {
				if err := checkFair(queue, rules[queue]); err != nil {
					return fmt.Errorf("queue %q: %w", queue, err)
				}
			}
			if len(rules) > 0 {
				*to = rules
			}
			return nil
		},
		show: func() string { return showFair(*to) },
		fields: func(f *file, from field) (text string, ok bool) {
			rules, before := map[string]jobkey.Fair{}, len(f.errs)
			for _, queue := range f.fields(from.value, from.name+".") {
				name := from.name + "." + queue.name
				rule, known := f.readFair(name, queue)
				if err := checkFair(queue.name, rule); known && err != nil {
					f.refuse(name, "", queue.line, err.Error())
				}
				rules[queue.name] = rule
			}
			return showFair(rules), len(f.errs) == before
		},
	}
}

func showFair(rules map[string]jobkey.Fair) string {
	if len(rules) == 0 {
		return ""
	}
	text, err := json.Marshal(rules)
	if err != nil { // plain data cannot fail
		panic(err)
	}
	return string(text)
}

func checkFair(queue string, rule jobkey.Fair) error {
	if queue != jobkey.Others {
		if err := checkQueue(queue); err != nil {
			return fmt.Errorf("the name of the queue %w", err)
		}
	}
	return rule.Check()
}

func (f *file) readFair(name string, from field) (rule jobkey.Fair, ok bool) {
	before := len(f.errs)
	if from.value.Kind != yaml.MappingNode {
		exact(&rule.Key, printable)(f, name, from)
		return rule, len(f.errs) == before
	}
	f.readMap(name, from, "", rules{
		{"key", exact(&rule.Key, printable)},
		{"weights", into(&rule.Weights, (*file).readWeights)},
	})
	return rule, len(f.errs) == before
}

func (f *file) readWeights(at string, from field) map[string]int {
	if from.value.Kind != yaml.MappingNode {
		f.refuse(at, "", from.line, `must be a map of tenants to weights: {big: 4, "*": 1}`)
		return nil
	}
	weights := map[string]int{}
	for _, tenant := range f.fields(from.value, at+".") {
		exact(new(string), func(value string) (err error) {
			if weights[tenant.name], err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return errors.New("not a whole number; must be 1 to 1000")
			}
			return nil
		})(f, at+"."+tenant.name, tenant)
	}
	return weights
}
