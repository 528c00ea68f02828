package config

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// annotation marks this package's flags, so that another command's flag of the same name (the
// --interval of a watch) is never taken for a setting.
const annotation = "resqued_config_key"

// ConfigFlag names the configuration file.
const ConfigFlag = "config"

// AddGlobalFlags registers every command's settings: -c --config, --redis-url, -n --namespace.
func AddGlobalFlags(flags *pflag.FlagSet) {
	flags.VarP(&onceFlag{kind: "file", instead: "one file is read"}, ConfigFlag, "c", "configuration `file` or none (RESQUED_CONFIG, ./resqued.yaml, /etc/resqued/resqued.yaml)")
	flags.String(StoreFlag, "", "store of the configuration, by `name` (RESQUED_STORE)")
	flags.Lookup(StoreFlag).Annotations = map[string][]string{annotation: {StoreFlag}}
	addFlags(flags, globalFlag)
}

// AddFlags registers the settings of resqued work, a flag for each key.
func AddFlags(flags *pflag.FlagSet) { addFlags(flags, workFlag) }

func addFlags(flags *pflag.FlagSet, group flagGroup) {
	for _, k := range keys() {
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
		if k.name == "waker" { // it was a boolean flag
			flag.NoOptDefVal = WakerOn
		}
	}
}

// ours returns the flag of a key, or nil.
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

// flagText is the value of a flag: always text, so that all sources follow the same rules.
type flagText struct {
	text, hint string
	// list: repeated uses of the flag add up.
	list, given bool
}

func (f *flagText) String() string { return f.text }

func (f *flagText) Type() string { return f.hint }

// Set takes a value. Only booleans are checked here, since a cast would read "maybe" as false.
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

// onceFlag is the value of --config and --runner, which may be given once: one of two would be
// ignored.
type onceFlag struct {
	text string
	// kind is what the flag takes, instead what to do for two.
	kind, instead string
	given         bool
}

func (f *onceFlag) String() string { return f.text }

// Type names the kind of value in the help.
func (f *onceFlag) Type() string { return f.kind }

// Set takes a value and refuses a different one. Completion sets the same one twice.
func (f *onceFlag) Set(text string) error {
	if f.given && text != f.text {
		return fmt.Errorf("given already, with %q; %s", f.text, f.instead)
	}
	f.text, f.given = text, true
	return nil
}
