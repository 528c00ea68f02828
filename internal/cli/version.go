package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is set by the linker in a release build.
var Version = ""

// version is Version, else the version or revision in Go's build information.
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
	var b buildInfo
	b.fromVCS(info.Settings)
	switch {
	case b.Commit == "":
		return "devel"
	case b.Modified:
		return "devel-" + b.Commit[:min(12, len(b.Commit))] + "+dirty"
	}
	return "devel-" + b.Commit[:min(12, len(b.Commit))]
}

func versionLine() string {
	return fmt.Sprintf("%s %s/%s\n", version(), runtime.GOOS, runtime.GOARCH)
}

// buildInfo is what version prints as JSON. Unknown fields are left out.
type buildInfo struct {
	Version string `json:"version"`
	// Commit is the built commit, Date its time.
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Go       string `json:"go"`
}

func thisBuild() buildInfo {
	b := buildInfo{Version: version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.fromVCS(info.Settings)
	}
	return b
}

// fromVCS takes what the Go tool notes when it builds in a repository.
func (b *buildInfo) fromVCS(settings []debug.BuildSetting) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
}

func (a *cli) versionCommand() *cobra.Command {
	return a.command(verb{
		use: "version", kind: noRedis, short: "print the version; -o json adds commit and date",
		do: func(*cobra.Command, []string) error {
			switch {
			case a.formOfErrors() != "":
				return a.printJSON(thisBuild())
			case a.flags.output == outName:
				return a.printText(version() + "\n")
			}
			return a.printText(versionLine())
		},
	})
}
