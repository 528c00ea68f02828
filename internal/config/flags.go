package config

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// annotation marks the flags of this package, so that another command's flag of
// the same name (the --interval of a watch) is never taken for a setting.
const annotation = "resqued_config_key"

// ConfigFlag is the flag that names the configuration file.
const ConfigFlag = "config"

// AddGlobalFlags registers the settings that every command takes: -c --config,
// --redis-url and -n --namespace.
func AddGlobalFlags(flags *pflag.FlagSet) {
	flags.VarP(&fileFlag{}, ConfigFlag, "c", "configuration `file` (RESQUED_CONFIG; else ./resqued.yaml, /etc/resqued/resqued.yaml); none: read none")
	flags.String(StoreFlag, "", "one of several stores of the configuration, by its `name` (RESQUED_STORE)")
	flags.Lookup(StoreFlag).Annotations = map[string][]string{annotation: {StoreFlag}}
	addFlags(flags, globalFlag)
}

// AddFlags registers the settings of resqued work, a flag for each key.
func AddFlags(flags *pflag.FlagSet) { addFlags(flags, workFlag) }

func addFlags(flags *pflag.FlagSet, group flagGroup) {
	for _, k := range keys {
		if k.flag != group {
			continue
		}
		name := k.flagName()
		flags.VarP(&flagText{text: k.def, hint: k.hint, list: k.list}, name, k.short, k.help)
		flag := flags.Lookup(name)
		flag.Annotations = map[string][]string{annotation: {k.name}}
		if k.hint == hintBool {
			flag.NoOptDefVal = "true"
		}
		if k.name == "waker" { // was one that is on or off
			flag.NoOptDefVal = WakerOn
		}
	}
}

// ours returns the flag of a key, or nil if there is none.
func ours(flags *pflag.FlagSet, k key) *pflag.Flag {
	if flags == nil {
		return nil
	}
	flag := flags.Lookup(k.flagName())
	if flag == nil || len(flag.Annotations[annotation]) == 0 {
		return nil
	}
	return flag
}

// flagText is the value of a flag: text, whatever the key's kind, so that every
// source is read and refused by the same rules.
type flagText struct {
	text, hint string
	// list: a second use of the flag adds to the first.
	list, given bool
}

// String returns what was given, or the default.
func (f *flagText) String() string { return f.text }

// Type names the kind of value in the help.
func (f *flagText) Type() string { return f.hint }

// Set takes what was given. Only yes and no are checked here, because a merely
// cast one would read "maybe" as false.
func (f *flagText) Set(text string) error {
	if f.hint == hintBool {
		yes, err := parseBool(text)
		if err != nil {
			return err
		}
		text = strconv.FormatBool(yes)
	}
	if f.list && f.given {
		text = f.text + "," + text
	}
	f.text, f.given = text, true
	return nil
}

// fileFlag is the value of --config, which counts once: of two files one would be ignored.
type fileFlag struct {
	path  string
	given bool
}

// String returns the path that was given.
func (f *fileFlag) String() string { return f.path }

// Type names the kind of value in the help.
func (f *fileFlag) Type() string { return "file" }

// Set takes a path, and refuses another one. The same may come twice: completion reads all words twice.
func (f *fileFlag) Set(path string) error {
	if f.given && path != f.path {
		return fmt.Errorf("given already, with %q; one file is read", f.path)
	}
	f.path, f.given = path, true
	return nil
}
