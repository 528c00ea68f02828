package config

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// PlanLine is a line of the resolved configuration for people.
type PlanLine struct {
	// Key is "threads", "queues", "handlers" or any other key.
	Key string `json:"key"`
	// Item is an entry of queues, or a class of handlers; empty for the key's own line.
	Item string `json:"item,omitempty"`
	// Value is the resolved value, redacted: "16 of 64", "2m".
	Value string `json:"value"`
	// From names the value's sources: "WORKER_COUNT (env), thread_count (file)".
	From string `json:"from,omitempty"`
}

// Plan returns the resolved configuration, section by section, with sources.
func Plan(r *Resolved) []PlanLine {
	lines := []PlanLine{{
		Key:   "threads",
		Value: fmt.Sprintf("%d = %d × %d", r.Threads(), r.WorkerCount, r.ThreadCount),
		From:  r.from("worker_count", "thread_count"),
	}}
	lines = append(lines, r.planQueues()...)
	for _, route := range r.Routes {
		if route.Store == r.Store {
			lines = append(lines, PlanLine{Key: "routes", Value: strings.Join(route.Queues, ","), From: "stores." + r.Store})
		}
	}
	lines = append(lines, r.planFiles()...)
	for _, k := range r.keys() {
		switch k.name {
		case "worker_count", "thread_count", "queues":
			continue
		}
		value := k.show()
		if k.name == "redis_url" && r.RedisPasswordFile != "" {
			value += ", password from " + r.RedisPasswordFile
		}
		lines = append(lines, PlanLine{Key: k.name, Value: value, From: r.from(k.name)})
	}
	return append(append(append(lines, r.planHandlers()...), r.planRunners()...), r.planSchedules()...)
}

