package config

import (
	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/redact"
)

// redacted is which arguments are hidden. In the file it is a map of classes to paths.
func redacted(to **redact.Rules) kind {
	return kind{
		hint: "rules",
		parse: func(text string) error {
			rules, err := redact.Parse(text)
			if *to = nil; rules.Any() {
				*to = rules
			}
			return err
		},
		show: func() string { return (*to).String() },
		fields: func(f *file, from field) (text string, ok bool) {
			rules := &redact.Rules{}
			ok = true
			for _, field := range f.fields(from.value, from.name+".") {
				name := from.name + "." + field.name
				if field.value.Kind != yaml.SequenceNode {
					f.refuse(name, "", field.line, "must be a list of paths, such as [args.0, args.1.token], or [args] for all")
					ok = false
					continue
				}
				paths, _, known := f.list(name, field.value)
				if err := rules.Add(field.name, paths); !known {
					ok = false
				} else if err != nil {
					f.refuse(name, "", field.line, err.Error())
					ok = false
				}
			}
			return rules.String(), ok
		},
	}
}
