package view

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

// running makes views of jobs with these ids, "" for none, all of one process.
func running(ids ...string) []*Job {
	var views []*Job
	for i, id := range ids {
		v := &Job{ID: id, Run: store.RunName{Proc: "web-1:0a1b2c3d:4700-55:0.1", Token: fmt.Sprint(i + 1)}}
		if id == "" {
			v.ID = v.Run.String()
		}
		views = append(views, v)
	}
	shorten(views)
	return views
}

func TestShortNamesOfJobs(t *testing.T) {
	t.Parallel()
	const hex, hex2 = "9f1c55d0a7b2c3d4e5f60718293a4b5c", "9f1c55d0a7b2c3d4e5f60718293a4b5d"
	for name, c := range map[string]struct {
		ids  []string
		want []string
	}{
		"random ids are cut":                           {[]string{hex}, []string{"9f1c55d0a7b2"}},
		"and UUIDs of version 4":                       {[]string{"9f1c55d0-a7b2-43d4-a5f6-0718293a4b5c"}, []string{"9f1c55d0-a7b"}},
		"UUIDs that begin with the time stay whole":    {[]string{"019f1c55-d0a7-7b2c-83d4-e5f60718293a"}, []string{"019f1c55-d0a7-7b2c-83d4-e5f60718293a"}},
		"ids that are counted stay whole":              {[]string{"import-2026-0001"}, []string{"import-2026-0001"}},
		"what would be that of two jobs stays whole":   {[]string{hex, hex2}, []string{hex, hex2}},
		"a run without an id is named by its process":  {[]string{""}, []string{"4700-55:0.1/1"}},
		"two runs of one payload are told apart":       {[]string{"same-id", "same-id"}, []string{"4700-55:0.1/1", "4700-55:0.1/2"}},
		"so are two of which one ends like the other":  {append([]string{""}, make([]string, 10)...), nil},
		"an id that is the name of a run hides nobody": {[]string{"", "web-1:0a1b2c3d:4700-55:0.1/1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			views := running(c.ids...)
			for i, v := range views {
				if c.want != nil {
					require.Equal(t, c.want[i], v.Short)
				}
				for _, shown := range []string{v.Short, v.Name} {
					require.Equal(t, []*Job{v}, find(views, shown), shown)
				}
			}
		})
	}
	t.Run("too little of a name finds nothing", func(t *testing.T) {
		t.Parallel()
		views := running(hex, "")
		require.Empty(t, find(views, "9f1"))
		require.Len(t, find(views, "9f1c"), 1)
		require.Len(t, find(views, "4b5c"), 1)
		require.Len(t, find(views, "0.1/2"), 1)
		require.Len(t, find(views, "web-1:0a1b2c3d"), 2)
	})
}
