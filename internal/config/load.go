package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Options are where a configuration is read from.
type Options struct {
	// File is the configuration file. Empty: the flag --config, else RESQUED_CONFIG, else
	// the one that Search finds. NoFile stands for none.
	File string
	// FileSource is where File is from; empty = the flag.
	FileSource Source
	// Search is where a file is looked for that nothing names.
	Search Places
	// RunsPrograms refuses a file of another user that Search has found, instead of going on
	// without it.
	RunsPrograms bool
	// Flags are the parsed flags; of those that AddFlags and AddGlobalFlags
	// registered, the given ones count. May be nil.
	Flags *pflag.FlagSet
	// Environ is the environment, NAME=value; nil = that of this process.
	Environ []string
	// NeedQueues: a configuration without queues is refused.
	NeedQueues bool
	// Classes are the program's own, in the order in which their queues are worked when
	// the configuration names none.
	Classes []ClassQueues
	// Defaults replace built-in defaults, by key, written as in the environment.
	Defaults map[string]string
	// Store is which one of several stores is meant; empty: the flag --store, else
	// RESQUED_STORE, else all of them.
	Store string
	// each: it is one of all.
	each bool
}

// Resolved is a configuration and what there is to know about it.
type Resolved struct {
	Config
	// File is the path of the file that was read; empty = none.
	File string
	// Searched are the files that were looked for and not found, Instances those of the
	// services there are where none was found.
	Searched, Instances []string
	// Untrusted are the files that were found and left out, since others may have written them.
	Untrusted []string
	// EnvFile is the file of the service's environment that was read; empty = none.
	EnvFile string
	// Unread are files that systemd reads for the service and this user may not.
	Unread []string
	// Sources is where the value of each key, and of each "handlers.<class>" and "runners.<name>", came
	// from.
	Sources map[string]Source
	// Warnings are settings that work and are probably not what was meant.
	Warnings []Warning
	// Stores are the configurations of all stores, in the order of the file, where it has
	// stores and none was chosen. Then the keys that a store may set have no meaning here, and
	// there is no redis_url.
	Stores []*Resolved
}

// Load reads, resolves and validates a configuration. A flag wins over the
// environment, that over the file, that over the default. The error is Errors:
// everything that is wrong, not only what was found first.
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
	if !l.file.unreadable { // else half of what follows would be wrong for lack of the file
		l.readQueues()
		l.readQueueSets()
		l.readEnvSets()
		l.readHostHook()
		l.compare()
		l.result.MayStretch = l.result.Sources["interval"].Kind == FromDefault && !l.result.UntilEmpty
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
	opened  *file      // the one that the search has found and read already
	store   *fileStore // whose configuration it is; nil = there are none
	service service
	lists   map[string][]string // values of the keys that are lists
	result  *Resolved
	errs    Errors
	byFlag  Source          // of the runner that --runner gives; empty = there is none
	bad     map[string]bool // keys that were refused, so that nothing is compared with them
}

// layers puts the sources on top of each other. viper only merges them: values
// go in and come out as the text that was written, because what it casts it
// casts without complaint ("8x" is the number 0 to it). The environment is a
// layer like the file instead of viper's own, which reads that of the process.
func (l *loader) layers() (*viper.Viper, error) {
	v := viper.New()
	environment := map[string]any{}
	for _, k := range keys {
		def, ok := l.options.Defaults[k.name]
		if !ok {
			def = k.def
		}
		v.SetDefault(k.name, def)
		l.result.Sources[k.name] = Source{Kind: FromDefault}
		if line, ok := l.file.lines[k.name]; ok {
			l.result.Sources[k.name] = Source{Kind: FromFile, Name: l.file.path, Line: line}
		}
		if l.store.sets(k.name) || l.store != nil && k.name == "queues" {
			// What a store says is closer to it than what the environment says of all.
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

// readKeys resolves every key and reads all but the lists, which wait for what
// they depend on.
func (l *loader) readKeys() {
	v, err := l.layers()
	if err != nil {
		l.errs = append(l.errs, Error{Source: Source{Kind: FromDefault}, Message: err.Error()})
		return
	}
	l.lists = map[string][]string{}
	for _, k := range keys {
		if k.list {
			l.lists[k.name] = entries(v.Get(k.name))
			continue
		}
		if l.bad[k.name] {
			continue
		}
		text := strings.TrimSpace(fmt.Sprint(v.Get(k.name)))
		if err := k.parse(&l.result.Config, text); err != nil {
			l.refuse(k.name, text, err.Error())
		}
	}
}

// entries returns a list as the file or one text gives it. No text is not a list.
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

// markFound returns the errors; those of a file that nothing has named say so.
func (l *loader) markFound() Errors {
	if l.result.Sources[ConfigFlag].Kind == FromSearch {
		for i := range l.errs {
			l.errs[i].Source.Found = l.errs[i].Source.Kind == FromFile
		}
	}
	return l.errs
}

// ok reports whether none of the keys was refused.
func (l *loader) ok(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return l.bad[name] })
}

func (l *loader) refuse(key, value, message string) {
	switch key {
	case "redis_url":
		value = redactURL(value)
	case "database_url":
		value = redactDatabase(value)
	}
	l.bad[key] = true
	l.errs = append(l.errs, Error{Key: key, Value: value, Source: l.result.Sources[key], Message: message})
}

func (l *loader) warn(key, code, message string) {
	l.result.Warnings = append(l.result.Warnings, Warning{Key: key, Code: code, Message: message})
}
