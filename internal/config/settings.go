package config

// Setting describes a configuration key for the manual.
type Setting struct {
	Name, Default, Help string
	// Variables are its environment variables; the first wins.
	Variables []string
	// Flag is the flag of resqued work without dashes, or "".
	Flag string
}

// Settings returns the keys in the order of the documentation.
func Settings() []Setting {
	all := make([]Setting, len(keys()))
	for i, k := range keys() {
		all[i] = Setting{Name: k.name, Default: k.def, Help: k.help, Variables: k.variables()}
		if k.flag != noFlag {
			all[i].Flag = k.flagName()
		}
	}
	return all
}
