package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/view"
)

func (a *cli) configDiffCommand() *cobra.Command {
	return a.command(verb{
		use: "diff HOST|MASTER HOST|MASTER", kind: reads, short: "name the keys in which two daemons differ",
		long: `Name the keys of the configuration in which two running daemons differ. A host
with several daemons means its first one. Daemons write digests of their values
to Redis, not the values: "config show" on each machine has these.`,
		example: "config diff web-1 web-2",
		args:    exactly(2, "two hosts or masters"),
		names:   masterNames,
		run:     diffConfig,
	})
}

func diffConfig(ctx context.Context, s *session, names []string) error {
	all, err := view.Workers(ctx, s)
	if err != nil {
		return err
	}
	var two []*view.Worker
	for _, name := range names {
		i := slices.IndexFunc(all, func(w *view.Worker) bool { return w.Config != "" && w.Host == name })
		if i < 0 {
			found, err := view.FindWorkers(all, []string{name})
			if err != nil {
				return s.lookup(err, "workers")
			}
			i = slices.Index(all, found[0])
		}
		two = append(two, all[i])
	}
	for _, w := range two {
		if w.Keys == "" {
			return failure("unknown", "", "%s does not say what its configuration is: it is of an older version, or no resqued", w.Worker)
		}
	}
	keys := two[0].DiffersFrom(two[1])
	l := newListing("KEY")
	for _, key := range keys {
		l.add(key, map[string]string{"key": key}, key)
	}
	if two[0].Version != two[1].Version {
		s.note("their versions differ, too: %s and %s", two[0].Version, two[1].Version)
	}
	return s.printOr(l, "%s and %s have the same configuration", two[0].Worker, two[1].Worker)
}
