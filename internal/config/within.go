package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/history/queueage"
	"github.com/resqued/resqued/internal/selector"
)

// byName is a promise's time that is part of the queue's name.
const byName = "name"

// within are the promises of queues: a map in the file, else a list such as mail:1m,img_*:1h.
func within(to *queueage.Promises) kind {
	return kind{
		hint: "list",
		parse: func(text string) error {
			*to = nil
			for entry := range strings.SplitSeq(text, ",") {
				if entry = strings.TrimSpace(entry); entry == "" {
					continue
				}
				at := strings.LastIndexByte(entry, ':')
				if at < 0 {
					return fmt.Errorf("%q has no time; write mail:1m", entry)
				}
				p, err := promise(entry[:at], entry[at+1:])
				if err != nil {
					return err
				}
				*to = append(*to, p)
			}
			return nil
		},
		show: func() string { return showWithin(*to) },
		fields: func(f *file, from field) (text string, ok bool) {
			var all queueage.Promises
			before := len(f.errs)
			for _, queue := range f.fields(from.value, from.name+".") {
				exact(&text, func(value string) error {
					p, err := promise(queue.name, value)
					all = append(all, p)
					return err
				})(f, from.name+"."+queue.name, queue)
			}
			return showWithin(all), len(f.errs) == before
		},
	}
}

func promise(queue, text string) (p queueage.Promise, err error) {
	queue, text = strings.TrimSpace(queue), strings.TrimSpace(text)
	if err := selector.CheckSet([]string{queue}); err != nil || queue == "" || queue[0] == '!' || strings.ContainsAny(queue, ", ") {
		return p, fmt.Errorf("%q is not a queue; write a name or a glob", queue)
	}
	p.Queue = queue
	if text == byName {
		if !strings.ContainsAny(queue, "*?[") && queueage.InName(queue) == 0 {
			return p, fmt.Errorf("the name of queue %q says no time; write one as within_5_minutes", queue)
		}
		return p, nil
	}
	if p.Within, err = ParseDuration(text); err != nil {
		return p, fmt.Errorf("queue %q: %w", queue, err)
	}
	if p.Within < time.Second || p.Within > maxDuration {
		return p, fmt.Errorf("queue %q: %w", queue, errors.New("must be 1s to "+FormatDuration(maxDuration)))
	}
	return p, nil
}

func showWithin(all queueage.Promises) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.Queue + ":" + byName
		if p.Within > 0 {
			texts[i] = p.Queue + ":" + FormatDuration(p.Within)
		}
	}
	return strings.Join(texts, ",")
}
