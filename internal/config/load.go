package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Options say where to read a configuration from.
type Options struct {
	// File is the path, or NoFile; empty: the flag, else RESQUED_CONFIG, else what Search finds.
	File string
	// FileSource is where File comes from; empty = the flag.
	FileSource Source
	// Search is where an unnamed file is looked for.
	Search Places
	// RunsPrograms refuses another user's file that Search has found, instead of ignoring it.
	RunsPrograms bool
	// Flags are the parsed flags; only those of AddFlags and AddGlobalFlags count. May be nil.
	Flags *pflag.FlagSet
	// Environ is the environment, NAME=value; nil = the process's own.
	Environ []string
	// NeedQueues refuses a configuration without queues.
	NeedQueues bool
	// Classes are the program's own. Their queues are worked in this order if no others are named.
	Classes []ClassQueues
	// Defaults replace built-in defaults, by key, written as in the environment.
	Defaults map[string]string
	// Store selects one of several stores; empty: the flag --store, else RESQUED_STORE, else all.
	Store string
	// each: this store is one of all.
	each bool
}

// Resolved is a configuration and where it comes from.
type Resolved struct {
	Config
	// File is the path of the file that was read; empty = none.
	File string
	// Searched are the files that were not found, Instances the services' files in that case.
	Searched, Instances []string
	// Untrusted are files that were ignored because others may have written them.
	Untrusted []string
	// EnvFile is the service's environment file that was read; empty = none.
	EnvFile string
	// Unread are files of the service that systemd reads but this user may not.
	Unread []string
	// Sources is the source of each key, "handlers.<class>" and "runners.<name>".
	Sources  map[string]Source
	Warnings []Warning
	// Stores are the configurations of all stores, in the file's order, if none was chosen. Then
	// keys that stores may set are meaningless here, and RedisURL is empty.
	Stores []*Resolved
}

// Load reads, resolves and validates a configuration, by precedence from flags, environment, file
// and defaults. The error is Errors, with all problems.
func Load(o Options) (*Resolved, error) {
	l := &loader{
		options: o, env: newEnviron(o.Environ), file: &file{}, bad: map[string]bool{},
		result: &Resolved{Sources: map[string]Source{}},
	}
	l.readFile()
	if !l.chooseStore() {
		return l.loadStores()
	}
	l.readRunnerFlag()
	l.checkRunnerUse()
	l.readKeys()
	if !l.file.unreadable { // without the file, half of what follows would be wrong
		l.readQueues()
		l.result.LocketedQueues, l.result.UniqueQueues = l.queueSet("locketed_queues"), l.queueSet("unique_queues")
		l.result.EnvKeep, l.result.EnvDrop = l.envSet("env_keep"), l.envSet("env_drop")
		l.readHostHook()
		l.compare()
		l.result.MayStretch = !l.given("interval") && !l.result.UntilEmpty
		l.warnOfDeaths()
		l.warnOfLocks()
		l.readCertificates()
		l.warnOfExposed()
		l.readPassword()
		l.readDatabase()
		l.takeRunners()
		l.takeHandlers()
		l.warnOfHandlers()
		l.warnOfRunners()
		l.takeSchedules()
		l.warnOfUnread()
	}
	if len(l.errs) > 0 {
		return nil, l.markFound()
	}
	l.warnOfUnknown()
	if _, err := time.LoadLocation(strings.TrimPrefix(l.env["TZ"], ":")); err != nil {
		l.warn("schedule", "time_zone", fmt.Sprintf("TZ (environment) is %s, which is not a known time zone: all times are UTC.", shown(l.env["TZ"])))
	}
	return l.result, nil
}

type loader struct {
	options Options
	env     environ
	file    *file
	opened  *file      // the file that the search found and read
	store   *fileStore // whose configuration this is; nil = no stores
	service service
	lists   map[string][]string // values of list keys
	result  *Resolved
	errs    Errors
	byFlag  Source          // of the runner given by --runner; empty = none
	bad     map[string]bool // refused keys, with which nothing is compared
}

