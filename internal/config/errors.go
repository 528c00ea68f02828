package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kinds of sources.
const (
	FromFlag    = "flag"
	FromEnv     = "env"
	FromFile    = "file"
	FromDefault = "default"
	// FromHandlers is the source of queues that only handlers name.
	FromHandlers = "handlers"
	// FromEnvFile is the environment file of a systemd service.
	FromEnvFile = "envfile"
	// FromCredential is a credential of a systemd service.
	FromCredential = "credential"
	// FromSearch is a configuration file that was found, not named.
	FromSearch = "search"
)

// maxShown limits how much of a value a message repeats, in bytes.
const maxShown = 160

// Source is where a value came from.
type Source struct {
	// Kind is one of FromFlag, FromEnv, FromEnvFile, FromFile, FromDefault, and for some keys
	// FromCredential, FromSearch or FromHandlers.
	Kind string `json:"kind"`
	// Name is the flag ("--worker-count"), the variable or the file's path; empty for a default.
	Name string `json:"name,omitempty"`
	// File is the file that sets the variable Name, if any.
	File string `json:"file,omitempty"`
	// Line is the line of the file, from 1; otherwise 0.
	Line int `json:"line,omitempty"`
	// Found marks a configuration file that was found, not named, in errors.
	Found bool `json:"found,omitempty"`
}

// String returns "flag --interval", "environment INTERVAL", "resqued.yaml:17" or "default".
func (s Source) String() string {
	switch {
	case s.Kind == FromFlag:
		return "flag " + s.Name
	case s.Kind == FromEnv:
		return "environment " + s.Name
	case s.Kind == FromEnvFile:
		return s.Name + " in " + s.File + ":" + strconv.Itoa(s.Line)
	case s.Kind == FromSearch:
		return "found"
	case s.Kind == FromCredential:
		return "credential of the service"
	case s.Kind == FromFile && s.Line > 0:
		return s.Name + ":" + strconv.Itoa(s.Line)
	case s.Kind == FromFile:
		return s.Name
	case s.Kind == FromHandlers:
		return "the queues of handlers"
	}
	return FromDefault
}

// rank is the precedence of a source: the highest wins.
func (s Source) rank() int {
	return slices.Index([]string{FromFile, FromEnvFile, FromEnv, FromFlag}, s.Kind)
}

// Error is one problem of a configuration.
type Error struct {
	// Key is the key at fault ("handlers.Thumb.timeout"); empty if the whole file cannot be read.
	Key string `json:"key,omitempty"`
	// Value is the given value without secrets, if any.
	Value   string `json:"value,omitempty"`
	Source  Source `json:"source"`
	Message string `json:"message"`
}

func (e Error) Error() string {
	if e.Key == "" {
		return e.Source.String() + ": " + e.Message
	}
	value := ""
	if e.Value != "" {
		value = " " + shown(e.Value)
	}
	key := e.Key
	if printable(key) != nil || len(key) > maxShown { // an unknown key of the file
		key = shown(key)
	}
	return fmt.Sprintf("%s%s (%s): %s", key, value, e.Source, e.Message)
}

// Errors are all problems of a configuration.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Warning is about a setting that works but is probably a mistake.
type Warning struct {
	Key     string `json:"key"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// shown quotes a value for a message, bounded and without control characters.
func shown(value string) string {
	if len(value) <= maxShown {
		return strconv.Quote(value)
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return strconv.Quote(value[:cut]) + "…"
}
