package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrElsewhere: the schedule belongs to another environment.
var ErrElsewhere = errors.New("is for another rails_env")

// Defaults complete what a stored schedule leaves to Ruby.
type Defaults struct {
	// Queue returns the queue of a class, or "".
	Queue    func(class string) string
	RailsEnv string
}

// ParseStored reads a schedule from resque-scheduler's persistent_schedules.
func ParseStored(name, config string, d Defaults) (Definition, error) {
	var raw struct {
		Class       string          `json:"class"`
		Custom      string          `json:"custom_job_class"`
		Queue       string          `json:"queue"`
		Args        json.RawMessage `json:"args"`
		Cron        json.RawMessage `json:"cron"`
		Every       json.RawMessage `json:"every"`
		RailsEnv    string          `json:"rails_env"`
		Description string          `json:"description"`
		TimeZone    string          `json:"timezone"`
		IfRunning   string          `json:"if_running"`
		CatchUp     string          `json:"catch_up"`
	}
	if err := json.Unmarshal([]byte(config), &raw); err != nil {
		return Definition{}, fmt.Errorf("its definition cannot be read: %w", err)
	}
	s := Definition{
		Name: name, Class: raw.Class, Queue: raw.Queue, Description: raw.Description, TimeZone: raw.TimeZone,
		IfRunning: raw.IfRunning, CatchUp: raw.CatchUp, Stored: config,
	}
	if raw.Custom != "" && raw.Custom != "Resque::Job" {
		return s, fmt.Errorf("custom_job_class %s is known to Ruby only", raw.Custom)
	}
	if s.Class == "" {
		s.Class = name
	}
	if raw.RailsEnv != "" && !slices.Contains(strings.Split(strings.ReplaceAll(raw.RailsEnv, " ", ""), ","), d.RailsEnv) {
		return s, ErrElsewhere
	}
	var err error
	if s.Args, err = Arguments(raw.Args); err != nil {
		return s, err
	}
	if s.Queue == "" && d.Queue != nil {
		s.Queue = d.Queue(s.Class)
	}
	if s.Cron, _, err = withOptions(raw.Cron); err != nil {
		return s, fmt.Errorf("cron %w", err)
	}
	every, options, err := withOptions(raw.Every)
	if err != nil {
		return s, fmt.Errorf("every %w", err)
	}
	if s.Cron == "" { // cron wins, as in Ruby
		s.Every, s.FirstIn = every, options["first_in"]
	}
	if err := s.Check(); err != nil {
		return s, err
	}
	_, err = s.Timing()
	return s, err
}

// withOptions reads a text, or a list of one and rufus-scheduler's options.
func withOptions(value json.RawMessage) (text string, options map[string]string, err error) {
	if len(value) == 0 || string(value) == "null" {
		return "", nil, nil
	}
	if json.Unmarshal(value, &text) == nil {
		return text, nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil || len(list) == 0 || len(list) > 2 || json.Unmarshal(list[0], &text) != nil {
		return "", nil, fmt.Errorf("%s is neither a text nor a list of one and its options", value)
	}
	if len(list) == 2 {
		var given map[string]any
		if json.Unmarshal(list[1], &given) != nil {
			return "", nil, fmt.Errorf("%s: the options must be an object", value)
		}
		options = map[string]string{}
		for name, v := range given {
			options[strings.TrimPrefix(name, ":")] = fmt.Sprint(v)
		}
	}
	return text, options, nil
}
