package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/wire"
)

var scheduleSynonyms = map[string]string{
	"at": "cron", "crontab": "cron", "interval": "every", "time_zone": "timezone", "tz": "timezone", "zone": "timezone",
	"job": "class", "job_class": "class", "arguments": "args", "params": "args", "overlap": "if_running",
}

// maxArgs limits a schedule's arguments, in bytes of JSON.
const maxArgs = 1 << 18

// readSchedules reads the schedule section, in resque-scheduler's format.
func (f *file) readSchedules(section field) {
	for _, one := range f.entriesOf(section, `must be a map of names to schedules: nightly: {cron: "0 2 * * *", class: Report, queue: reports}`) {
		before := len(f.errs)
		if s := f.readSchedule(one); len(f.errs) == before {
			f.schedules[one.name] = s
		}
	}
}

// scheduleRules are in the order of the documentation.
func scheduleRules(s *schedule.Definition) rules {
	all := rules{
		{"cron", exact(&s.Cron, printable)},
		{"every", func(f *file, name string, from field) { f.readEvery(name, from, s) }},
		{"first_in", exact(&s.FirstIn, printable)},
		{"timezone", exact(&s.TimeZone, printable)},
		{"class", exact(&s.Class, checkClass)},
		{"queue", exact(&s.Queue, checkQueue)},
		{"args", func(f *file, name string, from field) { f.readArgs(name, from, s) }},
		{"if_running", exact(&s.IfRunning, among(schedule.IfRunningValues))},
		{"catch_up", exact(&s.CatchUp, among(schedule.CatchUpValues))},
		{"description", exact(&s.Description, printable)},
	}
	for i, one := range all {
		all[i].read = func(f *file, name string, from field) {
			if text, ok := symbol(from.value); ok {
				of := *from.value
				of.Value = text
				from.value = &of
			}
			one.read(f, name, from)
		}
	}
	return append(all, rule{name: "rails_env"}, rule{name: "custom_job_class"}, rule{name: "persist"})
}

func (f *file) readSchedule(from field) schedule.Definition {
	at := "schedule." + from.name
	s := schedule.Definition{
		Name: from.name, Class: from.name, Args: json.RawMessage("[]"),
		IfRunning: schedule.IfRunningValues[0], CatchUp: schedule.CatchUpValues[0],
	}
	if err := checkName(from.name); err != nil {
		f.refuse(at, "", from.line, err.Error())
	}
	before := len(f.errs)
	given, _ := f.readMap(at, from, `must be a map: {cron: "0 2 * * *", class: Report, queue: reports}`, scheduleRules(&s), scheduleSynonyms)
	if len(f.errs) > before {
		return s
	}
	if _, err := s.Timing(); err != nil {
		key, value, line := at, "", from.line
		for _, field := range []string{"every", "cron"} { // name the field that is wrong
			if given.line(field) > 0 {
				key, value, line = at+"."+field, map[string]string{"cron": s.Cron, "every": s.Every}[field], given.line(field)
			}
		}
		f.refuse(key, value, line, err.Error())
	}
	return s
}

func checkName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	return printable(name)
}

// readEvery reads an interval or, as in rufus-scheduler, a list of one and a map with first_in.
func (f *file) readEvery(name string, from field, s *schedule.Definition) {
	list := from.value
	if list.Kind != yaml.SequenceNode {
		exact(&s.Every, printable)(f, name, from)
		return
	}
	if len(list.Content) == 0 || len(list.Content) > 2 {
		f.refuse(name, "", from.line, "must be an interval, or a list of one and {first_in: …}")
		return
	}
	exact(&s.Every, printable)(f, name, field{name: from.name, line: from.line, value: resolved(list.Content[0])})
	if len(list.Content) == 1 {
		return
	}
	options := resolved(list.Content[1])
	if options.Kind != yaml.MappingNode {
		f.refuse(name, "", options.Line, "the second entry must be a map: {first_in: 5m}")
		return
	}
	for _, option := range f.fields(options, name+".") {
		if strings.TrimPrefix(option.name, ":") != "first_in" {
			f.refuse(name+"."+option.name, "", option.line, "not supported; if_running and catch_up say what happens to ticks")
			continue
		}
		exact(&s.FirstIn, printable)(f, name+"."+option.name, option)
	}
}

// readArgs reads the arguments, any YAML, as JSON.
func (f *file) readArgs(name string, from field, s *schedule.Definition) {
	text, err := appendJSON(nil, from.value, 0)
	if err == nil {
		s.Args, err = schedule.Arguments(text)
	}
	if err == nil {
		_, err = wire.EncodePayload("Check", s.Args)
	}
	if err != nil {
		f.refuse(name, "", from.line, err.Error())
	}
}

// appendJSON writes YAML as JSON; maps keep their order.
func appendJSON(b []byte, node *yaml.Node, depth int) ([]byte, error) {
	node = resolved(node)
	if depth > 100 || len(b) > maxArgs {
		return nil, errors.New("too large, or nested too deeply")
	}
	switch node.Kind {
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, item := range node.Content {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendJSON(b, item, depth+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case yaml.MappingNode:
		b = append(b, '{')
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			name := resolved(node.Content[i])
			key, err := scalarJSON(name)
			if err == nil && key[0] != '"' && string(key) != "null" { // Ruby makes it a text
				key = wire.AppendString(nil, string(key))
			}
			if name.Kind != yaml.ScalarNode || name.ShortTag() == "!!merge" || seen[string(key)] || string(key) == "null" {
				return nil, fmt.Errorf("line %d: the keys of a map must be plain text, each once", name.Line)
			}
			if err != nil {
				return nil, err
			}
			seen[string(key)] = true
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, key...), ':')
			if b, err = appendJSON(b, node.Content[i+1], depth+1); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	}
	text, err := scalarJSON(node)
	return append(b, text...), err
}

