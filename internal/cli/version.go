package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is set by the linker in a release build.
var Version = ""

// version is Version, else what the Go tool knows of the build: a module's
// version when it was installed by one, else the revision it was built from.
func version() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + dirty
}

func versionLine() string {
	return fmt.Sprintf("%s %s/%s\n", version(), runtime.GOOS, runtime.GOARCH)
}

func (a *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if a.formOfErrors() != "" {
				return a.printJSON(map[string]string{
					"version": version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "go": runtime.Version(),
				})
			}
			if a.flags.output == outName {
				return a.printText(version() + "\n")
			}
			return a.printText(versionLine())
		},
	}
}
