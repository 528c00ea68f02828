package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The kinds of sources.
const (
	FromFlag    = "flag"
	FromEnv     = "env"
	FromFile    = "file"
	FromDefault = "default"
	// FromHandlers is the source of queues that only the handlers name.
	FromHandlers = "handlers"
	// FromEnvFile is the file of the environment that systemd gives a service.
	FromEnvFile = "envfile"
	// FromCredential is a credential that systemd gives a service.
	FromCredential = "credential"
	// FromSearch is a configuration file that nothing has named.
	FromSearch = "search"
)

// maxShown bounds what a message repeats of a value, in bytes.
const maxShown = 160

// Source is where a value came from.
type Source struct {
	// Kind is one of FromFlag, FromEnv, FromEnvFile, FromFile, FromDefault, and for some keys
	// FromCredential, FromSearch or FromHandlers.
	Kind string `json:"kind"`
	// Name is the flag ("--worker-count"), the variable or the file's path;
	// empty for a default.
	Name string `json:"name,omitempty"`
	// File is the file that sets the variable Name; empty if none does.
	File string `json:"file,omitempty"`
	// Line is the line of the file, from 1; 0 elsewhere.
	Line int `json:"line,omitempty"`
	// Found marks a configuration file that nothing has named, in errors.
	Found bool `json:"found,omitempty"`
}

// String returns the source as messages name it: "flag --interval",
// "environment INTERVAL", "resqued.yaml:17", "default".
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

// rank is how far up a source is: the value of a higher one wins.
func (s Source) rank() int {
	return slices.Index([]string{FromFile, FromEnvFile, FromEnv, FromFlag}, s.Kind)
}

// Error is one thing that is wrong with a configuration.
type Error struct {
	// Key is the key at fault ("handlers.Thumb.timeout"); empty when the file as
	// a whole cannot be read.
	Key string `json:"key,omitempty"`
	// Value is what was given, without secrets; empty where there is none.
	Value  string `json:"value,omitempty"`
	Source Source `json:"source"`
	// Message is what is wrong and what to do about it.
	Message string `json:"message"`
}

// Error returns one line: key, value, source, message.
func (e Error) Error() string {
	if e.Key == "" {
		return e.Source.String() + ": " + e.Message
	}
	value := ""
	if e.Value != "" {
		value = " " + shown(e.Value)
	}
	key := e.Key
	if printable(key) != nil || len(key) > maxShown { // a key of the file that is none of ours
		key = shown(key)
	}
	return fmt.Sprintf("%s%s (%s): %s", key, value, e.Source, e.Message)
}

// Errors is everything that is wrong with a configuration. Load returns it, so
// that one run shows all there is to mend.
type Errors []Error

// Error returns one line per error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Warning is about a setting that works and is probably not what was meant.
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
