package longstore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
)

// crew is threads that work the slices of tenants, all of one length: the one that has begun first
// ends first. It counts slices, not seconds.
type crew struct {
	*tenants
	threads int
	busy    []*slicehand
	taken   int // slices that were taken, also those that stepped back
	began   map[string]int
}

func newCrew(t *testing.T, threads, share int) *crew {
	t.Helper()
	return &crew{tenants: newTenants(t, t, share), threads: threads, began: map[string]int{}}
}

// enqueue adds runs of a tenant that never end.
func (c *crew) enqueue(tenant string, runs int) {
	c.f.Helper()
	for i := range runs {
		c.add(longstore.Always, fmt.Sprint(tenant, i), tenant)
	}
}

// fill has the threads that are idle take what waits.
func (c *crew) fill() (begun []string) {
	c.f.Helper()
	for len(c.busy) < c.threads {
		h := c.take()
		if h == nil {
			return begun
		}
		c.taken++
		if c.begin(h); h.begun {
			tenant := c.whose[h.slice.UUID]
			c.busy, begun = append(c.busy, h), append(begun, tenant)
			c.began[tenant]++
		}
	}
	return begun
}

// next has the oldest slice end, and returns of whom others begin.
func (c *crew) next() []string {
	c.f.Helper()
	h := c.busy[0]
	c.busy = c.busy[1:]
	c.end(h, longstore.Yields)
	return c.fill()
}

func (c *crew) running(tenant string) (n int) {
	for _, h := range c.busy {
		if c.whose[h.slice.UUID] == tenant {
			n++
		}
	}
	return n
}

// Fairness of tenants, in slices: docs/longjob.md has the main figures.
func TestTenantsAreFair(t *testing.T) {
	t.Parallel()

	t.Run("a tenant that is alone uses all threads", func(t *testing.T) {
		t.Parallel()
		for _, threads := range []int{1, 4, 16} {
			c := newCrew(t, threads, 0)
			c.enqueue("a", 2*threads+3)
			c.fill()
			require.Equal(t, threads, c.running("a"))
			require.Len(t, c.list("queue:q"), 1, "one more waits")
			for range 3 * threads {
				c.next()
				require.Equal(t, threads, c.running("a"), "no thread is idle")
			}
			require.Equal(t, c.taken, c.began["a"], "none has stepped back")
			c.check()
		}
	})

	t.Run("a newcomer begins when the next slice ends", func(t *testing.T) {
		t.Parallel()
		for _, threads := range []int{1, 4, 16} {
			c := newCrew(t, threads, 0)
			c.enqueue("a", 3*threads)
			c.fill()
			for range 2 * threads {
				c.next()
			}
			c.enqueue("b", 1)
			c.next()
			require.Equal(t, 1, c.running("b"), "%d threads", threads)
			c.check()
		}
	})

	t.Run("threads that are idle take a newcomer at once", func(t *testing.T) {
		t.Parallel()
		c := newCrew(t, 4, 0)
		c.enqueue("a", 3)
		c.fill()
		c.enqueue("b", 1)
		require.Equal(t, []string{"b"}, c.fill())
	})

	t.Run("they come to the same share, however many runs each has", func(t *testing.T) {
		t.Parallel()
		c := newCrew(t, 12, 0)
		c.enqueue("a", 60)
		c.fill()
		c.enqueue("b", 20)
		c.enqueue("c", 20)
		rounds := 0
		for ; c.running("a") != 4 || c.running("b") != 4 || c.running("c") != 4; rounds++ {
			require.Less(t, rounds, 100)
			c.next()
		}
		require.LessOrEqual(t, rounds, 12, "within one slice of all threads")
		clear(c.began)
		taken := c.taken
		for range 120 {
			c.next()
			require.Len(t, c.busy, 12)
			for _, tenant := range []string{"a", "b", "c"} {
				require.InDelta(t, 4, c.running(tenant), 1, tenant)
			}
		}
		t.Logf("12 threads: shared evenly after %d ends; in 120 slices then a %d, b %d, c %d; %d more were taken and stepped back",
			rounds, c.began["a"], c.began["b"], c.began["c"], c.taken-taken-120)
		c.check()
	})

	t.Run("longer slices bring a tenant no more threads", func(t *testing.T) {
		t.Parallel()
		c := newCrew(t, 12, 0)
		c.enqueue("a", 20)
		c.enqueue("b", 20)
		c.fill()
		passed := map[*slicehand]int{}
		for n := range 150 {
			// A slice of a ends when it has been the oldest five times.
			for h := c.busy[0]; c.whose[h.slice.UUID] == "a" && passed[h] < 4; h = c.busy[0] {
				passed[h]++
				c.busy = append(c.busy[1:], h)
			}
			c.next()
			if n > 50 {
				require.InDelta(t, 6, c.running("a"), 1)
			}
		}
		t.Logf("12 threads, slices of a are five times as long: a has %d threads after %d slices of a and %d of b", c.running("a"), c.began["a"], c.began["b"])
		c.check()
	})

	t.Run("the last one gets all threads again", func(t *testing.T) {
		t.Parallel()
		c := newCrew(t, 4, 0)
		c.enqueue("a", 9)
		c.fill()
		c.enqueue("b", 9)
		for range 8 {
			c.next()
		}
		require.Equal(t, 2, c.running("b"))
		for id, tenant := range c.whose {
			if tenant == "b" {
				if err := c.long.Cancel(t.Context(), id, 0); err != nil {
					require.ErrorIs(t, err, longstore.ErrEnding)
				}
			}
		}
		for range 5 {
			c.next()
		}
		require.Equal(t, 4, c.running("a"))
		c.check()
	})

	t.Run("a number holds where a class says one", func(t *testing.T) {
		t.Parallel()
		c := newCrew(t, 8, 2)
		c.enqueue("a", 20)
		c.fill()
		for range 10 {
			c.next()
			require.Equal(t, 2, c.running("a"))
		}
	})

	t.Run("who waits where this thread takes no jobs is in nobody's way", func(t *testing.T) {
		t.Parallel()
		for _, served := range [][]string{{"q"}, {"q", "other"}, nil} {
			for _, paused := range []bool{false, true} {
				c := newCrew(t, 4, 0)
				c.enqueue("a", 9)
				run := c.run("b")
				run.Tenant, run.Queue = "b", "other"
				_, err := c.long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{run})
				require.NoError(t, err)
				if paused {
					require.NoError(t, c.redis.Set(t.Context(), c.ns+":pause:queue:other", "x", 0).Err())
				}
				c.served = served
				c.fill()
				want := 4
				if len(served) != 1 && !paused {
					want = 1
				}
				require.Equal(t, want, c.running("a"), "%v %v", served, paused)
			}
		}
	})
}