// rubyNumber and rubyTime match what Ruby's YAML reads as a number, and as a time or seconds.
// Unlike in YAML 1.2, 1,000 and 12:30 are numbers, and 1e3 is a text.
var (
	rubyNumber = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:[-+]?(?:(?:[0-9][0-9_,]*)?\.[0-9]*(?:[eE][-+][0-9]+)?|0b[01_,]+|0[0-7_,]+|0|[1-9](?:[0-9]|,[0-9]|_[0-9])*|0x[0-9a-fA-F_,]+)|(?i:[-+]?\.inf|\.nan))$`)
	})
	rubyTime = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^-?\d{4}-\d{1,2}-\d{1,2}(?:[Tt]|\s+)\d{1,2}:\d\d:\d\d|^\d{4}-\d{1,2}-\d{1,2}$|^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9]){1,2}(?:\.[0-9_]*)?$`)
	})
	isoDate = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d{4}-\d\d-\d\d$`) })
)

// unquoted reports whether a value's text decides its type: it has no quotes and no tag.
func unquoted(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Style == 0 }

// symbol returns the text of a Ruby symbol: :name, or :"name".
func symbol(node *yaml.Node) (string, bool) {
	text, ok := strings.CutPrefix(node.Value, ":")
	if !ok || text == "" || !unquoted(node) {
		return "", false
	}
	if n := len(text); n > 1 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		text = strings.TrimPrefix(text[1:n-1], ":")
	}
	return text, true
}

// scalarJSON writes a value as Ruby's JSON, because a file of resque-scheduler has to push the
// same jobs here. It refuses values that Ruby and YAML read differently.
func scalarJSON(node *yaml.Node) ([]byte, error) {
	value, tag := node.Value, node.ShortTag()
	if unquoted(node) {
		if text, ok := symbol(node); ok {
			return wire.AppendString(nil, text), nil
		}
		switch strings.ToLower(value) {
		case "", "~", "null":
			return []byte("null"), nil
		case "yes", "true", "on":
			return []byte("true"), nil
		case "no", "false", "off":
			return []byte("false"), nil
		}
		number := tag == "!!int" || tag == "!!float"
		if rubyTime().MatchString(value) && !isoDate().MatchString(value) || rubyNumber().MatchString(value) != number {
			return nil, fmt.Errorf("line %d: Ruby and others read %s differently; put it in quotes if it is a text, or write a number in digits only", node.Line, shown(value))
		}
	}
	switch tag {
	case "!!null":
		return []byte("null"), nil
	case "!!str", "!!timestamp":
		return wire.AppendString(nil, value), nil
	case "!!int", "!!float", "!!bool":
		if tag != "!!bool" && json.Valid([]byte(value)) && !strings.Contains(value, ".") {
			return []byte(value), nil // an integer of any size
		}
		var v any
		if err := node.Decode(&v); err != nil {
			return nil, fmt.Errorf("line %d: %w", node.Line, err)
		}
		if x, ok := v.(float64); ok {
			v = resqued.RubyFloat(x)
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s is not a number in JSON", node.Line, shown(value))
		}
		return text, nil
	default:
		return nil, fmt.Errorf("line %d: tag %s is not supported", node.Line, tag)
	}
}

// takeSchedules takes the schedules of the file. One without a queue gets its class's.
// internal/app adds the queues of Go classes (Program.QueueOf).
func (l *loader) takeSchedules() {
	c := &l.result.Config
	for _, name := range slices.Sorted(maps.Keys(l.file.schedules)) {
		s := l.file.schedules[name]
		if s.Queue == "" {
			s.Queue = c.Handlers[s.Class].Queue
		}
		if selector.Capped(l.file.schedules[name].Queue) {
			l.warn("schedule."+name+".queue", selector.OneName, fmt.Sprintf("schedule %s: %q is the queue of that name; a cap belongs into queues.", name, s.Queue))
		}
		c.Schedules = append(c.Schedules, s)
		l.result.Sources["schedule."+name] = l.file.at("schedule." + name)
	}
	if l.ok("scheduler_lock") && c.SchedulerLock != SchedulerLockNone && len(c.Schedules) == 0 && !c.PersistentSchedules {
		l.noEffect("scheduler_lock", " on schedules: there are none.")
	}
	if c.UntilEmpty && len(c.Schedules) > 0 {
		l.warn("schedule", "no_effect", "schedule has no effect: a daemon that leaves when all is empty (until_empty) keeps none.")
	}
}

// Values of scheduler_lock. The second may have a suffix: a colon and a prefix.
const (
	SchedulerLockNone = "none"
	schedulerLockGem  = "resque-scheduler"
)

func checkSchedulerLock(text string) error {
	name, prefix, given := strings.Cut(text, ":")
	if text != SchedulerLockNone && name != schedulerLockGem || given && prefix == "" {
		return errors.New("not known, one of none, resque-scheduler, or resque-scheduler:PREFIX (RESQUE_SCHEDULER_MASTER_LOCK_PREFIX)")
	}
	return printable(text)
}

// SchedulerLockPrefix returns whether resque-scheduler's master lock is shared, and its prefix.
func (c Config) SchedulerLockPrefix() (prefix string, shared bool) {
	_, prefix, _ = strings.Cut(c.SchedulerLock, ":")
	return prefix, c.SchedulerLock != SchedulerLockNone && c.SchedulerLock != ""
}
