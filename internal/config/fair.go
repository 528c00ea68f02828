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

var fairFields = []string{"key", "weights"}

// fair are the queues whose tenants take turns: queues to templates or maps in the file, else
// JSON.
func fair() kind {
	return kind{
		hint: "JSON",
		parse: func(c *Config, text string) error {
			c.Fair = nil
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
				c.Fair = rules
			}
			return nil
		},
		show: func(c *Config) string { return showFair(c.Fair) },
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
		f.readText(name, from, &rule.Key, printable)
		return rule, len(f.errs) == before
	}
	for _, field := range f.fields(from.value, name+".") {
		at := name + "." + field.name
		switch {
		case field.name == "key":
			f.readText(at, field, &rule.Key, printable)
		case field.name != "weights":
			f.refuse(at, "", field.line, unknown(nearest(field.name, fairFields)))
		case field.value.Kind != yaml.MappingNode:
			f.refuse(at, "", field.line, `must be a map of tenants to weights: {big: 4, "*": 1}`)
		default:
			rule.Weights = map[string]int{}
			for _, tenant := range f.fields(field.value, at+".") {
				var text string
				f.readText(at+"."+tenant.name, tenant, &text, func(value string) (err error) {
					if rule.Weights[tenant.name], err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
						return errors.New("not a whole number; must be 1 to 1000")
					}
					return nil
				})
			}
		}
	}
	return rule, len(f.errs) == before
}
