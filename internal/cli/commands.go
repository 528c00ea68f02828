package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
)

// Commands returns resqued's commands for documentation; they cannot be run.
func Commands() *cobra.Command {
	a := &cli{handlers: resqued.New(), output: output{name: "resqued", stdout: io.Discard, stderr: io.Discard}}
	root := a.root()
	root.InitDefaultHelpCmd()
	return root
}