// layers merges the sources. Values stay text, because viper's casts hide errors (it reads "8x" as
// 0). The environment is a layer like the file, because viper itself reads only the process's.
func (l *loader) layers() (*viper.Viper, error) {
	v := viper.New()
	environment := map[string]any{}
	for _, k := range keys() {
		def, ok := l.options.Defaults[k.name]
		if !ok {
			def = k.def
		}
		v.SetDefault(k.name, def)
		l.result.Sources[k.name] = Source{Kind: FromDefault}
		if l.file.lines[k.name] > 0 {
			l.result.Sources[k.name] = l.file.at(k.name)
		}
		if l.store.sets(k.name) || l.store != nil && k.name == "queues" {
			// A store's own value wins over the environment, which is for all stores.
		} else if name, overruled := l.env.find(k); name != "" {
			environment[k.name] = l.env[name]
			l.result.Sources[k.name] = Source{Kind: FromEnv, Name: name}
			if v := l.env[name]; len(v) > 1 && !slices.Contains(foreign, name) && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0] {
				l.refuse(k.name, v, "its quotes are a part of the value: docker takes an env file literally; write it without quotes")
			}
			for _, other := range overruled {
				l.warn(k.name, "overruled", fmt.Sprintf("%s (environment) has no effect: %s is set too and wins.", other, name))
			}
		} else if name, overruled := l.service.values.find(k); name != "" {
			environment[k.name] = l.service.values[name]
			l.result.Sources[k.name] = Source{Kind: FromEnvFile, Name: name, File: l.service.env, Line: l.service.lines[name]}
			for _, other := range overruled {
				l.warn(k.name, "overruled", fmt.Sprintf("%s (%s) has no effect: %s is set too and wins.", other, l.service.env, name))
			}
		}
		if flag := ours(l.options.Flags, k); flag != nil {
			if err := v.BindPFlag(k.name, flag); err != nil {
				return nil, err
			}
			if flag.Changed {
				l.result.Sources[k.name] = Source{Kind: FromFlag, Name: "--" + flag.Name}
			}
		}
	}
	if err := v.MergeConfigMap(l.file.values); err != nil {
		return nil, err
	}
	return v, v.MergeConfigMap(environment)
}

// readKeys resolves every key and parses all but lists, which depend on other keys.
func (l *loader) readKeys() {
	v, err := l.layers()
	if err != nil {
		l.errs = append(l.errs, Error{Source: Source{Kind: FromDefault}, Message: err.Error()})
		return
	}
	l.lists = map[string][]string{}
	for _, k := range l.result.keys() {
		if k.list {
			l.lists[k.name] = entries(v.Get(k.name))
			continue
		}
		if l.bad[k.name] {
			continue
		}
		text := strings.TrimSpace(fmt.Sprint(v.Get(k.name)))
		if err := k.parse(text); err != nil {
			l.refuse(k.name, text, err.Error())
		}
	}
}

// entries returns a list that the file or one text gives. Empty text is not a list.
func entries(value any) []string {
	var list []string
	switch v := value.(type) {
	case []string:
		list = slices.Clone(v)
	case string:
		if strings.TrimSpace(v) != "" {
			list = strings.Split(v, ",")
		}
	}
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// markFound returns the errors, marked if the file was found, not named.
func (l *loader) markFound() Errors {
	if l.result.Sources[ConfigFlag].Kind == FromSearch {
		for i := range l.errs {
			l.errs[i].Source.Found = l.errs[i].Source.Kind == FromFile
		}
	}
	return l.errs
}

func (l *loader) ok(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return l.bad[name] })
}

func (l *loader) refuse(key, value, message string) {
	l.bad[key] = true
	l.errs = append(l.errs, Error{Key: key, Value: withoutSecret(key, value), Source: l.result.Sources[key], Message: message})
}

// withoutSecret is the value of a key as messages may show it.
func withoutSecret(key, value string) string {
	switch key {
	case "redis_url":
		return RedactURL(value)
	case "database_url":
		return redactDatabase(value)
	}
	return value
}

// noEffect warns of a key that is given and has no effect.
func (l *loader) noEffect(key, format string, a ...any) {
	if l.given(key) {
		l.warn(key, "no_effect", fmt.Sprintf("%s (%s) has no effect", key, l.result.Sources[key])+fmt.Sprintf(format, a...))
	}
}

// given reports whether a key is not left to its default.
func (l *loader) given(key string) bool { return l.result.Sources[key].Kind != FromDefault }

func (l *loader) warn(key, code, message string) {
	l.result.Warnings = append(l.result.Warnings, Warning{Key: key, Code: code, Message: message})
}
