package config

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	t.Run("every key without secrets has a flag, three of them on every command, beside --store", func(t *testing.T) {
		t.Parallel()
		global, work := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
		AddGlobalFlags(global)
		AddFlags(work)
		var names []string
		global.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		require.Equal(t, []string{"config", "namespace", "redis-url", "store"}, names)
		for _, k := range keys() {
			in, out := work, global
			if k.flag == globalFlag {
				in, out = global, work
			}
			require.Equal(t, k.flag == noFlag, ours(in, k) == nil, k.name)
			require.Nil(t, ours(out, k), k.name)
		}
	})

	t.Run("the help names values and defaults", func(t *testing.T) {
		t.Parallel()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		AddFlags(flags)
		help := flags.FlagUsages()
		require.Regexp(t, `-w, --worker-count number +worker processes \(default 1\)`, help)
		require.Regexp(t, `--drain-timeout duration +time after`, help)
		require.Regexp(t, `--until-empty +leave`, help)
		require.Regexp(t, `--on-lock-lost requeue\|fail +what`, help)
	})
}
