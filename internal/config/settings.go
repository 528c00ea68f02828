package config

// Setting describes a key of the configuration for the manual.
type Setting struct {
	Name, Default, Help string
	// Variables of the environment set it as well; the first wins.
	Variables []string
	// Flag is that of resqued work, without dashes, or "".
	Flag string
}

// Settings returns the keys in the order in which they are documented.
func Settings() []Setting {
	all := make([]Setting, len(keys))
	for i, k := range keys {
		all[i] = Setting{Name: k.name, Default: k.def, Help: k.help, Variables: k.variables()}
		if k.flag != noFlag {
			all[i].Flag = k.flagName()
		}
	}
	return all
}
