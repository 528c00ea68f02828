package config

import (
	"fmt"
	"slices"
	"strings"
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
func (c *Config) drainTimeout() kind {
	after := duration(&c.DrainTimeout, nil)
	return kind{
		hint: "duration",
		parse: func(text string) error {
			limit, then, given := strings.Cut(text, ",")
			then = strings.TrimSpace(then)
			switch {
			case !given:
				then = DrainRequeue
			case !slices.Contains(drainWords, then):
				return fmt.Errorf("what is behind the comma is not known, one of %s", strings.Join(drainWords, ", "))
			}
			if err := after.parse(strings.TrimSpace(limit)); err != nil {
				return err
			}
			c.DrainThen = then
			return nil
		},
		show: func() string {
			if c.DrainTimeout == 0 {
				return after.show() // nothing is ended
			}
			return after.show() + "," + c.DrainThen
		},
		fields: func(f *file, from field) (text string, ok bool) {
			limit, then, before := "", DrainRequeue, len(f.errs)
			f.readMap(from.name, from, "", rules{{"after", exact(&limit, anything)}, {"then", exact(&then, among(drainWords))}})
			ok = len(f.errs) == before
			if limit == "" && ok {
				f.refuse(from.name, "", from.line, "after is missing, the time; write {after: 50s, then: requeue}")
				ok = false
			}
			return limit + "," + then, ok
		},
	}
}