// WritePlan writes the plan, then the warnings.
func WritePlan(w io.Writer, r *Resolved) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, line := range Plan(r) {
		name, value := line.Key, line.Value
		switch {
		case line.Item != "":
			name = "  " + line.Item
		case line.Key == "handlers", line.Key == "runners", line.Key == "schedule": // long values: a table of their own
			if err := table.Flush(); err != nil {
				return err
			}
		}
		if value == "" {
			value = "-"
		}
		// Without a last cell, columns would not align across lines.
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\t\n", printableText(name), printableText(value), printableText(line.From)); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&text, "warn  %s\n", printableText(warning.Message))
	}
	for line := range strings.Lines(text.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// planFiles returns which files were read, and which this user may not read.
func (r *Resolved) planFiles() []PlanLine {
	line := PlanLine{Key: ConfigFlag, Value: r.File, From: r.from(ConfigFlag)}
	if r.File == "" {
		line.Value = NoFile
		if searched := r.searched(", "); searched != "" {
			line.From = searched
		}
		if len(r.Instances) > 0 {
			line.From += "; there is " + strings.Join(r.Instances, ", ")
		}
	}
	lines := []PlanLine{line}
	if r.EnvFile != "" {
		lines = append(lines, PlanLine{Key: "environment", Value: r.EnvFile, From: "of the service"})
	}
	for _, path := range r.Unread {
		lines = append(lines, PlanLine{Key: "not readable", Value: path, From: "of the service; run this as root (sudo)"})
	}
	return lines
}

// Origin says where a key's value comes from, as the end of a sentence: "from
// /etc/resqued/resqued.yaml:3", "the default, since there is no ./resqued.yaml".
func (r *Resolved) Origin(key string) string {
	source := r.Sources[key]
	switch {
	case source.Kind != FromDefault && source.Kind != "":
		return "from " + source.String()
	case r.File != "":
		return "the default, " + r.File + " does not set it"
	case len(r.Searched) == 0 && len(r.Untrusted) == 0:
		return "the default, no configuration was read"
	}
	text := "the default, " + r.searched(" and ")
	if len(r.Instances) > 0 {
		text += " (but " + strings.Join(r.Instances, ", ") + ": name one with --" + ConfigFlag + ")"
	}
	return text
}

// searched says why none of the searched files was read.
func (r *Resolved) searched(and string) string {
	var texts []string
	for _, path := range r.Untrusted {
		texts = append(texts, path+" is left out")
	}
	for i, path := range r.Searched {
		text := "no " + path
		if i == 0 && and != ", " {
			text = "there is " + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, and)
}

func (r *Resolved) planQueues() []PlanLine {
	count := fmt.Sprintf("%d in order of priority", len(r.Queues.Patterns))
	switch {
	case len(r.Queues.Patterns) == 0:
		count = "none"
	case len(r.Queues.Patterns) == 1:
		count = "1"
	}
	lines := []PlanLine{{Key: "queues", Value: count, From: r.from("queues")}}
	for _, p := range r.Queues.Patterns {
		value := "any"
		if p.Cap > 0 {
			value = fmt.Sprintf("%d of %d", min(p.Cap, r.Threads()), r.Threads())
			if p.Glob {
				value += ", each queue"
			}
		}
		lines = append(lines, PlanLine{Key: "queues", Item: p.Source, Value: value})
	}
	for _, text := range r.Queues.Exclude {
		lines = append(lines, PlanLine{Key: "queues", Item: "!" + text, Value: "never"})
	}
	return lines
}

// planSection returns the head of a section and a line for each of its n entries.
func (r *Resolved) planSection(section string, n int, entry func(i int) (name, value string)) []PlanLine {
	if n == 0 {
		return nil
	}
	lines := []PlanLine{{Key: section, Value: fmt.Sprint(n)}}
	for i := range n {
		name, value := entry(i)
		lines = append(lines, PlanLine{Key: section, Item: name, Value: value, From: r.Sources[section+"."+name].String()})
	}
	return lines
}

func (r *Resolved) planHandlers() []PlanLine {
	classes := r.classes()
	return r.planSection("handlers", len(classes), func(i int) (name, value string) {
		h := r.Handlers[classes[i]]
		text := planText(commandLine(h.Command))
		if h.Runner != "" {
			text = planText("runner " + h.Runner)
		}
		text.add(h.Queue != "", "queue %s", h.Queue)
		text.add(h.Timeout > 0, "timeout %s", FormatDuration(h.Timeout))
		text.add(h.MaxRun > 0, "max_run %s", FormatDuration(h.MaxRun))
		text.add(h.OnLeaving != "", "on_leaving %s", h.OnLeaving)
		text.add(true, "kill_after %s", FormatDuration(h.KillAfter))
		text.add(h.AtMostOnce, "at_most_once")
		if l := h.LongJob; l != nil {
			text.add(l.Slice == 0, "long_job")
			text.add(l.Slice > 0, "long_job in slices of %s", FormatDuration(l.Slice))
		}
		return classes[i], string(text)
	})
}

func (r *Resolved) planRunners() []PlanLine {
	names := r.runners()
	return r.planSection("runners", len(names), func(i int) (name, value string) {
		one := r.Runners[names[i]]
		text := planText(commandLine(one.Command))
		text.add(one.Dir != "", "dir %s", one.Dir)
		text.add(!one.Fork, "no fork")
		text.add(true, "concurrency %d, boot_timeout %s", one.Concurrency, FormatDuration(one.BootTimeout))
		text.add(one.JobsPerRunner > 0, "jobs_per_runner %d", one.JobsPerRunner)
		text.add(one.MaxRSS > 0, "max_rss %s", FormatSize(one.MaxRSS))
		text.add(one.MaxAge > 0, "max_age %s", FormatDuration(one.MaxAge))
		text.add(true, "kill_after %s", FormatDuration(one.KillAfter))
		text.add(len(one.Classes) > 0, "classes %s", strings.Join(one.Classes, ","))
		return names[i], string(text)
	})
}

func (r *Resolved) planSchedules() []PlanLine {
	return r.planSection("schedule", len(r.Schedules), func(i int) (name, value string) {
		s := r.Schedules[i]
		text := planText(fmt.Sprintf("%s, %s %s", s.When(), s.Class, s.Args))
		text.add(s.Queue != "", "queue %s", s.Queue)
		text.add(true, "if_running %s, catch_up %s", s.IfRunning, s.CatchUp)
		return s.Name, string(text)
	})
}

// planText is a list of what an entry has, separated by commas.
type planText string

func (t *planText) add(has bool, format string, a ...any) {
	if has {
		*t += planText(", " + fmt.Sprintf(format, a...))
	}
}

// commandLine writes an argv for people: words as they are, others quoted.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = word
		if word == "" || strings.ContainsAny(word, " \t\n\"'") {
			words[i] = strconv.Quote(word)
		}
	}
	return strings.Join(words, " ")
}

// from names the sources of keys, a common one once: "WORKER_COUNT (env), thread_count (file)".
func (r *Resolved) from(keys ...string) string {
	var parts []string
	for _, key := range keys {
		part := FromDefault
		switch source := r.Sources[key]; source.Kind {
		case FromFlag, FromEnv:
			part = fmt.Sprintf("%s (%s)", source.Name, source.Kind)
		case FromEnvFile:
			part = fmt.Sprintf("%s (%s)", source.Name, filepath.Base(source.File))
		case FromFile:
			part = key + " (file)"
		case FromSearch, FromCredential, FromHandlers:
			part = source.Kind
		}
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// printableText makes text safe for a terminal and for the table.
func printableText(text string) string {
	return strings.Map(func(r rune) rune {
		if printable(string(r)) != nil {
			return '?'
		}
		return r
	}, text)
}
