package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestLifeBudget keeps the start and the end of a worker process from costing more
// commands: a process of many threads that is replaced often would be felt by all.
func TestLifeBudget(t *testing.T) {
	t.Parallel()
	// The rest is a command for each thread, that notes when it started, and three more
	// for each thousand.
	const fixed = 27 // with the five of the test itself
	for _, threads := range []int{1, 50, 1500} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			client := server.Client(t)
			s, err := store.Open(store.Options{URL: server.SocketURL(), Namespace: "resque"})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			r := store.Registration{Proc: "h:b:1-2:0.1", Started: "now", Info: map[string]string{"state": "running", "host": "h", "pid": "1"}}
			for i := range threads {
				r.Workers = append(r.Workers, fmt.Sprintf("h/%d:1:q", i))
			}
			life := func() {
				require.NoError(t, s.Register(t.Context(), r))
				require.EqualValues(t, threads, client.SCard(t.Context(), "resque:workers").Val())
				require.Equal(t, "1", client.HGet(t.Context(), "resque:resqued:proc:"+r.Proc, "pid").Val())
				held, err := s.Unregister(t.Context(), r.Proc)
				require.NoError(t, err)
				require.Zero(t, held)
				require.Equal(t, []string{"resque:resqued:meta"}, client.Keys(t.Context(), "*").Val(), "nothing stays but the id of the data")
			}
			count := func() int { return server.Commands(t) }
			life() // loads the scripts
			before := count()
			life()
			got := count() - before
			t.Logf("%d commands", got)
			require.LessOrEqual(t, got, fixed+threads+threads/1000*3)
		})
	}
}
