package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Values of Config.DrainThen.
const (
	DrainRequeue = "requeue" // back to the head of their queues, without a failure or a death
	DrainFail    = "fail"
)

// LinesAuto is the value of Config.Lines that uses waiting lists where possible.
const LinesAuto = "auto"

var drainWords = []string{DrainRequeue, DrainFail}

// drainTimeout is a duration, perhaps with a comma and DrainThen; in the file also a map of these.
func drainTimeout() kind {
	after := duration(func(c *Config) *time.Duration { return &c.DrainTimeout }, nil)
	return kind{
		hint: "duration",
		parse: func(c *Config, text string) error {
			limit, then, given := strings.Cut(text, ",")
			then = strings.TrimSpace(then)
			switch {
			case !given:
				then = DrainRequeue
			case !slices.Contains(drainWords, then):
				return fmt.Errorf("what is behind the comma is not known, one of %s", strings.Join(drainWords, ", "))
			}
			if err := after.parse(c, strings.TrimSpace(limit)); err != nil {
				return err
			}
			c.DrainThen = then
			return nil
		},
		show: func(c *Config) string {
			if c.DrainTimeout == 0 {
				return after.show(c) // nothing is ended
			}
			return after.show(c) + "," + c.DrainThen
		},
		fields: func(f *file, from field) (text string, ok bool) {
			limit, then := "", DrainRequeue
			ok = true
			for _, field := range f.fields(from.value, from.name+".") {
				name := from.name + "." + field.name
				value, err := scalar(field.value)
				switch field.name {
				case "after":
					limit = value
				case "then":
					if then = value; err == nil && !slices.Contains(drainWords, value) {
						err = errors.New("not known, one of " + strings.Join(drainWords, ", "))
					}
				default:
					value, err = "", errors.New(unknown(nearest(field.name, []string{"after", "then"})))
				}
				if err != nil {
					f.refuse(name, value, field.line, err.Error())
					ok = false
				}
			}
			if limit == "" && ok {
				f.refuse(from.name, "", from.line, "after is missing, the time; write {after: 50s, then: requeue}")
				ok = false
			}
			return limit + "," + then, ok
		},
	}
}
